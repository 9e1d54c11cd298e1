//! `terrace get`: one value.

use crate::arguments;
use crate::outcome::{Outcome, tell};
use crate::print::Hex;
use crate::redis_values;
use crate::standard_output;
use crate::store::{Part, PartArgs, StoreArgs};
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use terrace_inspect::Escaped;
use terrace_keyspace::{Keyspace, Mode, Type};

/// Arguments of `get`.
#[derive(Debug, clap::Args)]
pub struct GetArgs {
    /// The key
    #[arg(allow_negative_numbers = true)]
    key: OsString,

    /// The key is hex (0x0a0b), and so is the output
    #[arg(long)]
    hex: bool,

    /// Print nothing but the value: no newline after it
    #[arg(long)]
    raw: bool,

    #[command(flatten)]
    part: PartArgs,

    #[command(flatten)]
    store: StoreArgs,
}

/// Prints the value; says so if there is none.
pub fn run(args: &GetArgs) -> Result<Outcome> {
    let key = arguments::bytes(&args.key, args.hex)?;
    let mut out = BufWriter::new(standard_output::until_unread());
    let found = match args.store.open_part(&args.part)? {
        Part::Plain(family) => match family.get(&key)? {
            None => false,
            Some(value) => {
                args.print(&value, &mut out)?;
                true
            }
        },
        Part::Database(space, db) => args.print_typed(&space, db, &key, &mut out)?,
    };
    if !found {
        tell(&format!("there is no key `{}`", Escaped(&key)));
        return Ok(Outcome::Negative);
    }
    out.flush()?;
    Ok(Outcome::Done)
}

impl GetArgs {
    fn print(&self, value: &[u8], out: &mut impl Write) -> Result<()> {
        match self.hex {
            true => write!(out, "{}", Hex(value))?,
            false => out.write_all(value)?,
        }
        if !self.raw {
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Prints a string as any value; of a collection its type, and then an element a line. Gives
    /// whether there is anything under the key.
    fn print_typed(
        &self,
        space: &Arc<Keyspace>,
        db: u8,
        key: &[u8],
        out: &mut impl Write,
    ) -> Result<bool> {
        let mut turn = space.command_batch(Mode::Device);
        match turn.key_type(db, key)? {
            None => return Ok(false),
            Some(Type::String) => {
                let Some(value) = turn.get(db, key)? else { return Ok(false) };
                self.print(&value, out)?;
            }
            Some(Type::Collection(kind)) => {
                if self.raw {
                    let name = Type::Collection(kind).name();
                    bail!("the key holds a {name}; --raw is for strings");
                }
                writeln!(out, "{}", redis_values::heading(&mut turn, db, key, kind)?)?;
                redis_values::write_lines(out, &mut turn, db, key, kind, self.hex)?;
            }
        }
        Ok(true)
    }
}
