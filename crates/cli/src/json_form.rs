//! The form in which `scan --json` prints an entry and `load` takes it: an object a line, with all of
//! the entry in it.
//!
//! ```text
//! {"key":"rice","value":"plain","expires_at_ms":1790000000000}
//! {"key_hex":"0x00ff","value_hex":"0x80"}
//! ```
//! Bytes that are UTF-8 are a string, as `key` or `value`; others are hex, as `key_hex` or
//! `value_hex`. `expires_at_ms` (Unix milliseconds) is there if the entry expires.

use crate::arguments;
use crate::print::Hex;
use serde_json::{Map, Value};
use std::ffi::OsStr;

const EXPIRY: &str = "expires_at_ms";

/// Adds bytes as `name`, or as hex under `name` and `_hex`.
pub fn insert(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.into(), text.into()),
        Err(_) => object.insert(format!("{name}_hex"), Hex(bytes).to_string().into()),
    };
}

/// Adds when the entry expires, if it does.
pub fn insert_expiry(object: &mut Map<String, Value>, expires_at_ms: Option<u64>) {
    if let Some(at) = expires_at_ms {
        object.insert(EXPIRY.into(), at.into());
    }
}

/// Whether the object has the fields of an entry and no others.
pub fn is_entry(object: &Map<String, Value>) -> bool {
    let has_one = |name: &str| {
        object.get(name).is_some_and(Value::is_string)
            != object.get(&format!("{name}_hex")).is_some_and(Value::is_string)
    };
    has_one("key") && has_one("value") && object.keys().all(|name| is_field(name))
}

/// Whether an entry may have a field of this name.
fn is_field(name: &str) -> bool {
    matches!(name, "key" | "key_hex" | "value" | "value_hex" | EXPIRY)
}

/// Whether the object is what `scan --json` prints of a server's store: with a type.
pub fn is_typed_entry(object: &Map<String, Value>) -> bool {
    let has = |name: &str| object.contains_key(name) || object.contains_key(&format!("{name}_hex"));
    let known = |name: &str| is_field(name) || name == "type";
    object.contains_key("type")
        && has("key")
        && has("value")
        && object.keys().all(|name| known(name))
}

/// Puts what the object says into `key` and `value`, which are empty; gives when the entry expires.
pub fn take(
    object: &Map<String, Value>,
    key: &mut Vec<u8>,
    value: &mut Vec<u8>,
) -> Result<Option<u64>, String> {
    if let Some(name) = object.keys().find(|name| !is_field(name)) {
        return Err(format!("`{name}` is no field of what `terrace scan --json` prints"));
    }
    bytes(object, "key", key)?;
    bytes(object, "value", value)?;
    match object.get(EXPIRY) {
        None => Ok(None),
        Some(at) => match at.as_u64() {
            Some(at) => Ok(Some(at)),
            None => Err(format!("`{EXPIRY}` is no time in Unix milliseconds")),
        },
    }
}

fn bytes(object: &Map<String, Value>, name: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let hex_name = format!("{name}_hex");
    match (object.get(name), object.get(&hex_name)) {
        (Some(Value::String(text)), None) => out.extend_from_slice(text.as_bytes()),
        (None, Some(Value::String(hex))) => {
            let decoded = arguments::bytes(OsStr::new(hex), true);
            let decoded = decoded.map_err(|_| format!("`{hex_name}` is not hex"))?;
            out.extend_from_slice(&decoded);
        }
        (None, None) => return Err(format!("there is no field `{name}` or `{hex_name}`")),
        (Some(_), Some(_)) => return Err(format!("both `{name}` and `{hex_name}` are there")),
        _ => return Err(format!("`{name}` is no string")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_comes_back_as_it_was() {
        let parts: [&[u8]; 7] = [
            b"",
            b"text",
            "ü\u{0}\u{7f}\n\"\\".as_bytes(),
            b"\x00\xff",
            b"0x00",
            b"\xed\xa0\x80",
            b"{}",
        ];
        for key in parts {
            for value in parts {
                for expiry in [None, Some(0), Some(u64::MAX)] {
                    let mut object = Map::new();
                    insert(&mut object, "key", key);
                    insert(&mut object, "value", value);
                    insert_expiry(&mut object, expiry);
                    let line = Value::from(object).to_string();
                    let Ok(Value::Object(object)) = serde_json::from_str(&line) else { panic!() };
                    assert!(is_entry(&object) && !is_typed_entry(&object), "{line}");
                    let (mut k, mut v) = (Vec::new(), Vec::new());
                    assert_eq!(take(&object, &mut k, &mut v), Ok(expiry), "{line}");
                    assert_eq!((&k[..], &v[..]), (key, value), "{line}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        for (line, want) in [
            (r#"{"value":"v"}"#, "no field `key`"),
            (r#"{"key":"k"}"#, "no field `value`"),
            (r#"{"key":"k","key_hex":"0x00","value":"v"}"#, "both"),
            (r#"{"key_hex":"0x0","value":"v"}"#, "not hex"),
            (r#"{"key_hex":"zz","value":"v"}"#, "not hex"),
            (r#"{"key":1,"value":"v"}"#, "no string"),
            (r#"{"key":"k","value":"v","expires_at_ms":-1}"#, "no time"),
            (r#"{"key":"k","value":"v","expires_at_ms":"1"}"#, "no time"),
            (r#"{"key":"k","value":"v","more":1}"#, "`more`"),
        ] {
            let Ok(Value::Object(object)) = serde_json::from_str(line) else { panic!("{line}") };
            let error = take(&object, &mut Vec::new(), &mut Vec::new()).unwrap_err();
            assert!(error.contains(want), "{line}: {error}");
        }
        let Ok(Value::Object(typed)) =
            serde_json::from_str(r#"{"key":"k","type":"hash","value":{}}"#)
        else {
            panic!()
        };
        assert!(is_typed_entry(&typed) && !is_entry(&typed));
    }
}
