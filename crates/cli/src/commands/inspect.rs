//! `terrace inspect`: what is in the files, damaged or not.

use crate::files;
use crate::outcome::{Outcome, tell};
use crate::output_file::OutputFile;
use crate::standard_output;
use crate::store::{self, DEFAULT_DIR, DIR_VARIABLE};
use anyhow::{Context, Result};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace::vfs::Vfs;
use terrace_inspect::{LogDetail, SstDetail};

/// Arguments of `inspect`.
#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Levels, files, key ranges and sequence numbers, from the manifest alone
    Lsm {
        /// Directory of the store
        #[arg(default_value = DEFAULT_DIR, env = DIR_VARIABLE)]
        dir: PathBuf,
    },
    /// Footer, properties, index, filters and blocks of an SST
    Sst {
        /// The file
        file: PathBuf,

        /// Every entry, too
        #[arg(long)]
        keys: bool,

        /// Draw the learned index into this SVG: keys against positions, segments, errors
        #[arg(long, value_name = "FILE.svg")]
        plot: Option<PathBuf>,
    },
    /// The writes in the commit log, and what a recovery would make of it
    Log {
        /// A segment, or the directory of the store
        #[arg(value_name = "FILE|DIR")]
        path: PathBuf,

        #[command(flatten)]
        bytes: Bytes,
    },
    /// The edits in the manifest
    Manifest {
        /// A manifest, or the directory of the store
        #[arg(value_name = "FILE|DIR")]
        path: PathBuf,

        #[command(flatten)]
        bytes: Bytes,
    },
}

#[derive(Debug, clap::Args)]
struct Bytes {
    /// Every header in hex, too, and this many bytes of each payload
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "64")]
    bytes: Option<usize>,
}

impl Bytes {
    fn detail(&self) -> LogDetail {
        match self.bytes {
            Some(payload_bytes) => LogDetail::Bytes { payload_bytes },
            None => LogDetail::Records,
        }
    }
}

/// Draws the learned index of an SST into `plot`, which is no file of a store.
fn draw(vfs: &Arc<dyn Vfs>, file: &Path, plot: &Path) -> Result<()> {
    let svg = terrace_inspect::plot_sst(vfs, file)?;
    let svg = svg.with_context(|| format!("{} has no learned index to draw", file.display()))?;
    let mut output = OutputFile::create(plot)?;
    let written = output.write_all(svg.as_bytes()).and_then(|()| output.finish());
    written.map(drop).with_context(|| format!("cannot write {}", plot.display()))
}

/// Prints what it can, then says how much is damaged. All of it is looked at even if the reader goes before the end.
pub fn run(args: &InspectArgs) -> Result<Outcome> {
    if let What::Lsm { dir } = &args.what
        && let Err(error) = store::check_directory(dir, "that of a store")
    {
        tell(&error.to_string());
        return Ok(Outcome::Unusable);
    }
    let vfs = files::vfs();
    let mut out = BufWriter::new(standard_output::read_or_not());
    let printed = match &args.what {
        What::Lsm { dir } => terrace_inspect::lsm(&*vfs, dir, &mut out),
        What::Sst { file, keys, plot } => {
            if let Some(plot) = plot {
                draw(&vfs, file, plot)?;
            }
            let detail = if *keys { SstDetail::Entries } else { SstDetail::Blocks };
            terrace_inspect::sst(&*vfs, file, detail, &mut out)
        }
        What::Log { path, bytes } => terrace_inspect::log(&*vfs, path, bytes.detail(), &mut out),
        What::Manifest { path, bytes } => {
            terrace_inspect::manifest(&*vfs, path, bytes.detail(), &mut out)
        }
    };
    let flushed = out.flush();
    match printed {
        Ok(0) => {
            flushed?;
            Ok(Outcome::Done)
        }
        // Whatever became of the output.
        Ok(problems) => {
            // Damage, or what could not be looked at: encrypted files, say.
            tell(&format!("found {problems} problem{}", if problems == 1 { "" } else { "s" }));
            Ok(Outcome::Negative)
        }
        Err(error) => {
            tell(&error.to_string());
            Ok(Outcome::Unusable)
        }
    }
}
