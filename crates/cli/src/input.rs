//! The input of `load`: a file or standard input, plain, gzip or zstd, line by line.

use crate::print;
use anyhow::{Context, Result, bail};
use flate2::bufread::GzDecoder;
use indicatif::ProgressBar;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use terrace_inspect::SizeBytes;

/// The first bytes of a zstd frame.
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// The first bytes of a gzip member that is deflated.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b, 0x08];

/// Byte-order mark of UTF-8, which some programs put in front of text.
const UTF8_MARK: &[u8] = "\u{feff}".as_bytes();

/// Bytes read from the file at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Lines of an input, counted.
pub struct Lines {
    reader: Box<dyn BufRead>,
    /// What messages call the input.
    name: String,
    /// Whether it is compressed.
    is_packed: bool,
    /// Lines read so far: the number of the last one.
    number: u64,
    /// No line may be longer than this many bytes.
    max_line: usize,
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

/// What the members of a gzip file hold, one after the other. Zeros behind a member are passed over, as gzip does: tapes and
/// blocks are filled up with them.
struct Members<R> {
    /// The one that is read; none behind the last.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Members<R> {
    fn new(packed: R) -> Self {
        Self { member: Some(GzDecoder::new(packed)) }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(member) = &mut self.member else { return Ok(0) };
            let read = member.read(buf)?;
            if read > 0 || buf.is_empty() {
                return Ok(read);
            }
            let behind = self.member.take().map(GzDecoder::into_inner);
            if let Some(mut behind) = behind
                && pass_zeros(&mut behind)?
            {
                self.member = Some(GzDecoder::new(behind));
            }
        }
    }
}

/// Passes over zeros; whether anything else is behind them.
fn pass_zeros(packed: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let ahead = match packed.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            ahead => ahead?,
        };
        let (all, zeros) = (ahead.len(), ahead.iter().take_while(|byte| **byte == 0).count());
        packed.consume(zeros);
        if zeros < all || all == 0 {
            return Ok(all > 0);
        }
    }
}

/// Passes over the byte-order mark at the beginning of a text, if it has one, also where what compresses the text cuts it up.
fn pass_mark(mut text: Box<dyn BufRead>) -> io::Result<Box<dyn BufRead>> {
    let ahead = text.fill_buf()?;
    if ahead.starts_with(UTF8_MARK) {
        text.consume(UTF8_MARK.len());
        return Ok(text);
    }
    if ahead.is_empty() || !UTF8_MARK.starts_with(ahead) {
        return Ok(text);
    }
    let mut start = Vec::new();
    text.by_ref().take(UTF8_MARK.len() as u64).read_to_end(&mut start)?;
    if start == UTF8_MARK {
        start.clear();
    }
    let whole = io::Cursor::new(start).chain(text);
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, whole)))
}

impl Lines {
    /// Opens the file at `path`, or standard input for `-`. Whether and how it is compressed is seen
    /// by its first bytes.
    ///
    /// # Errors
    /// There is no such file, or it cannot be read.
    pub fn open(path: &Path, max_line: usize) -> Result<Self> {
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
        Self::over(raw, name, bar, max_line)
    }

