//! How a command ends: exit codes, and errors in one line.

use crate::standard_output::is_reader_gone;
use std::io::{self, Write};
use std::process::ExitCode;

/// What a command that ran to its end found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All well: 0.
    Done,
    /// The answer is "no": key absent, damage found. 1, and the command said why.
    Negative,
    /// It is done as far as that is possible, and something is lost: 3, and the command said what.
    Partial,
    /// The arguments name nothing that can be looked at: 2, and the command said why.
    Unusable,
}

/// The exit code of the process; tells the error, if there is one.
pub fn exit_code(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Negative) => ExitCode::from(1),
        Ok(Outcome::Unusable) => ExitCode::from(2),
        Ok(Outcome::Partial) => ExitCode::from(3),
        // What was left to print is wanted by nobody.
        Err(error) if is_reader_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&text(&error));
            ExitCode::from(1)
        }
    }
}

/// An error with its causes, each once: many say themselves what their cause is.
pub fn text(error: &anyhow::Error) -> String {
    let mut texts: Vec<String> = Vec::new();
    for cause in error.chain().map(ToString::to_string) {
        if texts.last().is_none_or(|before| !before.ends_with(&cause)) {
            texts.push(cause);
        }
    }
    texts.join(": ")
}

/// One line on standard error.
pub fn tell(text: &str) {
    let line: Vec<&str> = text.lines().map(str::trim).collect();
    // If standard error is gone there is nobody left to tell.
    let _ = writeln!(io::stderr(), "terrace: {}", line.join(" "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use std::path::Path;

    #[test]
    fn a_cause_that_an_error_names_is_told_once() {
        let cause = || io::Error::new(io::ErrorKind::NotFound, "no such luck");
        let of_files = || terrace_base::Error::io("open", Path::new("/a"), cause());
        let of_backups = || terrace_backup::Error::from(of_files());
        let told = "open /a: no such luck";
        assert_eq!(text(&of_files().into()), told);
        assert_eq!(text(&of_backups().into()), told);
        let in_context = Err::<(), _>(of_backups()).context("it was not backed up").unwrap_err();
        assert_eq!(text(&in_context), format!("it was not backed up: {told}"));
        // Nothing is left out that was not said.
        let plain = anyhow::Error::from(cause()).context("first").context("luck");
        assert_eq!(text(&plain), "luck: first: no such luck");
    }
}
