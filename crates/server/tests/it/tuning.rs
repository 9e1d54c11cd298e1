//! Options of Redis that do nothing here: accepted, checked, remembered; what cannot change may be set to what it is.

use crate::client::{bulk, error, ok};
use crate::served::Served;
use std::sync::Arc;
use terrace_server::config::{Config, Kind, OptionSpec, When, all_options};

/// Those that can be given another value.
fn tunable() -> impl Iterator<Item = &'static OptionSpec> {
    let is_fixed = |option: &&OptionSpec| matches!(option.kind, Kind::Only { .. });
    all_options()
        .filter(|option| option.is_without_effect() && option.when == When::Live)
        .filter(move |option| !is_fixed(option))
}

/// Another value than the default.
fn another(option: &OptionSpec) -> &'static str {
    match option.kind {
        Kind::YesNo if option.default == "yes" => "no",
        Kind::YesNo => "yes",
        Kind::Choice(names) => names.iter().find(|name| **name != option.default).unwrap(),
        Kind::Percentiles => "50 90.5",
        Kind::Text => "another",
        _ => "7",
    }
}

#[test]
fn options_without_effect_are_checked_and_remembered() {
    let served = Served::with(&[]);
    let mut client = served.client();
    assert!(tunable().count() > 60);
    for option in tunable() {
        let name = option.name;
        assert_eq!(client.option(name), option.default, "{name}");
        for nonsense in ["\0", "\u{e9}\n"] {
            let refused = error(&client.call(&["CONFIG", "SET", name, nonsense]));
            let begin = format!("ERR CONFIG SET failed (possibly related to argument '{name}') - ");
            assert!(refused.starts_with(&begin), "{refused}");
        }
        let last_name = option.names().last().unwrap();
        assert_eq!(client.call(&["CONFIG", "SET", last_name, another(option)]), ok(), "{name}");
        assert!(option.names().all(|name| client.option(name) == another(option)), "{name}");
        assert_eq!(client.call(&["CONFIG", "SET", name, option.default]), ok(), "{name}");
        assert_eq!(client.option(last_name), option.default, "{name}");
    }
    // All at once, as a test suite of Redis may.
    let words: Vec<&str> = tunable().flat_map(|option| [option.name, another(option)]).collect();
    assert_eq!(client.call(&[&["CONFIG", "SET"], &words[..]].concat()), ok());
    assert_eq!(client.option("maxmemory-clients"), "7");
    assert_eq!(client.say("CONFIG SET maxmemory-clients 5%"), ok());
    assert_eq!(client.option("maxmemory-clients"), "5%");
}

#[test]
fn what_cannot_change_may_be_set_to_what_it_is() {
    let served = Served::with(&[]);
    let mut client = served.client();
    for option in all_options().filter(|option| option.is_without_effect()) {
        let Kind::Only { value, .. } = option.kind else { continue };
        assert_eq!(client.option(option.name), value);
        assert_eq!(client.call(&["CONFIG", "SET", option.name, value]), ok(), "{}", option.name);
        error(&client.call(&["CONFIG", "SET", option.name, "x"]));
        assert_eq!(client.option(option.name), value);
    }
    let refused = error(&client.say("CONFIG SET notify-keyspace-events KEA"));
    assert!(refused.ends_with("there are no notifications of keys"), "{refused}");
    let refused = error(&client.say("CONFIG SET dbfilename x.rdb"));
    assert!(refused.ends_with("can't set protected config"), "{refused}");
    let dir = client.option("dir");
    assert_eq!(client.call(&["CONFIG", "SET", "dir", &dir, "timeout", "7"]), ok());
    assert_eq!(client.option("timeout"), "7");
}

#[test]
fn refusals_are_those_of_redis() {
    let served = Served::with(&[]);
    let mut client = served.client();
    for (request, why) in [
        (
            "appendfsync bogus",
            "'appendfsync') - argument(s) must be one of the following: everysec, always, no",
        ),
        ("hz x", "'hz') - argument couldn't be parsed into an integer"),
        ("timeout x", "'timeout') - argument couldn't be parsed into an integer"),
        (
            "maxmemory-samples 65",
            "'maxmemory-samples') - argument must be between 1 and 64 inclusive",
        ),
        ("maxmemory x", "'maxmemory') - argument must be a memory value"),
        ("activedefrag x", "'activedefrag') - argument must be 'yes' or 'no'"),
        (
            "client-query-buffer-limit 1mb",
            "'client-query-buffer-limit') - an argument cannot be longer than client-query-buffer-limit",
        ),
        ("dir /tmp", "'dir') - can't set protected config"),
    ] {
        let refused = error(&client.say(&format!("CONFIG SET {request}")));
        let wanted = format!("ERR CONFIG SET failed (possibly related to argument {why}");
        assert_eq!(refused, wanted, "{request}");
    }
    let limit = "slave 1mb 2mb 3";
    assert_eq!(client.call(&["CONFIG", "SET", "client-output-buffer-limit", limit]), ok());
    let shown = client.option("client-output-buffer-limit");
    assert!(shown.contains("slave 1048576 2097152 3 pubsub"), "{shown}");
    // No limit in Redis, and the default here.
    assert_eq!(client.say("CONFIG SET maxmemory 0"), ok());
    assert_eq!(client.option("maxmemory"), (512 << 20).to_string());
}

#[test]
fn a_file_and_flags_with_options_of_redis_start_and_one_line_says_so() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let path = dir.path().join("terrace.toml");
    let text = "hz = 50\nappendonly = true\nlist-max-ziplist-size = -1\nmaxmemory-clients = \"5%\"\n\
                dbfilename = \"dump.rdb\"\ndaemonize = \"no\"\nreplicaof = \"\"\n";
    std::fs::write(&path, text).unwrap();
    let flags = [("activedefrag".to_string(), "yes".to_string())];
    let config = Config::load(Some(&path), [], flags.clone()).unwrap();
    let [warning] = config.warnings() else { panic!("{:?}", config.warnings()) };
    let all = ["hz", "appendonly", "list-max-listpack-size", "activedefrag"];
    assert!(all.iter().all(|name| warning.contains(name)), "{warning}");
    assert!(Config::load(None, [], []).unwrap().warnings().is_empty());
    let served = Served::of_file(dir, Some(&path), &[("activedefrag", "yes")]);
    let mut client = served.client();
    for (name, value) in [("hz", "50"), ("list-max-listpack-size", "-1"), ("activedefrag", "yes")] {
        assert_eq!(client.option(name), value);
    }
    assert_eq!(client.say("CONFIG SET lazyfree-lazy-expire yes hz 20"), ok());
    assert_eq!(client.say("CONFIG REWRITE"), ok());
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(written.starts_with("hz = 20\n"), "{written}");
    assert!(written.contains("lazyfree-lazy-expire = true"), "{written}");
    assert_eq!(client.call(&["ECHO", "there"]), bulk("there"));
    for (text, part) in [
        ("appendonly = false\n", "it must be yes"),
        ("daemonize = true\n", "it must be no"),
        ("replicaof = \"a 1\"\n", "there is no replication"),
        ("hz = \"x\"\n", "whole number"),
    ] {
        std::fs::write(&path, text).unwrap();
        let refused = Config::load(Some(&path), [], []).unwrap_err().to_string();
        assert!(refused.contains(part), "{text}: {refused}");
    }
}
