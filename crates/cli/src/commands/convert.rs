//! `terrace convert`: a server's store with another placement of its keys.

use crate::arguments;
use crate::files;
use crate::outcome::Outcome;
use crate::print::Grouped;
use crate::standard_output;
use crate::target_store::Target;
use anyhow::{Context, Result, anyhow, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;
use terrace::{Db, Options};
use terrace_inspect::Contents;
use terrace_keyspace::{Converted, Placement};

/// Arguments of `convert`.
#[derive(Debug, clap::Args)]
pub struct ConvertArgs {
    /// Directory of a store that `terrace serve` made; nobody may be writing to it
    from: PathBuf,

    /// Directory of the store that is made: new or empty
    dir: PathBuf,

    /// `range`: the keys of a database in order. `slots`: by the slots of a cluster
    #[arg(long, value_name = "PLACEMENT", value_parser = placement)]
    placement: Placement,

    /// Memory that each of the stores may take, such as 64M or 2G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = arguments::size)]
    memory: usize,
}

fn placement(text: &str) -> Result<Placement> {
    match text {
        "range" => Ok(Placement::Range),
        "slots" => Ok(Placement::Slots),
        _ => Err(anyhow!("the placements are range and slots")),
    }
}

/// Makes the store and tells how much is in it.
pub fn run(args: &ConvertArgs) -> Result<Outcome> {
    let start = Instant::now();
    let options = |create_if_missing| Options {
        memory_budget: args.memory,
        create_if_missing,
        ..files::options()
    };
    let from = open(&args.from, options(false))?;
    let target = Target::prepare(&args.dir)?;
    let converted = fill(&from, &target, options(true), args.placement)
        .with_context(|| format!("{} was not converted", args.from.display()))?;
    from.close()?;
    target.finish()?;
    writeln!(
        standard_output::until_unread(),
        "converted {} keys with {} elements from {} into {}, placement {}, in {:.1} s",
        Grouped(converted.keys),
        Grouped(converted.elements),
        args.from.display(),
        args.dir.display(),
        args.placement,
        start.elapsed().as_secs_f64(),
    )?;
    Ok(Outcome::Done)
}

/// Opens the store for writing, so that nothing is written behind the copy's back. Where there is none, nothing is made.
fn open(dir: &Path, options: Options) -> Result<Db> {
    match terrace_inspect::contents(&*files::vfs(), dir)? {
        Contents::Store | Contents::Remains => Ok(Db::open(dir, options)?),
        Contents::Missing | Contents::Empty | Contents::Foreign(_) => bail!(
            "{} holds no store; name the directory of one that `terrace serve` made",
            dir.display()
        ),
    }
}

fn fill(from: &Db, target: &Target, options: Options, placement: Placement) -> Result<Converted> {
    let to = Db::open(&target.partial, options)?;
    let converted = terrace_keyspace::convert(from, &to, placement)?;
    to.flush()?;
    to.sync()?;
    to.close()?;
    Ok(converted)
}
