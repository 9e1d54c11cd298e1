//! Key specifications: where the keys of a command stand and what it does with them, as `COMMAND INFO` tells clients
//! that look for keys by themselves.

use super::spec::{CommandSpec, Flags, Keys, Subcommand};
use terrace_resp::{Aggregate, OwnedCommand, ReplyWriter};

/// Where the keys begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begin {
    /// At this argument.
    Index(i64),
    Unknown,
}

/// Which arguments from there on are keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Find {
    /// Every `step`th, up to `last` behind the first, or, if that is negative, counted from the end.
    Range {
        last: i64,
        step: i64,
    },
    /// As many as the first says, behind it.
    Counted,
    Unknown,
}

const ONE: Find = Find::Range { last: 0, step: 1 };
const REST: Find = Find::Range { last: -1, step: 1 };

/// One specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeySpec {
    flags: &'static [&'static str],
    begin: Begin,
    find: Find,
}

/// A command's own, without those of its subcommands.
pub(super) fn of_command(spec: &CommandSpec) -> Vec<KeySpec> {
    let alone = OwnedCommand::of(&[spec.name]);
    let (first, others) = spec.uses(&alone.as_command());
    let first: &'static [&'static str] = match spec.name {
        // What they do hangs on their options.
        "set" | "bitfield" => &["RW", "access", "update", "variable_flags"],
        _ => first.flags,
    };
    let row = |flags, begin, find| KeySpec { flags, begin: Begin::Index(begin), find };
    let unknown = |flags| KeySpec { flags, begin: Begin::Unknown, find: Find::Unknown };
    // What SORT looks up by patterns.
    let looked_up: &'static [&'static str] = &["RO", "access"];
    match spec.keys {
        Keys::None | Keys::AfterSubcommand => Vec::new(),
        Keys::First if spec.name == "sort_ro" => vec![row(first, 1, ONE), unknown(looked_up)],
        Keys::First | Keys::FirstTwice => vec![row(first, 1, ONE)],
        Keys::FirstTwo if spec.name == "lcs" => {
            vec![row(first, 1, Find::Range { last: 1, step: 1 })]
        }
        Keys::FirstTwo | Keys::FirstTwoAcross => {
            vec![row(first, 1, ONE), row(others.flags, 2, ONE)]
        }
        Keys::All if first == others.flags => vec![row(first, 1, REST)],
        Keys::All => vec![row(first, 1, ONE), row(others.flags, 2, REST)],
        Keys::AfterFirst => vec![row(first, 2, ONE), row(others.flags, 3, REST)],
        Keys::EverySecond => vec![row(first, 1, Find::Range { last: -1, step: 2 })],
        Keys::Counted => vec![row(first, 1, Find::Counted)],
        Keys::FirstAndCounted => vec![row(first, 1, ONE), row(others.flags, 2, Find::Counted)],
        Keys::FirstAndStore => {
            vec![row(first, 1, ONE), unknown(looked_up), unknown(others.flags)]
        }
    }
}

/// Those of a subcommand of a command.
pub(super) fn of_part(spec: &CommandSpec, part: &Subcommand) -> Vec<KeySpec> {
    if !part.flags.has(Flags::READ) {
        return Vec::new();
    }
    let alone = OwnedCommand::of(&[spec.name, part.name]);
    let (first, _) = spec.uses(&alone.as_command());
    vec![KeySpec { flags: first.flags, begin: Begin::Index(2), find: ONE }]
}

/// Writes them as `COMMAND INFO` has them.
pub(super) fn write(reply: &mut ReplyWriter<'_>, specs: &[KeySpec]) {
    reply.aggregate(Aggregate::Set, specs.len());
    for spec in specs {
        reply.aggregate(Aggregate::Map, 3);
        reply.bulk("flags");
        reply.aggregate(Aggregate::Set, spec.flags.len());
        spec.flags.iter().for_each(|flag| reply.simple(flag));
        reply.bulk("begin_search");
        match spec.begin {
            Begin::Index(at) => write_rule(reply, "index", &[("index", at)]),
            Begin::Unknown => write_rule(reply, "unknown", &[]),
        }
        reply.bulk("find_keys");
        match spec.find {
            Find::Range { last, step } => {
                let numbers = [("lastkey", last), ("keystep", step), ("limit", 0)];
                write_rule(reply, "range", &numbers);
            }
            Find::Counted => {
                let numbers = [("keynumidx", 0), ("firstkey", 1), ("keystep", 1)];
                write_rule(reply, "keynum", &numbers);
            }
            Find::Unknown => write_rule(reply, "unknown", &[]),
        }
    }
}

fn write_rule(reply: &mut ReplyWriter<'_>, kind: &str, numbers: &[(&str, i64)]) {
    reply.aggregate(Aggregate::Map, 2);
    reply.bulk("type");
    reply.bulk(kind);
    reply.bulk("spec");
    reply.aggregate(Aggregate::Map, numbers.len());
    for (name, number) in numbers {
        reply.bulk(name);
        reply.integer(*number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::table;

    /// The keys among words, as a client finds them by specifications.
    fn found<'a>(specs: &[KeySpec], words: &[&'a str]) -> Vec<&'a str> {
        let mut keys = Vec::new();
        for spec in specs {
            let Begin::Index(begin) = spec.begin else { continue };
            let begin = begin as usize;
            match spec.find {
                Find::Range { last, step } => {
                    let last =
                        if last < 0 { words.len() as i64 + last } else { begin as i64 + last };
                    keys.extend((begin..=last as usize).step_by(step as usize).map(|at| words[at]));
                }
                Find::Counted => {
                    let count: usize = words[begin].parse().unwrap();
                    keys.extend(&words[begin + 1..=begin + count]);
                }
                Find::Unknown => {}
            }
        }
        keys
    }

    #[test]
    fn clients_find_the_keys_that_the_server_finds() {
        const REQUESTS: &[&str] = &[
            "get k",
            "set k v",
            "mset k v l w",
            "mget k l m",
            "rename k l",
            "copy k l",
            "move k 1",
            "lmove k l LEFT LEFT",
            "smove k l m",
            "zrangestore k l 0 1",
            "lcs k l",
            "sunionstore k l m",
            "sinter k l",
            "bitop AND k l m",
            "zunionstore k 2 l m WEIGHTS 1 2",
            "zunion 2 k l",
            "lmpop 2 k l LEFT",
            "sort k ALPHA",
            "watch k l",
            "object encoding k",
            "memory usage k",
            "ping",
        ];
        for request in REQUESTS {
            let words: Vec<&str> = request.split(' ').collect();
            let command = OwnedCommand::of(&words);
            let args = command.as_command();
            let (_, spec) = table().find(words[0].as_bytes()).unwrap();
            let specs = match spec.subcommand(&args) {
                Some(part) => of_part(spec, part),
                None => of_command(spec),
            };
            let keys: Vec<&[u8]> = spec.keys.of(&args).collect();
            let told: Vec<&[u8]> = found(&specs, &words).into_iter().map(str::as_bytes).collect();
            assert_eq!(told, keys, "{request}");
        }
        for spec in table().all() {
            let has_keys = !matches!(spec.keys, Keys::None | Keys::AfterSubcommand);
            assert_eq!(!of_command(spec).is_empty(), has_keys, "{}", spec.name);
        }
    }
}
