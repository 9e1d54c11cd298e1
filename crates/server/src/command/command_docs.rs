//! `COMMAND`: the table, told to clients.

use super::argument_docs::{self, Argument};
use super::arguments::allow_matches;
use super::help_texts::text_of;
use super::interruption::Interruption;
use super::key_specs;
use super::{Call, CommandSpec, Failure, Flags, Group, KeyUse, Keys, Outcome, Subcommand, table};
use crate::acl::Categories;
use crate::glob;
use terrace_resp::{Aggregate, OwnedCommand, ReplyWriter};

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "command",
    arity: -1,
    flags: Flags::SUBCOMMANDS,
    keys: Keys::None,
    group: Group::Server,
    arguments: "[COUNT | DOCS [name ...] | INFO [name ...] | \
                LIST [FILTERBY MODULE name|ACLCAT category|PATTERN pattern] | \
                GETKEYS command [arg ...] | GETKEYSANDFLAGS command [arg ...]]",
    summary: "Tells which commands there are.",
    complexity: "O(N) for N commands",
    since: "2.8.13",
    run: command,
}];

fn command(call: &mut Call<'_>) -> Outcome {
    let all = table().all();
    if call.count() == 1 {
        call.reply.array(all.len());
        all.iter().for_each(|spec| describe(&mut call.reply, spec));
        return Ok(());
    }
    match &call.arg(1).to_ascii_lowercase()[..] {
        b"count" if call.count() == 2 => call.reply.integer(all.len() as i64),
        b"info" if call.count() == 2 => {
            call.reply.array(all.len());
            all.iter().for_each(|spec| describe(&mut call.reply, spec));
        }
        b"info" => {
            call.reply.array(call.count() - 2);
            for name in call.args_from(2) {
                match (table().find(name), part_named(name)) {
                    (Some((_, spec)), _) => describe(&mut call.reply, spec),
                    (None, Some((spec, part))) => describe_part(&mut call.reply, spec, part),
                    (None, None) => call.reply.null(),
                }
            }
        }
        b"docs" => {
            let of_command = |spec: &&'static CommandSpec| (*spec, None);
            let named = |name: &[u8]| match table().find(name) {
                Some((_, spec)) => Some((spec, None)),
                None => documented(name).map(|(spec, part)| (spec, Some(part))),
            };
            let wanted: Vec<(&CommandSpec, Option<&Subcommand>)> = match call.count() {
                2 => all.iter().map(of_command).collect(),
                _ => call.args_from(2).filter_map(named).collect(),
            };
            call.reply.aggregate(Aggregate::Map, wanted.len());
            for (spec, part) in wanted {
                match part {
                    Some(part) => document_part(&mut call.reply, spec, part),
                    None => document(&mut call.reply, spec),
                }
            }
        }
        b"getkeys" => keys(call, false)?,
        b"getkeysandflags" => keys(call, true)?,
        // What is left is LIST.
        _ => list(call)?,
    }
    Ok(())
}

/// The subcommand that is named as `command|subcommand`.
fn part_named(name: &[u8]) -> Option<(&'static CommandSpec, &'static Subcommand)> {
    let bar = name.iter().position(|byte| *byte == b'|')?;
    let (_, spec) = table().find(&name[..bar])?;
    let named = |one: &&Subcommand| name[bar + 1..].eq_ignore_ascii_case(one.name.as_bytes());
    Some((spec, spec.subcommands().iter().find(named)?))
}

/// The same, if there is a text about it.
fn documented(name: &[u8]) -> Option<(&'static CommandSpec, &'static Subcommand)> {
    part_named(name).filter(|(spec, part)| summary_of(spec, part).is_some())
}

fn keys(call: &mut Call<'_>, with_flags: bool) -> Outcome {
    let arguments: Vec<&[u8]> = call.args_from(2).collect();
    let inner = OwnedCommand::of(&arguments);
    let inner = inner.as_command();
    let found = table().find(call.arg(2)).filter(|(_, spec)| spec.has_form(&inner));
    let Some((_, spec)) = found else {
        return Err(Failure::line("ERR Invalid command specified"));
    };
    let part_has_none = spec.subcommand(&inner).is_some_and(|one| !one.flags.has(Flags::READ));
    if spec.keys == Keys::None || part_has_none {
        return Err(Failure::line("ERR The command has no key arguments"));
    }
    if spec.check_form(&inner).is_err() {
        return Err(Failure::line("ERR Invalid number of arguments specified for command"));
    }
    let keys: Vec<(&[u8], KeyUse)> = spec.key_uses(&inner).collect();
    let counts = matches!(spec.keys, Keys::Counted | Keys::FirstAndCounted);
    if keys.len() <= usize::from(spec.keys == Keys::FirstAndCounted) && counts {
        return Err(Failure::line("ERR Invalid arguments specified for command"));
    }
    call.reply.array(keys.len());
    for (key, used) in keys {
        if with_flags {
            call.reply.array(2);
        }
        call.reply.bulk(key);
        if with_flags {
            call.reply.aggregate(Aggregate::Set, used.flags.len());
            used.flags.iter().for_each(|flag| call.reply.simple(flag));
        }
    }
    Ok(())
}

