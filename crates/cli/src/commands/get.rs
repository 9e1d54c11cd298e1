//! `terrace get`: one value.

use crate::arguments;
use crate::outcome::{Outcome, tell};
use crate::print::Hex;
use crate::store::StoreArgs;
use anyhow::Result;
use std::ffi::OsString;
use std::io::Write;
use terrace_inspect::Escaped;

/// Arguments of `get`.
#[derive(Debug, clap::Args)]
pub struct GetArgs {
    /// The key
    key: OsString,

    /// The key is hex (0x0a0b), and so is the output
    #[arg(long)]
    hex: bool,

    /// Print nothing but the value: no newline after it
    #[arg(long)]
    raw: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// Prints the value; says so if there is none.
pub fn run(args: &GetArgs) -> Result<Outcome> {
    let key = arguments::bytes(&args.key, args.hex)?;
    let Some(value) = args.store.open_read_only()?.get(&key)? else {
        tell(&format!("there is no key `{}`", Escaped(&key)));
        return Ok(Outcome::Negative);
    };
    let mut out = std::io::stdout().lock();
    match args.hex {
        true => write!(out, "{}", Hex(&value))?,
        false => out.write_all(&value)?,
    }
    if !args.raw {
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}
