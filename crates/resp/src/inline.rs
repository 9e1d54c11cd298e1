//! Inline requests: a line of words, for people at a terminal. Splits as `sdssplitargs` of Redis
//! does, but within the line: an unquoted word is never longer than what it was written as.
//!
//! ```text
//! word      bytes up to a blank; may end in a quoted part
//! "…"       \n \r \t \b \a, \xHH, any other byte after \ stands for itself
//! '…'       \' stands for '
//! ```
//! A closing quote is followed by a blank or by the end. Called by [`crate::RequestParser`].

use crate::span::Span;

/// Why a line is no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A quote is not closed, or something sticks to a closed one.
    Quotes,
    /// More words than allowed.
    TooMany,
}

/// Puts the words of `line` into `spans`, unquoted and moved to where they start.
pub(crate) fn split(line: &mut [u8], most: usize, spans: &mut Vec<Span>) -> Result<(), Fault> {
    let mut read = 0;
    loop {
        read += line[read..].iter().take_while(|byte| is_blank(**byte)).count();
        if read == line.len() {
            return Ok(());
        }
        if spans.len() >= most {
            return Err(Fault::TooMany);
        }
        let start = read;
        let end;
        (read, end) = word(line, start).ok_or(Fault::Quotes)?;
        spans.push(Span::of(start, end - start));
    }
}

/// Unquotes the word at `start`: where the next one is looked for, and where this one ends.
fn word(line: &mut [u8], start: usize) -> Option<(usize, usize)> {
    let mut at = start;
    while let Some(byte) = line.get(at).copied() {
        match byte {
            b' ' | b'\t' | b'\r' => return Some((at + 1, at)),
            b'"' | b'\'' => return quoted(line, at),
            _ => at += 1,
        }
    }
    Some((at, at))
}

/// Unquotes what follows the quote at `open` to where the quote is.
fn quoted(line: &mut [u8], open: usize) -> Option<(usize, usize)> {
    let quote = *line.get(open)?;
    let (mut read, mut write) = (open + 1, open);
    loop {
        let (byte, len) = match *line.get(read..)? {
            [byte, ..] if byte == quote => break,
            [b'\\', b'\'', ..] if quote == b'\'' => (b'\'', 2),
            [b'\\', b'x', high, low, ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex(high) << 4 | hex(low), 4)
            }
            [b'\\', escaped, ..] if quote == b'"' => (unescaped(escaped), 2),
            [byte, ..] => (byte, 1),
            [] => return None,
        };
        // The quote itself has made room: `write` stays behind `read`.
        line[write] = byte;
        write += 1;
        read += len;
    }
    let closed = line.get(read + 1).is_none_or(|byte| is_blank(*byte));
    closed.then_some((read + 1, write))
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        byte => byte,
    }
}

/// The value of a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20).wrapping_sub(b'a').wrapping_add(10),
    }
}

/// As `isspace` in the C locale.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests;