/// The names of all commands and subcommands, with their categories.
fn all_names() -> impl Iterator<Item = (String, Categories)> {
    table().all().iter().flat_map(|spec| {
        let parts = spec.subcommands().iter();
        let parts = parts.map(|one| (format!("{}|{}", spec.name, one.name), one.categories()));
        std::iter::once((spec.name.to_string(), spec.categories())).chain(parts)
    })
}

/// `COMMAND LIST [FILTERBY ACLCAT category | PATTERN pattern | MODULE name]`.
fn list(call: &mut Call<'_>) -> Outcome {
    if call.count() == 2 {
        let names: Vec<String> = all_names().map(|(name, _)| name).collect();
        call.reply.array(names.len());
        names.iter().for_each(|name| call.reply.bulk(name));
        return Ok(());
    }
    if call.count() != 5 || !call.arg(2).eq_ignore_ascii_case(b"filterby") {
        return Err(Failure::SYNTAX);
    }
    let wanted = call.arg(4);
    let names: Vec<String> = match &call.arg(3).to_ascii_lowercase()[..] {
        b"module" => Vec::new(),
        b"aclcat" => match Categories::named(&String::from_utf8_lossy(wanted)) {
            None => Vec::new(),
            Some(category) => {
                let all = all_names().filter(|(_, own)| own.intersects(category));
                all.map(|(name, _)| name).collect()
            }
        },
        b"pattern" => {
            let all: Vec<String> = all_names().map(|(name, _)| name).collect();
            allow_matches(call, wanted, all.iter().map(String::len).sum())?;
            let (wanted, interruption) = (wanted.to_ascii_lowercase(), Interruption::of(call));
            let goes_on = || !interruption.is_due();
            let matches = |name: &[u8]| goes_on() && glob::matches_while(&wanted, name, goes_on);
            let found = all.into_iter().filter(|name| matches(name.as_bytes())).collect();
            interruption.check()?;
            found
        }
        _ => return Err(Failure::SYNTAX),
    };
    call.reply.array(names.len());
    names.iter().for_each(|name| call.reply.bulk(name));
    Ok(())
}

