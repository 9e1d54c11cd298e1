//! The arguments of a command as `COMMAND DOCS` has them, made of the line that documentation shows.
//!
//! ```text
//! key [key ...]             one or more            [WEIGHTS weight ...]             a token, and one or more behind it
//! LEFT | RIGHT              one of these           [GET pattern [GET pattern ...]]  each with the token
//! [EX seconds | KEEPTTL]    one of these, or none  [AGGREGATE SUM | MIN]            a token, and one of these behind it
//! [GET key | SET key] ...   any number of these    [SKIPME yes | no]               the same with values
//! ```
//! Words in capitals are tokens, the others are values. Out of brackets a bar stands between single words.

use super::{CommandSpec, Subcommand, help};
use std::str::SplitWhitespace;
use terrace_resp::{Aggregate, ReplyWriter};

/// A part of a line.
#[derive(Debug, PartialEq, Eq)]
enum Item<'a> {
    Word(&'a str),
    Bar,
    Dots,
    /// What stands in brackets.
    Group(Vec<Item<'a>>),
}

/// What an argument is.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Value,
    /// Its token alone.
    Token,
    OneOf(Vec<Argument>),
    /// All of these, in this order.
    Block(Vec<Argument>),
}

/// One argument, or several that belong together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Argument {
    name: String,
    /// The word before it.
    token: Option<String>,
    kind: Kind,
    is_optional: bool,
    is_multiple: bool,
    /// The token stands before each of several.
    repeats_token: bool,
}

/// Those of a command; one that is made of others has none.
pub(super) fn of_command(spec: &CommandSpec) -> Vec<Argument> {
    // DEBUG is made of others, which have no rows.
    match spec.subcommands().is_empty() && spec.name != "debug" {
        true => of_line(spec.arguments),
        false => Vec::new(),
    }
}

/// Those of a subcommand. It may have several forms.
pub(super) fn of_part(spec: &CommandSpec, part: &Subcommand) -> Vec<Argument> {
    let of_form = |form: &str| {
        let (word, rest) = form.split_once(' ').unwrap_or((form, ""));
        word.eq_ignore_ascii_case(part.name).then(|| of_line(rest))
    };
    let mut forms: Vec<Vec<Argument>> = help::forms(spec).into_iter().filter_map(of_form).collect();
    match forms.len() {
        0 | 1 => forms.pop().unwrap_or_default(),
        _ => vec![one_of(forms.into_iter().map(together).collect())],
    }
}

fn of_line(line: &str) -> Vec<Argument> {
    let spaced = line.replace('[', " [ ").replace(']', " ] ").replace('|', " | ");
    sequence(&items(&mut spaced.split_whitespace()))
}

/// Up to the end of the line or of the brackets.
fn items<'a>(words: &mut SplitWhitespace<'a>) -> Vec<Item<'a>> {
    let mut items = Vec::new();
    while let Some(word) = words.next() {
        items.push(match word {
            "]" => break,
            "[" => Item::Group(self::items(words)),
            "|" => Item::Bar,
            "..." => Item::Dots,
            word => Item::Word(word),
        });
    }
    items
}

