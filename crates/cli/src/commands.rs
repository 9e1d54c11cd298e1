//! The commands, one file each.

mod backup;
mod checkpoint;
mod cluster;
mod compact;
mod completions;
mod convert;
mod delete;
mod dump;
mod get;
mod inspect;
mod keys;
mod load;
mod man_pages;
mod put;
mod repair;
mod restore;
mod scan;
mod serve;
mod stats;
mod verify;

use crate::demo;
use crate::outcome::Outcome;
use anyhow::Result;

/// What `terrace` can do.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Load real data, look it up, and show on one screen what the engine did
    Demo(demo::DemoArgs),
    /// Load records from a TSV, CSV or JSON lines file, plain or compressed
    Load(load::LoadArgs),
    /// Print the value of a key
    Get(get::GetArgs),
    /// Set a key to a value
    Put(put::PutArgs),
    /// Remove a key, or all keys of a range
    Delete(delete::DeleteArgs),
    /// Print keys and values in order
    Scan(scan::ScanArgs),
    /// Print levels, counters and latencies
    Stats(stats::StatsArgs),
    /// Merge everything down to the last level
    Compact(compact::CompactArgs),
    /// Make a second store with the present contents, of hard links where possible
    Checkpoint(checkpoint::CheckpointArgs),
    /// Back a store up into a directory of many backups that share their files
    Backup(backup::BackupArgs),
    /// Write the whole store into one compressed file, also beside a process that writes it
    Dump(dump::DumpArgs),
    /// Make a store of a dump
    Restore(restore::RestoreArgs),
    /// Copy a server's store into one whose keys lie by another placement
    Convert(convert::ConvertArgs),
    /// Make keys for encryption at rest, and tell which ones a store needs
    Keys(keys::KeysArgs),
    /// Encrypt a store that is not, or bring all of it under the newest key; takes --key-file
    Encrypt(keys::RewriteArgs),
    /// Make an encrypted store one that is not; takes --key-file
    Decrypt(keys::RewriteArgs),
    /// Check every checksum and every invariant of a store; nothing is written
    Verify(verify::VerifyArgs),
    /// Make a store that does not open into one that does, and tell what could not be saved
    Repair(repair::RepairArgs),
    /// Show what is in the files of a store, damaged or not; nothing is written
    Inspect(inspect::InspectArgs),
    /// Serve the store to Redis clients, with metrics and a dashboard
    Serve(serve::ServeArgs),
    /// Make, watch and change a cluster of several servers
    Cluster(cluster::ClusterArgs),
    /// Print the script by which a shell completes commands and arguments
    Completions(completions::CompletionsArgs),
    /// Write the manual pages into a directory
    ManPages(man_pages::ManPagesArgs),
}

impl Command {
    /// Whether it runs servers.
    pub fn is_server(&self) -> bool {
        match self {
            Self::Serve(_) => true,
            Self::Cluster(args) => args.is_server(),
            _ => false,
        }
    }

    /// Whether it may open a store of the user's.
    pub fn opens_store(&self) -> bool {
        !matches!(self, Self::Demo(_) | Self::Keys(_) | Self::Completions(_) | Self::ManPages(_))
    }

    /// Carries the command out; `program` describes the whole command line, and `verbose` is how often that was said.
    pub fn run(self, program: fn() -> clap::Command, verbose: u8) -> Result<Outcome> {
        match self {
            Self::Demo(args) => demo::run(&args),
            Self::Load(args) => load::run(&args),
            Self::Get(args) => get::run(&args),
            Self::Put(args) => put::run(&args),
            Self::Delete(args) => delete::run(&args),
            Self::Scan(args) => scan::run(&args),
            Self::Stats(args) => stats::run(&args),
            Self::Compact(args) => compact::run(&args),
            Self::Checkpoint(args) => checkpoint::run(&args),
            Self::Backup(args) => backup::run(&args),
            Self::Dump(args) => dump::run(&args),
            Self::Restore(args) => restore::run(&args),
            Self::Convert(args) => convert::run(&args),
            Self::Keys(args) => keys::run(&args),
            Self::Encrypt(args) => keys::encrypt(&args),
            Self::Decrypt(args) => keys::decrypt(&args),
            Self::Verify(args) => verify::run(&args),
            Self::Repair(args) => repair::run(&args),
            Self::Inspect(args) => inspect::run(&args),
            Self::Serve(args) => serve::run(args, verbose),
            Self::Cluster(args) => cluster::run(&args, verbose),
            Self::Completions(args) => completions::run(&args, program()),
            Self::ManPages(args) => man_pages::run(&args, program()),
        }
    }
}