/// One command as `COMMAND INFO` gives it.
fn describe(reply: &mut ReplyWriter<'_>, spec: &CommandSpec) {
    let (first, last, step) = spec.keys.positions();
    reply.array(10);
    reply.bulk(spec.name);
    reply.integer(i64::from(spec.arity));
    // What is made of others has none of its own.
    let flags = if spec.subcommands().is_empty() { spec.flags } else { Flags::NONE };
    let flags = flag_names(flags);
    reply.aggregate(Aggregate::Set, flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    reply.integer(first);
    reply.integer(last);
    reply.integer(step);
    let categories: Vec<&str> = spec.categories().names().collect();
    reply.aggregate(Aggregate::Set, categories.len());
    categories.iter().for_each(|name| reply.simple(format!("@{name}")));
    // There are no tips.
    reply.aggregate(Aggregate::Set, 0);
    key_specs::write(reply, &key_specs::of_command(spec));
    match spec.subcommands().len() {
        0 => reply.aggregate(Aggregate::Set, 0),
        count => reply.array(count),
    }
    spec.subcommands().iter().for_each(|one| describe_part(reply, spec, one));
}

/// One subcommand as `COMMAND INFO` gives it.
fn describe_part(reply: &mut ReplyWriter<'_>, spec: &CommandSpec, one: &Subcommand) {
    reply.array(10);
    reply.bulk(format!("{}|{}", spec.name, one.name));
    reply.integer(i64::from(one.arity));
    let flags = flag_names(one.flags);
    reply.aggregate(Aggregate::Set, flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    let (first, last, step) = if one.flags.has(Flags::READ) { (2, 2, 1) } else { (0, 0, 0) };
    [first, last, step].iter().for_each(|place| reply.integer(*place));
    let categories: Vec<&str> = one.categories().names().collect();
    reply.aggregate(Aggregate::Set, categories.len());
    categories.iter().for_each(|name| reply.simple(format!("@{name}")));
    reply.aggregate(Aggregate::Set, 0);
    key_specs::write(reply, &key_specs::of_part(spec, one));
    reply.aggregate(Aggregate::Set, 0);
}

fn flag_names(flags: Flags) -> Vec<&'static str> {
    let names = [
        (Flags::WRITE, "write"),
        (Flags::READ, "readonly"),
        (Flags::FAST, "fast"),
        (Flags::ADMIN, "admin"),
        (Flags::NO_AUTH, "no_auth"),
        (Flags::NO_MULTI, "no_multi"),
        (Flags::MOVABLE_KEYS, "movablekeys"),
    ];
    names.iter().filter(|(flag, _)| flags.has(*flag)).map(|(_, name)| *name).collect()
}

/// One command as `COMMAND DOCS` gives it: its name and a map.
fn document(reply: &mut ReplyWriter<'_>, spec: &CommandSpec) {
    let arguments = argument_docs::of_command(spec);
    let has_text = |part: &&Subcommand| summary_of(spec, part).is_some();
    let parts: Vec<&Subcommand> = spec.subcommands().iter().filter(has_text).collect();
    reply.bulk(spec.name);
    let pairs = [
        ("summary", spec.summary.trim_end_matches('.')),
        ("since", spec.since),
        ("group", spec.group.name()),
        ("complexity", spec.complexity),
    ];
    let further = usize::from(!arguments.is_empty()) + usize::from(!parts.is_empty());
    reply.aggregate(Aggregate::Map, pairs.len() + further);
    write_pairs(reply, &pairs);
    write_arguments(reply, spec, key_specs::of_command(spec).len(), &arguments);
    if !parts.is_empty() {
        reply.bulk("subcommands");
        reply.aggregate(Aggregate::Map, parts.len());
        parts.iter().for_each(|part| document_part(reply, spec, part));
    }
}

/// The same of a subcommand. Since which version there is one is not noted.
fn document_part(reply: &mut ReplyWriter<'_>, spec: &CommandSpec, part: &Subcommand) {
    let arguments = argument_docs::of_part(spec, part);
    reply.bulk(format!("{}|{}", spec.name, part.name));
    let pairs = [
        ("summary", summary_of(spec, part).unwrap_or_default().trim_end_matches('.')),
        ("group", spec.group.name()),
        ("complexity", spec.complexity),
    ];
    reply.aggregate(Aggregate::Map, pairs.len() + usize::from(!arguments.is_empty()));
    write_pairs(reply, &pairs);
    write_arguments(reply, spec, key_specs::of_part(spec, part).len(), &arguments);
}

fn write_pairs(reply: &mut ReplyWriter<'_>, pairs: &[(&str, &str)]) {
    for (name, value) in pairs {
        reply.bulk(name);
        reply.bulk(value);
    }
}

/// Nothing where there are none.
fn write_arguments(
    reply: &mut ReplyWriter<'_>,
    spec: &CommandSpec,
    key_specs: usize,
    arguments: &[Argument],
) {
    if !arguments.is_empty() {
        reply.bulk("arguments");
        argument_docs::write(reply, spec.name, key_specs, arguments);
    }
}

/// What a subcommand does, as `HELP` says.
fn summary_of(spec: &CommandSpec, part: &Subcommand) -> Option<&'static str> {
    match part.name {
        "help" => Some("Prints the subcommands."),
        name => text_of(spec.name, &name.to_ascii_uppercase()),
    }
}

/// The table of `docs/server.md`, in Markdown.
pub fn documentation() -> String {
    use std::fmt::Write;
    let mut text = String::new();
    let mut groups: Vec<Group> = table().all().iter().map(|spec| spec.group).collect();
    groups.sort_unstable();
    groups.dedup();
    for group in groups {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "\n### {}\n\n| command | what it does | cost | since |\n|---|---|---|---|",
            group.title()
        );
        let mut rows: Vec<_> = table().all().iter().filter(|spec| spec.group == group).collect();
        rows.sort_unstable_by_key(|spec| spec.name);
        for spec in rows {
            let arguments = spec.arguments.replace('|', "\\|");
            let shown = format!("{} {arguments}", spec.name.to_uppercase());
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} |",
                shown.trim_end(),
                spec.summary,
                spec.complexity.replace('|', "\\|"),
                spec.since
            );
        }
    }
    let missing: Vec<String> = super::REDIS_NAMES
        .iter()
        .filter(|name| table().find(name.as_bytes()).is_none())
        .map(|name| format!("`{}`", name.to_uppercase()))
        .collect();
    let _ = write!(
        text,
        "\n### What there is not\n\nOf the {} commands of Redis 7.0 these {} are missing: {}.\n",
        super::REDIS_NAMES.len(),
        missing.len(),
        missing.join(", ")
    );
    text
}
