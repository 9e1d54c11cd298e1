//! How a command ends: exit codes, and errors in one line.

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
        // The reader of our output has closed the pipe.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
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

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return error.kind() == io::ErrorKind::BrokenPipe;
        }
        match cause.downcast_ref::<terrace_base::Error>() {
            Some(terrace_base::Error::Io { source, .. }) => {
                source.kind() == io::ErrorKind::BrokenPipe
            }
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_broken_pipe_is_recognized_wherever_it_hides() {
        let pipe = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&anyhow::Error::from(pipe()).context("printing")));
        let printed = terrace_base::Error::io("print", Path::new("x"), pipe());
        assert!(is_broken_pipe(&printed.into()));
        assert!(!is_broken_pipe(&anyhow::anyhow!("Broken pipe")));
    }
}
