//! The commands: one table, from which dispatch, `COMMAND`, the categories of access control and
//! `docs/server.md` are made.
//!
//! Each file below is one group: its functions, and a `COMMANDS` with a row for each. A function
//! reads its arguments, calls the keyspace and writes one reply; the locks of the keys that its row
//! names are taken before it runs. One that gives a [`Failure`] has written nothing: what it
//! appended to the output is taken away.

mod access;
mod accounting;
mod admin;
mod argument_docs;
mod arguments;
mod bit_offset;
mod bitfield;
mod bits;
mod client;
mod client_line;
mod cluster;
mod cluster_admin;
mod command_docs;
mod command_table;
mod connection;
mod debug;
mod expiry;
mod failure;
mod hashes;
mod help;
mod help_texts;
mod info;
mod interruption;
mod key_specs;
mod keys;
mod latency_graph;
mod lcs;
mod list_moves;
mod lists;
mod observe;
mod presence;
mod redis_names;
mod rename;
mod replication;
mod run;
mod scripting;
mod set_algebra;
mod sets;
mod sort;
mod sorted_sets;
mod spec;
mod strings;
mod transactions;

pub use command_docs::documentation;
pub use command_table::{Table, table};
pub(crate) use connection::NO_SELECT;
pub(crate) use debug::debug_refusal;
pub(crate) use failure::close_if_stopping;
pub use failure::{Failure, Outcome};
pub(crate) use keys::{ANNOUNCE, EXECUTE, TSCAN_LIMIT, is_flush_option};
pub use redis_names::REDIS_NAMES;
pub use run::run;
pub(crate) use run::{allow_arguments, permit};
pub use spec::{CommandSpec, Flags, Group, KeyUse, Keys, Subcommand};
pub(crate) use transactions::{exec_aside, has_write};

/// The rows of the table, group by group.
const GROUPS: &[&[CommandSpec]] = &[
    connection::COMMANDS,
    client::COMMANDS,
    keys::COMMANDS,
    rename::COMMANDS,
    sort::COMMANDS,
    strings::COMMANDS,
    bits::COMMANDS,
    lcs::COMMANDS,
    hashes::COMMANDS,
    sets::COMMANDS,
    set_algebra::COMMANDS,
    sorted_sets::COMMANDS,
    sorted_sets::COMMANDS_OF_SEVERAL,
    lists::COMMANDS,
    list_moves::COMMANDS,
    transactions::COMMANDS,
    command_docs::COMMANDS,
    info::COMMANDS,
    observe::COMMANDS,
    admin::COMMANDS,
    debug::COMMANDS,
    replication::COMMANDS,
    cluster::COMMANDS,
    access::COMMANDS,
    scripting::COMMANDS,
];

use crate::server::Server;
use crate::session::Session;
use terrace_keyspace::CommandBatch;
use terrace_resp::{Command, ReplyWriter};

/// What is answered to a command with too many or too few arguments.
pub(crate) fn wrong_count(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// One command that is executed.
pub struct Call<'a> {
    /// The arguments, the name first.
    pub args: Command<'a>,
    /// What the command writes goes here; see [`CommandBatch`].
    pub batch: &'a mut CommandBatch,
    /// Who asks.
    pub session: &'a mut Session,
    /// Everything else.
    pub server: &'a Server,
    /// Where the one reply goes.
    pub reply: ReplyWriter<'a>,
}

impl<'a> Call<'a> {
    /// Argument number `at`, the name being number 0; empty if there are fewer.
    pub fn arg(&self, at: usize) -> &'a [u8] {
        self.args.get(at).unwrap_or_default()
    }

    /// The arguments from number `at` on.
    pub fn args_from(
        &self,
        at: usize,
    ) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        self.args.iter().skip(at)
    }

    /// How many arguments there are with the name.
    pub fn count(&self) -> usize {
        self.args.count()
    }

    /// The database that the client has selected.
    pub fn db(&self) -> u8 {
        self.session.db
    }

    /// Answers with a bulk string, or that there is none.
    pub fn bulk_or_null(&mut self, bytes: Option<impl AsRef<[u8]>>) {
        match bytes {
            Some(bytes) => self.reply.bulk(bytes),
            None => self.reply.null(),
        }
    }

    /// Argument number `at` as an integer.
    pub fn integer(&self, at: usize) -> Result<i64, Failure> {
        terrace_resp::parse_integer(self.arg(at)).ok_or(Failure::NOT_AN_INTEGER)
    }
}
