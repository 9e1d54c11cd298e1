//! Arguments as people type them: sizes, times to live, keys and values.

use anyhow::{Result, bail};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use terrace::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// Reads a size: `4096`, `64K`, `512M`, `1.5G` (binary, as are `KiB`...); `MB`... are decimal.
pub fn size(text: &str) -> Result<usize, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: f64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1048576.0,
        "g" | "gib" => 1073741824.0,
        "t" | "tib" => 1099511627776.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return Err(format!("`{unit}` is no unit of size; use K, M, G or T, as in 512M")),
    };
    match number.parse::<f64>() {
        Ok(number) if number * factor <= usize::MAX as f64 => Ok((number * factor) as usize),
        _ => Err("a size is a number and a unit, as in 512M".into()),
    }
}

/// Reads a time to live: `90s`, `15m`, `12h`, `30d`, `500ms`; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds: f64 = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(format!("`{unit}` is no unit of time; use ms, s, m, h or d")),
    };
    let number = number.parse::<f64>().map_err(|_| "a time is a number and a unit, as in 15m")?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| "the time is too long".into())
}

/// The bytes that an argument means: its text as it is, or the hex digits in it.
pub fn bytes(text: &OsStr, hex: bool) -> Result<Vec<u8>> {
    if !hex {
        return Ok(text.as_bytes().to_vec());
    }
    let shown = text.to_string_lossy();
    let digits = shown.strip_prefix("0x").unwrap_or(&shown);
    if digits.len() % 2 == 1 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        bail!("`{shown}` is not hex; with --hex, write two digits for each byte, as in 0x00ff");
    }
    let byte = |pair: &[u8]| u8::from_str_radix(&String::from_utf8_lossy(pair), 16);
    Ok(digits.as_bytes().chunks(2).map(byte).collect::<Result<_, _>>()?)
}

/// Why no store takes a record with so long a key and value. It is to be known before a store is made for it, or it is in a
/// batch with others.
pub fn too_long(key: usize, value: usize) -> Option<String> {
    let over = |what, len, most| format!("the {what} has {len} bytes; {most} is the most");
    if key > MAX_KEY_BYTES {
        return Some(over("key", key, MAX_KEY_BYTES));
    }
    (value > MAX_VALUE_BYTES).then(|| over("value", value, MAX_VALUE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the engine refuses.
    #[test]
    fn a_record_that_no_batch_takes_is_known_before() {
        for (key, value) in [(MAX_KEY_BYTES, 1), (MAX_KEY_BYTES + 1, 1), (1, MAX_VALUE_BYTES)] {
            assert_eq!(too_long(key, value).is_some(), key > MAX_KEY_BYTES, "{key} {value}");
        }
        let why = too_long(1, MAX_VALUE_BYTES + 1).unwrap();
        assert!(why.starts_with("the value has "), "{why}");
    }

    #[test]
    fn sizes_are_binary_unless_written_otherwise() {
        for (text, want) in [
            ("4096", 4096),
            ("64k", 64 << 10),
            ("512M", 512 << 20),
            ("1.5G", 3 << 29),
            ("2GiB", 2 << 30),
            ("10MB", 10_000_000),
        ] {
            assert_eq!(size(text), Ok(want), "{text}");
        }
        for text in ["", "M", "12Q", "-1", "1..5", "nan", "99999999999999999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_units() {
        for (text, want_ms) in
            [("500ms", 500), ("90", 90_000), ("15m", 900_000), ("1.5h", 5_400_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(want_ms)), "{text}");
        }
        for text in ["", "m", "-5s", "5 years", "1e400s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn arguments_are_text_or_hex() {
        let text = |text: &str, hex| bytes(OsStr::new(text), hex);
        assert_eq!(text("0x00ff", false).unwrap(), b"0x00ff");
        assert_eq!(text("0x00fF", true).unwrap(), [0, 255]);
        assert_eq!(text("", true).unwrap(), [0u8; 0]);
        assert!(
            text("0x0", true).is_err() && text("zz", true).is_err() && text("é", true).is_err()
        );
    }
}
