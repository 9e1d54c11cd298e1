//! What clients make of the arguments is the line that documentation shows.

use super::*;
use crate::command::{key_specs, table};
use terrace_resp::{Limits, Protocol, Reply, ReplyParser, ReplyStep};

/// As `redis-cli` shows arguments, but with the blanks and brackets of our lines.
fn shown(arguments: &[Argument]) -> String {
    arguments.iter().map(shown_one).collect::<Vec<_>>().join(" ")
}

fn shown_one(argument: &Argument) -> String {
    let inner = match &argument.kind {
        Kind::Value => argument.name.clone(),
        Kind::Token => String::new(),
        Kind::OneOf(ways) => ways.iter().map(shown_one).collect::<Vec<_>>().join("|"),
        Kind::Block(parts) => shown(parts),
    };
    let token = argument.token.clone().unwrap_or_default();
    let whole = format!("{token} {inner}").trim().to_string();
    let is_choice = matches!(argument.kind, Kind::OneOf(_));
    let again = if argument.repeats_token { &whole } else { &inner };
    match (argument.is_optional, argument.is_multiple) {
        (false, false) => whole,
        (false, true) => format!("{whole} [{again} ...]"),
        (true, false) => format!("[{whole}]"),
        (true, true) if argument.repeats_token => format!("[{whole} [{again} ...]]"),
        (true, true) if is_choice => format!("[{whole}] ..."),
        (true, true) => format!("[{whole} ...]"),
    }
}

#[test]
fn every_command_has_the_arguments_of_its_line() {
    for spec in table().all() {
        if spec.subcommands().is_empty() && spec.name != "debug" {
            let line = spec.arguments.replace(" | ", "|");
            assert_eq!(shown(&of_command(spec)), line, "{}", spec.name);
        }
        for part in spec.subcommands() {
            let name = part.name.to_uppercase();
            let mut forms = help::forms(spec);
            forms.retain(|form| form.split(' ').next() == Some(&name[..]));
            let rest = |form: &&str| form.split_once(' ').map_or("", |(_, rest)| rest).to_string();
            let line = forms.iter().map(rest).collect::<Vec<_>>().join("|");
            assert_eq!(shown(&of_part(spec, part)), line, "{} {name}", spec.name);
        }
    }
}

/// The reply about the arguments of a line, as names and values.
fn told(command: &str, key_specs: usize, line: &str) -> Vec<Reply<'static>> {
    let mut out = Vec::new();
    let reply = &mut ReplyWriter::new(&mut out, Protocol::Resp2);
    write(reply, command, key_specs, &of_line(line));
    let mut parser = ReplyParser::new(Limits::default());
    let ReplyStep::Frame(frame) = parser.next(&out).unwrap() else { panic!("it is not whole") };
    assert_eq!(frame.bytes().len(), out.len());
    match frame.decode().unwrap().into_owned() {
        Reply::Array(arguments) => arguments,
        other => panic!("{other:?}"),
    }
}

/// The names and values of an argument, without its flags and further arguments.
fn flat(argument: &Reply<'static>) -> String {
    let Reply::Array(pairs) = argument else { panic!("{argument:?}") };
    let text = |reply: &Reply<'static>| match reply {
        Reply::Bulk(text) | Reply::Simple(text) => String::from_utf8_lossy(text).into_owned(),
        Reply::Integer(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    let pairs = pairs.chunks_exact(2).filter(|pair| !matches!(&pair[1], Reply::Array(_)));
    pairs.map(|pair| format!("{}={}", text(&pair[0]), text(&pair[1]))).collect::<Vec<_>>().join(" ")
}

#[test]
fn arguments_have_types_tokens_and_the_specifications_of_their_keys() {
    let line = "destkey numkeys key [key ...] [WEIGHTS weight ...] [NX | XX]";
    let arguments = told("zunionstore", 2, line);
    let shown: Vec<String> = arguments.iter().map(flat).collect();
    assert_eq!(
        shown,
        [
            "name=destkey type=key key_spec_index=0",
            "name=numkeys type=integer",
            "name=key type=key key_spec_index=1",
            "name=weight type=double token=WEIGHTS",
            "name=nx_xx type=oneof",
        ]
    );
    // A token is that of each value behind it, but not of another token's.
    let arguments = told("client", 0, "[SKIPME yes|no] [EX seconds|PX milliseconds]");
    let shown: Vec<String> = arguments.iter().map(flat).collect();
    assert_eq!(
        shown,
        ["name=yes_no type=oneof token=SKIPME", "name=seconds_milliseconds type=oneof"]
    );
    // Without key specifications there are no keys.
    let arguments = told("cluster", 0, "key");
    assert_eq!(flat(&arguments[0]), "name=key type=string");
}

#[test]
fn every_key_of_a_command_has_a_specification() {
    for spec in table().all().iter().filter(|spec| spec.subcommands().is_empty()) {
        let count = key_specs::of_command(spec).len();
        let mut told = Told { command: spec.name, key_specs: count, keys: 0 };
        let mut out = Vec::new();
        let arguments = of_command(spec);
        write_list(&mut ReplyWriter::new(&mut out, Protocol::Resp3), &mut told, &arguments);
        // What SORT looks up by patterns has specifications, too, and is no argument.
        assert_eq!(told.keys > 0, count > 0, "{}", spec.name);
    }
}
