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
            tell(&format!("{error:#}"));
            ExitCode::from(1)
        }
    }
}

/// One line on standard error.
pub fn tell(text: &str) {
    let line: Vec<&str> = text.lines().map(str::trim).collect();
    // If standard error is gone there is nobody left to tell.
    let _ = writeln!(io::stderr(), "terrace: {}", line.join(" "));
}
