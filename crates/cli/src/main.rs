//! `terrace`: the command line over the engine, the inspector and the benchmarks.
//!
//! One file per command under `commands`; each parses its own arguments and is thin. An error is
//! one line on standard error and exit code 1; arguments that cannot be used give 2; a reader of
//! our output that goes away (`terrace scan | head`) ends the command without a word, unless it has a verdict to give or
//! work left to do.

#![deny(unsafe_code)]

mod allocator;
mod arguments;
mod client_tls;
mod cluster_client;
mod commands;
mod csv;
mod demo;
mod files;
mod format;
mod input;
mod json_form;
mod level_json;
mod outcome;
mod output_file;
mod print;
mod records;
mod redis_values;
mod sd_notify;
mod standard_output;
mod store;
mod target_store;
mod traces;

use anyhow::anyhow;
use clap::{ArgAction, CommandFactory, Parser};
use commands::Command;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tracing::level_filters::LevelFilter;

/// An LSM key-value store: one memory budget, spent where it saves the most I/O
#[derive(Parser)]
#[command(name = "terrace", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Tell what the engine does on standard error; twice for more. Of a server: log more, unless `loglevel` says how much
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,

    /// File with the keys of an encrypted store (see `terrace keys new`) [env: TERRACE_ENCRYPTION_KEY_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // A server has a log of its own.
    if !cli.command.is_server() {
        trace(cli.verbose);
    }
    // A limit of file sizes is an error of the write, not the end of the process.
    let _handled = signal_hook::flag::register(libc::SIGXFSZ, Arc::default());
    let keys = match cli.key_file {
        Some(_) if matches!(cli.command, Command::Demo(_)) => {
            Err(anyhow!("the store of a demonstration is not encrypted: leave --key-file out"))
        }
        named => {
            let key_file = named.or_else(files::key_file_of_environment);
            let key_file = key_file.filter(|_| cli.command.opens_store());
            key_file.map_or(Ok(()), files::use_keys)
        }
    };
    outcome::exit_code(keys.and_then(|()| cli.command.run(Cli::command, cli.verbose)))
}

/// Shows the engine's events if they are asked for.
fn trace(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // It would tell of an event that cannot be written by a panic, in the engine's threads as well.
        .log_internal_errors(false)
        .init();
}
