//! A line about each form of the commands that are made of others, for their `HELP`.

/// The command, and of each form its first words and what it does.
type Texts = (&'static str, &'static [(&'static str, &'static str)]);

const ALL: &[Texts] = &[
    (
        "acl",
        &[
            ("WHOAMI", "The name of the user that the connection is."),
            ("USERS", "The names of all users."),
            ("LIST", "All users with their rules."),
            ("GETUSER", "What a user may do."),
            ("SETUSER", "Makes a user, or changes it by rules."),
            ("DELUSER", "Removes users, and ends their connections."),
            ("CAT", "The categories, or the commands of one."),
            ("GENPASS", "A random password of this many bits, 256 by default."),
            ("DRYRUN", "Says whether a user might execute a command, and does not execute it."),
            ("LOG", "What was refused of late; RESET forgets it."),
            ("SAVE", "Writes users into an ACL file, of which there is none."),
            ("LOAD", "Reads users from an ACL file, of which there is none."),
        ],
    ),
    (
        "client",
        &[
            ("ID", "The number of the connection."),
            ("GETNAME", "The name of the connection."),
            ("SETNAME", "Gives the connection a name."),
            ("SETINFO", "Notes the client's library and its version."),
            ("INFO", "A line about the connection."),
            ("LIST", "A line about each connection, or about some."),
            ("KILL", "Ends connections."),
            ("REPLY", "Whether the connection gets replies."),
            ("NO-EVICT", "Accepted: no client is ever evicted."),
            ("NO-TOUCH", "Accepted: when keys are used is not noted."),
            ("TRACKING", "Accepted when OFF: keys are not tracked."),
            ("TRACKINGINFO", "Says that keys are not tracked."),
            ("GETREDIR", "Says that nothing is redirected."),
            ("UNBLOCK", "Ends the waiting of a client; none waits for others."),
            ("PAUSE", "Lets commands of clients wait for this long: all, or those that write."),
            ("UNPAUSE", "Lets them go on."),
        ],
    ),
    (
        "cluster",
        &[
            ("INFO", "The state of the cluster."),
            ("NODES", "A line about each node, with its slots."),
            ("SLOTS", "The ranges of slots with their nodes."),
            ("SHARDS", "The shards with their slots and nodes."),
            ("MYID", "The id of this node."),
            ("LINKS", "The links to other nodes."),
            ("KEYSLOT", "The slot of a key."),
            ("COUNTKEYSINSLOT", "How many keys of a slot are in this node's store."),
            ("GETKEYSINSLOT", "Some of them."),
            ("CREATE", "Makes a cluster of these nodes."),
            ("STATUS", "Shards, owners and moved keys, for people."),
            ("MOVEKEY", "Moves a key to another shard, or home."),
            ("REPARTITION", "Moves keys by a plan."),
            ("DRAIN", "Takes a node its shards, or lets it have some again."),
        ],
    ),
    (
        "command",
        &[
            ("COUNT", "How many commands there are."),
            ("DOCS", "What commands do."),
            ("INFO", "Arguments, flags, keys and categories of commands."),
            ("LIST", "The names of all commands, or of some."),
            ("GETKEYS", "The keys of a command."),
            ("GETKEYSANDFLAGS", "The keys of a command, and what it does with each."),
        ],
    ),
    (
        "config",
        &[
            ("GET", "The options whose names match, with their values."),
            ("SET", "Gives options values: all of them, or none."),
            ("REWRITE", "Writes what was changed into the file of the start."),
            ("RESETSTAT", "Sets the counters of INFO to 0."),
        ],
    ),
    (
        "debug",
        &[
            ("SLEEP", "Waits."),
            ("POPULATE", "Makes keys that are not there, prefix:0 and so on."),
            ("RELOAD", "Makes everything durable."),
            ("LOG", "Writes a line of the log."),
            ("SET-ACTIVE-EXPIRE", "Accepted, and does nothing."),
            ("QUICKLIST-PACKED-THRESHOLD", "Accepted, and does nothing."),
        ],
    ),
    (
        "function",
        &[
            ("FLUSH", "Removes all functions, of which there are none."),
            ("LIST", "All functions: none."),
            ("STATS", "Says that no function runs."),
        ],
    ),
    (
        "latency",
        &[
            ("HISTORY", "When an event took long, and how long."),
            ("LATEST", "Of each event the last time."),
            ("GRAPH", "Draws how long an event took of late."),
            ("RESET", "Forgets events."),
            ("HISTOGRAM", "How often commands, or subcommands, took how long."),
            ("DOCTOR", "Says which event took longest."),
        ],
    ),
    (
        "memory",
        &[
            ("USAGE", "What a key takes on disk, about."),
            ("STATS", "Where memory goes."),
            ("DOCTOR", "Advice about memory."),
            ("PURGE", "Has the allocator give back what it holds and nobody uses."),
            ("MALLOC-STATS", "Says that the allocator tells nothing."),
        ],
    ),
    (
        "object",
        &[
            ("ENCODING", "How Redis would store what is under a key, about."),
            ("FREQ", "Refused: how often a key is used is not noted."),
            ("IDLETIME", "Always 0: when a key was used is not noted."),
            ("REFCOUNT", "Always 1, but for small numbers."),
        ],
    ),
    (
        "script",
        &[
            ("EXISTS", "Says of each script that it is not there."),
            ("FLUSH", "Removes all scripts, of which there are none."),
        ],
    ),
    (
        "slowlog",
        &[
            ("GET", "The last commands that took long, 10 by default."),
            ("LEN", "How many there are."),
            ("RESET", "Forgets them."),
        ],
    ),
];

/// What a form of a command does, by its first word.
pub(super) fn text_of(command: &str, form: &str) -> Option<&'static str> {
    let (_, texts) = ALL.iter().find(|(name, _)| *name == command)?;
    let word = form.split(' ').next()?;
    texts.iter().find(|(name, _)| *name == word).map(|(_, text)| *text)
}