/// Arguments that follow each other.
fn sequence(items: &[Item<'_>]) -> Vec<Argument> {
    // Each with the place of its first item.
    let mut made: Vec<(usize, Argument)> = Vec::new();
    let mut at = 0;
    while let Some(item) = items.get(at) {
        let begun = at;
        at += 1;
        match item {
            Item::Word(word) => {
                let (argument, taken) = worded(word, &items[at..]);
                at += taken;
                made.push((begun, argument));
            }
            Item::Group(inner) => {
                let argument = repeated(inner, &items[..begun], &mut made);
                made.push(argument.unwrap_or_else(|| (begun, group(inner))));
            }
            Item::Dots => {
                if let Some((_, last)) = made.last_mut() {
                    last.is_multiple = true;
                }
            }
            Item::Bar => {}
        }
    }
    made.into_iter().map(|(_, argument)| argument).collect()
}

/// What begins with a word, and how many further items it takes.
fn worded(word: &str, rest: &[Item<'_>]) -> (Argument, usize) {
    let mut words = vec![single(word)];
    let mut taken = 0;
    while let Some([Item::Bar, Item::Word(next)]) = rest.get(taken..taken + 2) {
        words.push(single(next));
        taken += 2;
    }
    if taken > 0 {
        return (one_of(words), taken);
    }
    if !is_token(word) {
        return (single(word), 0);
    }
    let value_of = |item: &Item<'_>| match item {
        Item::Word(word) if !is_token(word) => Some(single(word)),
        _ => None,
    };
    let values: Vec<Argument> = rest.iter().map_while(value_of).collect();
    match values.len() {
        0 => (single(word), 0),
        count => (Argument { token: Some(word.to_string()), ..together(values) }, count),
    }
}

/// The argument that `[x ...]` behind `x` makes of those of that, and where `x` begins; `None` if the brackets are others.
fn repeated(
    inner: &[Item<'_>],
    before: &[Item<'_>],
    made: &mut Vec<(usize, Argument)>,
) -> Option<(usize, Argument)> {
    let (Item::Dots, again) = inner.split_last()? else { return None };
    let start = before.len().checked_sub(again.len())?;
    if before[start..] != *again {
        return None;
    }
    if let Some(from) = made.iter().position(|(begun, _)| *begun == start) {
        let all = together(made.drain(from..).map(|(_, argument)| argument).collect());
        let repeats_token = all.token.is_some();
        return Some((start, Argument { is_multiple: true, repeats_token, ..all }));
    }
    // Behind a token, which stands once.
    let is_behind =
        |(begun, last): &mut (usize, Argument)| *begun + 1 == start && last.kind == Kind::Value;
    let (begun, last) = made.pop_if(is_behind)?;
    Some((begun, Argument { is_multiple: true, ..last }))
}

/// What stands in brackets.
fn group(inner: &[Item<'_>]) -> Argument {
    let ways: Vec<&[Item<'_>]> = inner.split(|item| *item == Item::Bar).collect();
    let is_value = |way: &&[Item<'_>]| matches!(way, [Item::Word(word)] if !is_token(word));
    let is_before_each = |next: &str, others: &[&[Item<'_>]]| {
        !others.is_empty() && (is_token(next) || others.iter().all(is_value))
    };
    let token = match ways.as_slice() {
        [[Item::Word(token), Item::Word(next), ..], others @ ..]
            if is_token(token) && is_before_each(next, others) =>
        {
            Some((*token).to_string())
        }
        _ => None,
    };
    let argument_of = |(at, way): (usize, &&[Item<'_>])| {
        let without = usize::from(at == 0 && token.is_some());
        together(sequence(&way[without..]))
    };
    let mut arguments: Vec<Argument> = ways.iter().enumerate().map(argument_of).collect();
    let argument = match arguments.len() {
        1 => arguments.remove(0),
        _ => Argument { token, ..one_of(arguments) },
    };
    Argument { is_optional: true, ..argument }
}

fn is_token(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
}

fn single(word: &str) -> Argument {
    let (token, kind) = match is_token(word) {
        true => (Some(word.to_string()), Kind::Token),
        false => (None, Kind::Value),
    };
    let name = word.to_ascii_lowercase();
    let (is_optional, is_multiple, repeats_token) = (false, false, false);
    Argument { name, token, kind, is_optional, is_multiple, repeats_token }
}

fn one_of(arguments: Vec<Argument>) -> Argument {
    let name = names(&arguments);
    Argument { kind: Kind::OneOf(arguments), ..single(&name) }
}

/// The only one, or a block.
fn together(mut arguments: Vec<Argument>) -> Argument {
    if arguments.len() == 1 {
        return arguments.remove(0);
    }
    let name = names(&arguments);
    Argument { kind: Kind::Block(arguments), ..single(&name) }
}

fn names(arguments: &[Argument]) -> String {
    arguments.iter().map(|argument| &argument.name[..]).collect::<Vec<_>>().join("_")
}

/// Writes arguments; `key_specs` is how many key specifications what they are of has.
pub(super) fn write(
    reply: &mut ReplyWriter<'_>,
    command: &str,
    key_specs: usize,
    arguments: &[Argument],
) {
    write_list(reply, &mut Told { command, key_specs, keys: 0 }, arguments);
}

/// The command, and what was written of it so far.
struct Told<'a> {
    command: &'a str,
    key_specs: usize,
    /// Arguments that are keys.
    keys: usize,
}

impl Told<'_> {
    /// The key specification of an argument that is a key.
    fn key_spec_of(&mut self, argument: &Argument) -> Option<i64> {
        const KEYS: [&str; 9] =
            ["key", "key1", "key2", "newkey", "destkey", "source", "destination", "src", "dst"];
        let last = self.key_specs.checked_sub(1)?;
        if argument.kind != Kind::Value || !KEYS.contains(&&argument.name[..]) {
            return None;
        }
        let is_stored = argument.token.as_deref() == Some("STORE");
        let spec = if is_stored { last } else { self.keys.min(last) };
        self.keys += 1;
        Some(spec as i64)
    }
}

fn write_list(reply: &mut ReplyWriter<'_>, told: &mut Told<'_>, arguments: &[Argument]) {
    reply.array(arguments.len());
    arguments.iter().for_each(|argument| write_one(reply, told, argument));
}

fn write_one(reply: &mut ReplyWriter<'_>, told: &mut Told<'_>, argument: &Argument) {
    let key_spec = told.key_spec_of(argument);
    let (kind, parts) = match &argument.kind {
        Kind::Value if key_spec.is_some() => ("key", None),
        Kind::Value => (type_of(told.command, &argument.name), None),
        Kind::Token => ("pure-token", None),
        Kind::OneOf(parts) => ("oneof", Some(parts)),
        Kind::Block(parts) => ("block", Some(parts)),
    };
    let flags = [
        (argument.is_optional, "optional"),
        (argument.is_multiple, "multiple"),
        (argument.repeats_token, "multiple_token"),
    ];
    let flags: Vec<&str> =
        flags.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
    let has = [key_spec.is_some(), argument.token.is_some(), !flags.is_empty(), parts.is_some()];
    reply.aggregate(Aggregate::Map, 2 + has.iter().filter(|has| **has).count());
    reply.bulk("name");
    reply.bulk(&argument.name);
    reply.bulk("type");
    reply.bulk(kind);
    if let Some(number) = key_spec {
        reply.bulk("key_spec_index");
        reply.integer(number);
    }
    if let Some(token) = &argument.token {
        reply.bulk("token");
        reply.bulk(token);
    }
    if !flags.is_empty() {
        reply.bulk("flags");
        reply.aggregate(Aggregate::Set, flags.len());
        flags.iter().for_each(|flag| reply.simple(flag));
    }
    if let Some(parts) = parts {
        reply.bulk("arguments");
        write_list(reply, told, parts);
    }
}

/// The type of a value that is no key, by its name.
fn type_of(command: &str, name: &str) -> &'static str {
    match name {
        "first" | "end" if command == "tscan" => "string",
        "start" | "stop" if command == "zrange" => "string",
        "min" | "max" if command.ends_with("byscore") || command == "zcount" => "double",
        "increment" if command.ends_with("float") || command == "zincrby" => "double",
        "score" | "weight" => "double",
        "unix-seconds" | "unix-milliseconds" => "unix-time",
        "pattern" => "pattern",
        "bit" | "bits" | "count" | "cursor" | "database" | "decrement" | "end" | "first"
        | "increment" | "index" | "last" | "length" | "limit" | "milliseconds" | "numkeys"
        | "offset" | "protover" | "rank" | "seconds" | "slot" | "start" | "stop" | "version" => {
            "integer"
        }
        _ => "string",
    }
}

#[cfg(test)]
mod tests;
