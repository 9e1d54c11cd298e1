//! Our standard output, and what a command does when nobody reads it any more.
//!
//! An error of writing to it because the reader has closed the pipe is [`ReaderGone`], and of nothing else: a pipe or
//! connection of another kind that breaks is an error like any other. Which of the two functions a command takes says
//! whether anything is left to do or to tell when its reader goes: [`until_unread`] ends it, [`read_or_not`] does not.
//! Any other error names standard output: "no space" of a file that it goes to would be taken for the store's.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind, StdoutLock, Write};

/// Standard output has no reader any more.
#[derive(Debug)]
pub struct ReaderGone;

impl fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads standard output any more")
    }
}

impl Error for ReaderGone {}

/// For a command that has nothing left but to print: a write fails with [`ReaderGone`], which ends it without a word.
pub fn until_unread() -> Output<StdoutLock<'static>> {
    Output::new(io::stdout().lock(), false)
}

/// For a command with a verdict to give or work to do besides: when the reader has gone, what is printed is thrown away.
pub fn read_or_not() -> Output<StdoutLock<'static>> {
    Output::new(io::stdout().lock(), true)
}

/// Whether `error` says that the reader of standard output has gone.
pub fn is_reader_gone(error: &anyhow::Error) -> bool {
    let is_it = |error: &io::Error| error.get_ref().is_some_and(|inner| inner.is::<ReaderGone>());
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(is_it))
}

/// See the functions that make it.
pub struct Output<W> {
    inner: W,
    goes_on: bool,
    /// Nobody reads it, and it goes on.
    is_unread: bool,
}

impl<W: Write> Output<W> {
    fn new(inner: W, goes_on: bool) -> Self {
        Self { inner, goes_on, is_unread: false }
    }

    fn told<T>(&mut self, done: io::Result<T>, if_unread: T) -> io::Result<T> {
        match done {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_unread = self.goes_on;
                match self.goes_on {
                    true => Ok(if_unread),
                    false => Err(io::Error::new(ErrorKind::BrokenPipe, ReaderGone)),
                }
            }
            Err(error) => {
                // The kind decides who tries again.
                let text = format!("standard output cannot be written: {error}");
                Err(io::Error::new(error.kind(), text))
            }
            Ok(done) => Ok(done),
        }
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_unread {
            return Ok(bytes.len());
        }
        let written = self.inner.write(bytes);
        self.told(written, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_unread {
            return Ok(());
        }
        let flushed = self.inner.flush();
        self.told(flushed, ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use std::io::BufWriter;

    /// A pipe without a reader; the number of writes it has seen.
    #[derive(Default)]
    struct Unread(usize);

    impl Write for Unread {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            self.0 += 1;
            Err(ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_standard_output_without_a_reader_is_one() {
        let mut out = BufWriter::new(Output::new(Unread::default(), false));
        let written = writeln!(out, "x").and_then(|()| out.flush());
        let error = anyhow::Error::from(written.unwrap_err()).context("printing");
        assert!(is_reader_gone(&error), "{error:?}");
        // A connection, a named pipe, or a text.
        let other = io::Error::from(ErrorKind::BrokenPipe);
        assert!(!is_reader_gone(&anyhow::Error::from(other)));
        let written = Unread::default().write_all(b"x").context("sending");
        assert!(!is_reader_gone(&written.unwrap_err()));
        assert!(!is_reader_gone(&anyhow::anyhow!("Broken pipe")));
    }

    #[test]
    fn other_errors_name_standard_output_and_keep_their_kind() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
                Err(ErrorKind::StorageFull.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for goes_on in [false, true] {
            let error = writeln!(Output::new(Full, goes_on), "x").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StorageFull);
            assert!(
                error.to_string().starts_with("standard output cannot be written: "),
                "{error}"
            );
        }
    }

    #[test]
    fn what_has_more_to_do_goes_on_unread() {
        let mut out = Output::new(Unread::default(), true);
        for _ in 0..3 {
            writeln!(out, "x").unwrap();
            out.flush().unwrap();
        }
        assert_eq!(out.inner.0, 1, "it is not tried again");
    }
}
