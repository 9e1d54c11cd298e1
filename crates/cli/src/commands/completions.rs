//! `terrace completions`: the script by which a shell completes commands and arguments.

use crate::outcome::Outcome;
use crate::standard_output;
use anyhow::Result;
use clap_complete::aot::{Shell, generate};
use std::io::Write;

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the script for `program`.
pub fn run(args: &CompletionsArgs, mut program: clap::Command) -> Result<Outcome> {
    let name = program.get_name().to_string();
    // Not to standard output at once: it may be closed, which is no reason to panic.
    let mut script = Vec::new();
    generate(args.shell, &mut program, name, &mut script);
    standard_output::until_unread().write_all(&script)?;
    Ok(Outcome::Done)
}
