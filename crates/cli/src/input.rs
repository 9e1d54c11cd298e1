//! The input of `load`: a file or standard input, plain or zstd, line by line.

use crate::print;
use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use terrace::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// The first bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// No line that fits a store is longer: key, value, and room for what stands around them.
const MAX_LINE_BYTES: u64 = (MAX_KEY_BYTES + MAX_VALUE_BYTES + (1 << 20)) as u64;

/// Bytes read from the file at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Lines of an input, counted.
pub struct Lines {
    reader: Box<dyn BufRead>,
    /// What messages call the input.
    name: String,
    /// Lines read so far: the number of the last one.
    number: u64,
    bar: ProgressBar,
}

/// Counts what passes on the bar.
struct Counted<R>(R, ProgressBar);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buf)?;
        self.1.inc(read as u64);
        Ok(read)
    }
}

impl Lines {
    /// Opens the file at `path`, or standard input for `-`. Whether it is compressed is told by
    /// its first bytes.
    pub fn open(path: &Path) -> Result<Self> {
        let (raw, name, length): (Box<dyn Read>, String, u64) = if path.as_os_str() == "-" {
            (Box::new(io::stdin()), "standard input".into(), 0)
        } else {
            let file =
                File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            let metadata = file.metadata()?;
            if metadata.is_dir() {
                bail!("{} is a directory; name a file, or - for standard input", path.display());
            }
            (Box::new(file), path.display().to_string(), metadata.len())
        };
        let bar = print::bytes_bar(length, "loading");
        Self::over(raw, name, bar)
    }

    fn over(raw: Box<dyn Read>, name: String, bar: ProgressBar) -> Result<Self> {
        let mut raw = BufReader::with_capacity(BUFFER_BYTES, Counted(raw, bar.clone()));
        let mut start = Vec::new();
        let read = raw.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut start);
        read.with_context(|| format!("cannot read {name}"))?;
        let packed = start == ZSTD_MAGIC;
        let whole = BufReader::new(io::Cursor::new(start).chain(raw));
        let reader: Box<dyn BufRead> = match packed {
            true => {
                let unpacked = zstd::Decoder::with_buffer(whole)?;
                Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked))
            }
            false => Box::new(whole),
        };
        Ok(Self { reader, name, number: 0, bar })
    }

    /// Puts the next line, without its end, into `line`; `false` at the end of the input.
    pub fn next(&mut self, line: &mut Vec<u8>) -> Result<bool> {
        line.clear();
        let read = self.reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', line);
        let read = read.with_context(|| {
            let after = self.number;
            format!("{} is cut off or damaged after line {after}", self.name)
        })?;
        if read == 0 {
            return Ok(false);
        }
        self.number += 1;
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        } else if line.len() as u64 == MAX_LINE_BYTES {
            bail!("{}: the line is longer than {MAX_LINE_BYTES} bytes", self.place());
        }
        Ok(true)
    }

    /// Input and line number, for messages.
    pub fn place(&self) -> String {
        format!("{}:{}", self.name, self.number)
    }

    /// What messages call the input.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes the bar away.
    pub fn close(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let raw = Box::new(io::Cursor::new(bytes.to_vec()));
        let mut lines = Lines::over(raw, "test".into(), ProgressBar::hidden())?;
        let (mut all, mut line) = (Vec::new(), Vec::new());
        while lines.next(&mut line)? {
            all.push(line.clone());
        }
        assert_eq!(lines.place(), format!("test:{}", all.len()));
        Ok(all)
    }

    #[test]
    fn lines_end_in_any_of_the_usual_ways() {
        let want: Vec<Vec<u8>> = vec![b"a".to_vec(), b"".to_vec(), b"b\r".to_vec(), b"c".to_vec()];
        assert_eq!(lines(b"a\r\n\nb\r\r\nc").unwrap(), want);
        assert!(lines(b"").unwrap().is_empty());
        assert_eq!(lines(b"\x28\xb5").unwrap(), [b"\x28\xb5"]);
    }

    #[test]
    fn compressed_input_is_recognized_and_its_end_is_checked() {
        let text = b"one\ntwo\n".repeat(10_000);
        let packed = zstd::bulk::compress(&text, 1).unwrap();
        assert_eq!(lines(&packed).unwrap().len(), 20_000);
        let error = lines(&packed[..packed.len() - 1]).unwrap_err();
        assert!(format!("{error:#}").contains("cut off or damaged"), "{error:#}");
        let mut damaged = packed;
        damaged.truncate(10);
        assert!(lines(&damaged).is_err());
    }
}
