//! The subcommands of commands that have some: what `CLIENT`, `CONFIG` and the others are made of.

use super::Flags;
use crate::acl::{Categories, category};

/// One subcommand.
#[derive(Debug)]
pub struct Subcommand {
    /// In lower case.
    pub name: &'static str,
    /// Arguments with both names: exactly this many, or at least this many if negative.
    pub arity: i32,
    /// Properties.
    pub flags: Flags,
    /// What it belongs to.
    group: Categories,
}

const fn row(name: &'static str, arity: i32, flags: Flags, group: Categories) -> Subcommand {
    Subcommand { name, arity, flags, group }
}

const A: Flags = Flags::ADMIN;
/// The client waits for it, which cannot be within `EXEC`.
const ADMIN_ALONE: Flags = Flags::ADMIN.with(Flags::NO_MULTI);
const N: Flags = Flags::NONE;
const R: Flags = Flags::READ;
const NONE: Categories = Categories::NONE;
const CONNECTION: Categories = category::CONNECTION;
const KEYSPACE: Categories = category::KEYSPACE;
const SCRIPTING: Categories = category::SCRIPTING;
const W: Flags = Flags::WRITE;

const ALL: &[(&str, &[Subcommand])] = &[
    (
        "acl",
        &[
            row("cat", -2, N, NONE),
            row("deluser", -3, A, NONE),
            row("dryrun", -4, A, NONE),
            row("genpass", -2, N, NONE),
            row("getuser", 3, A, NONE),
            row("help", 2, N, NONE),
            row("list", 2, A, NONE),
            row("load", 2, A, NONE),
            row("log", -2, A, NONE),
            row("save", 2, A, NONE),
            row("setuser", -3, A, NONE),
            row("users", 2, A, NONE),
            row("whoami", 2, N, NONE),
        ],
    ),
    (
        "client",
        &[
            row("caching", 3, N, CONNECTION),
            row("getname", 2, N, CONNECTION),
            row("getredir", 2, N, CONNECTION),
            row("help", 2, N, CONNECTION),
            row("id", 2, N, CONNECTION),
            row("info", 2, N, CONNECTION),
            row("kill", -3, A, CONNECTION),
            row("list", -2, A, CONNECTION),
            row("no-evict", 3, A, CONNECTION),
            row("no-touch", 3, N, CONNECTION),
            row("pause", -3, A, CONNECTION),
            row("reply", 3, N, CONNECTION),
            row("setinfo", 4, N, CONNECTION),
            row("setname", 3, N, CONNECTION),
            row("tracking", -3, N, CONNECTION),
            row("trackinginfo", 2, N, CONNECTION),
            row("unblock", -3, A, CONNECTION),
            row("unpause", 2, A, CONNECTION),
        ],
    ),
    (
        "cluster",
        &[
            row("addslots", -3, A, NONE),
            row("addslotsrange", -4, A, NONE),
            row("bumpepoch", 2, A, NONE),
            row("count-failure-reports", 3, A, NONE),
            row("countkeysinslot", 3, N, NONE),
            row("create", -4, ADMIN_ALONE, NONE),
            row("delslots", -3, A, NONE),
            row("delslotsrange", -4, A, NONE),
            row("drain", -3, ADMIN_ALONE, NONE),
            row("failover", -2, A, NONE),
            row("flushslots", 2, A, NONE),
            row("forget", 3, A, NONE),
            row("getkeysinslot", 4, N, NONE),
            row("help", 2, N, NONE),
            row("info", 2, N, NONE),
            row("keyslot", 3, N, NONE),
            row("links", 2, N, NONE),
            row("meet", -4, A, NONE),
            row("movekey", 4, ADMIN_ALONE, NONE),
            row("myid", 2, N, NONE),
            row("nodes", 2, N, NONE),
            row("repartition", -3, ADMIN_ALONE, NONE),
            row("replicas", 3, A, NONE),
            row("replicate", 3, A, NONE),
            row("reset", -2, A, NONE),
            row("saveconfig", 2, A, NONE),
            row("set-config-epoch", 3, A, NONE),
            row("setslot", -4, A, NONE),
            row("shards", 2, N, NONE),
            row("slaves", 3, A, NONE),
            row("slots", 2, N, NONE),
            row("status", 2, ADMIN_ALONE, NONE),
        ],
    ),
    (
        "command",
        &[
            row("count", 2, N, CONNECTION),
            row("docs", -2, N, CONNECTION),
            row("getkeys", -4, N, CONNECTION),
            row("getkeysandflags", -4, N, CONNECTION),
            row("help", 2, N, CONNECTION),
            row("info", -2, N, CONNECTION),
            row("list", -2, N, CONNECTION),
        ],
    ),
    (
        "config",
        &[
            row("get", -3, A, NONE),
            row("help", 2, N, NONE),
            row("resetstat", 2, A, NONE),
            row("rewrite", 2, A, NONE),
            row("set", -4, A, NONE),
        ],
    ),
    (
        "function",
        &[
            row("delete", 3, W, SCRIPTING),
            row("dump", 2, N, SCRIPTING),
            row("flush", -2, W, SCRIPTING),
            row("help", 2, N, SCRIPTING),
            row("kill", 2, N, SCRIPTING),
            row("list", -2, N, SCRIPTING),
            row("load", -3, W, SCRIPTING),
            row("restore", -3, W, SCRIPTING),
            row("stats", 2, N, SCRIPTING),
        ],
    ),
    (
        "latency",
        &[
            row("doctor", 2, A, NONE),
            row("graph", 3, A, NONE),
            row("help", 2, N, NONE),
            row("histogram", -2, A, NONE),
            row("history", 3, A, NONE),
            row("latest", 2, A, NONE),
            row("reset", -2, A, NONE),
        ],
    ),
    (
        "memory",
        &[
            row("doctor", 2, N, NONE),
            row("help", 2, N, NONE),
            row("malloc-stats", 2, N, NONE),
            row("purge", 2, N, NONE),
            row("stats", 2, N, NONE),
            row("usage", -3, R, NONE),
        ],
    ),
    (
        "object",
        &[
            row("encoding", 3, R, KEYSPACE),
            row("freq", 3, R, KEYSPACE),
            row("help", 2, N, KEYSPACE),
            row("idletime", 3, R, KEYSPACE),
            row("refcount", 3, R, KEYSPACE),
        ],
    ),
    (
        "script",
        &[
            row("debug", 3, N, SCRIPTING),
            row("exists", -3, N, SCRIPTING),
            row("flush", -2, N, SCRIPTING),
            row("help", 2, N, SCRIPTING),
            row("kill", 2, N, SCRIPTING),
            row("load", 3, N, SCRIPTING),
        ],
    ),
    (
        "slowlog",
        &[
            row("get", -2, A, NONE),
            row("help", 2, N, NONE),
            row("len", 2, A, NONE),
            row("reset", 2, A, NONE),
        ],
    ),
];

/// Those of a command; most have none.
pub fn subcommands(command: &str) -> &'static [Subcommand] {
    ALL.iter().find(|(name, _)| *name == command).map_or(&[], |(_, rows)| rows)
}

impl Subcommand {
    /// The categories of access control that it belongs to.
    pub fn categories(&self) -> Categories {
        self.group.with(category::SLOW).with(self.flags.categories())
    }
}