    /// Over what `raw` gives, which messages call `name`.
    pub fn over(
        raw: Box<dyn Read>,
        name: String,
        bar: ProgressBar,
        max_line: usize,
    ) -> Result<Self> {
        let cannot = || format!("cannot read {name}");
        let mut raw = BufReader::with_capacity(BUFFER_BYTES, Counted(raw, bar.clone()));
        let mut start = Vec::new();
        let longest = ZSTD_MAGIC.len().max(GZIP_MAGIC.len()) as u64;
        raw.by_ref().take(longest).read_to_end(&mut start).with_context(cannot)?;
        let is_zstd = start.starts_with(ZSTD_MAGIC);
        let is_gzip = start.starts_with(GZIP_MAGIC);
        // All that has been read, so that it is looked at together.
        start.extend_from_slice(raw.buffer());
        raw.consume(raw.buffer().len());
        let whole = BufReader::with_capacity(BUFFER_BYTES, io::Cursor::new(start).chain(raw));
        let buffered = |unpacked: Box<dyn Read>| -> Box<dyn BufRead> {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked))
        };
        let reader = match (is_zstd, is_gzip) {
            (true, _) => buffered(Box::new(zstd::Decoder::with_buffer(whole)?)),
            (_, true) => buffered(Box::new(Members::new(whole))),
            _ => Box::new(whole),
        };
        let is_packed = is_zstd || is_gzip;
        let reader = pass_mark(reader).with_context(|| damaged(&name, 0, is_packed))?;
        Ok(Self { reader, name, is_packed, number: 0, max_line, bar })
    }

    /// What is known of the bytes ahead without waiting for more of them; empty at the end only.
    pub fn ahead(&mut self) -> Result<&[u8]> {
        let read = self.reader.fill_buf();
        read.with_context(|| damaged(&self.name, self.number, self.is_packed))
    }

    /// Appends the next line, with its end, to `text`, which may grow to the longest line that is
    /// allowed; `false` at the end of the input.
    pub fn append(&mut self, text: &mut Vec<u8>) -> Result<bool> {
        // With the longest end of a line.
        let room = (self.max_line.saturating_sub(text.len()) as u64).saturating_add(2);
        let read = self.reader.by_ref().take(room).read_until(b'\n', text);
        let read = read.with_context(|| damaged(&self.name, self.number, self.is_packed))?;
        if read == 0 {
            return Ok(false);
        }
        self.number += 1;
        if without_end(text) > self.max_line {
            let most = SizeBytes(self.max_line as u64);
            bail!("{}: the line is longer than {most}; --max-line allows more", self.place());
        }
        Ok(true)
    }

    /// Lines read so far.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Input and line number, for messages.
    pub fn place(&self) -> String {
        self.place_of(self.number)
    }

    /// Input and the line number `number`, for messages.
    pub fn place_of(&self, number: u64) -> String {
        format!("{}:{number}", self.name)
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

/// What to say of an input that cannot be read any further. The checksum of one that is compressed stands behind its lines.
fn damaged(name: &str, after: u64, is_packed: bool) -> String {
    let before = match is_packed && after > 0 {
        true => ", and lines before that may be wrong, since only its end tells",
        false => "",
    };
    format!("{name} is cut off or damaged after line {after}{before}")
}

/// The length of `line` without the `\n` or `\r\n` at its end.
pub fn without_end(line: &[u8]) -> usize {
    let line =
        line.strip_suffix(b"\n").map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line));
    line.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const MOST: usize = 1 << 20;

    fn lines_of(bytes: &[u8], max_line: usize) -> Result<Vec<Vec<u8>>> {
        let raw = Box::new(io::Cursor::new(bytes.to_vec()));
        let mut lines = Lines::over(raw, "test".into(), ProgressBar::hidden(), max_line)?;
        let (mut all, mut line) = (Vec::new(), Vec::new());
        while lines.append(&mut line)? {
            all.push(line[..without_end(&line)].to_vec());
            line.clear();
        }
        assert_eq!(lines.place(), format!("test:{}", all.len()));
        Ok(all)
    }

    fn lines(bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        lines_of(bytes, MOST)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    #[test]
    fn lines_end_in_any_of_the_usual_ways() {
        let want: Vec<Vec<u8>> = vec![b"a".to_vec(), b"".to_vec(), b"b\r".to_vec(), b"c".to_vec()];
        assert_eq!(lines(b"a\r\n\nb\r\r\nc").unwrap(), want);
        assert!(lines(b"").unwrap().is_empty());
        assert_eq!(lines(b"\x28\xb5").unwrap(), [b"\x28\xb5"]);
        assert_eq!(lines(b"\xef\xbb\xbfa\nb\xef\xbb\xbf").unwrap(), [&b"a"[..], b"b\xef\xbb\xbf"]);
    }

    #[test]
    fn a_line_has_a_limit() {
        assert_eq!(lines_of(b"12345\r\n12345\n12345", 5).unwrap().len(), 3);
        for text in [&b"1\n123456\n"[..], b"1\n123456", b"1\n1234567890"] {
            let error = lines_of(text, 5).unwrap_err().to_string();
            assert!(error.contains("test:2: the line is longer than 5 B"), "{error}");
        }
    }

    #[test]
    fn compressed_input_is_recognized_and_its_end_is_checked() {
        let text = b"one\ntwo\n".repeat(10_000);
        let two_members = [gzip(&text), gzip(b"three\n")].concat();
        assert_eq!(lines(&two_members).unwrap().len(), 20_001);
        for packed in [zstd::bulk::compress(&text, 1).unwrap(), gzip(&text)] {
            assert_eq!(lines(&packed).unwrap().len(), 20_000);
            for cut in [5, 12, packed.len() - 5, packed.len() - 1] {
                let error = lines(&packed[..cut]).unwrap_err();
                let error = format!("{error:#}");
                assert!(error.contains("cut off or damaged"), "{error}");
            }
            let mut damaged = packed.clone();
            damaged[packed.len() - 6] ^= 1;
            assert!(lines(&damaged).is_err());
        }
    }

    #[test]
    fn zeros_behind_a_gzip_file_are_passed_over() {
        let zeros = vec![0; 3 * BUFFER_BYTES];
        for count in [1, 511, zeros.len()] {
            let (one, two, padding) = (gzip(b"one\n"), gzip(b"two\n"), &zeros[..count]);
            let padded = [&one[..], padding, &two[..], padding].concat();
            assert_eq!(lines(&padded).unwrap(), [b"one", b"two"]);
        }
        let error = lines(&[gzip(b"one\n"), vec![0, 7]].concat()).unwrap_err();
        assert!(format!("{error:#}").contains("cut off or damaged after line 1"), "{error:#}");
    }

    #[test]
    fn a_mark_is_known_however_it_is_cut_up() {
        let text = b"\xef\xbb\xbfone\n";
        for cut in 0..text.len() {
            let (start, rest) = text.split_at(cut);
            let frame = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).unwrap();
            for packed in [[gzip(start), gzip(rest)], [frame(start), frame(rest)]] {
                assert_eq!(lines(&packed.concat()).unwrap(), [b"one"], "{cut}");
            }
        }
        for text in [&b"\xef"[..], b"\xef\xbb", b"\xefone", b"\xef\xbbone"] {
            assert_eq!(lines(&[gzip(&text[..1]), gzip(&text[1..])].concat()).unwrap(), [text]);
        }
    }

    #[test]
    fn a_wrong_checksum_at_the_end_is_told_as_one_of_all_lines() {
        let mut packed = gzip(b"one\ntwo\n");
        let at = packed.len() - 8;
        packed[at] ^= 1;
        let error = format!("{:#}", lines(&packed).unwrap_err());
        let want = "test is cut off or damaged after line 2, and lines before that may be wrong";
        assert!(error.starts_with(want), "{error}");
        // Of a line that was never there nothing is said.
        let error = format!("{:#}", lines(&packed[..12]).unwrap_err());
        assert!(error.starts_with("test is cut off or damaged after line 0: "), "{error}");
    }
}
