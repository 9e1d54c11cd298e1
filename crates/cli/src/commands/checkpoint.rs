//! `terrace checkpoint`: a second store with the present contents.

use crate::outcome::Outcome;
use crate::standard_output;
use crate::store::{IfMissing, StoreArgs};
use crate::target_store;
use anyhow::Result;
use std::io::Write;
use std::path::PathBuf;

/// Arguments of `checkpoint`.
#[derive(Debug, clap::Args)]
pub struct CheckpointArgs {
    /// Directory of the new store: new or empty, best on the same file system
    target: PathBuf,

    #[command(flatten)]
    store: StoreArgs,
}

/// Makes the checkpoint.
pub fn run(args: &CheckpointArgs) -> Result<Outcome> {
    let db = args.store.open(args.store.options(), IfMissing::Fail)?;
    target_store::remove_left(&args.target)?;
    db.checkpoint(&args.target)?;
    db.close()?;
    let target = args.target.display();
    writeln!(
        standard_output::until_unread(),
        "{target} is a store with the contents of {}",
        args.store.dir.display()
    )?;
    Ok(Outcome::Done)
}
