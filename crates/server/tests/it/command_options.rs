//! Options of commands that several commands read with the same code.

use crate::client::{Client, array, bulk, error, field, int, ok, shown, text};
use crate::served::Served;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::Arc;
use terrace_base::ManualClock;
use terrace_resp::Reply;

fn refused(client: &mut Client, request: &str, expected: &str) {
    assert_eq!(error(&client.say(request)), expected, "{request}");
}

#[test]
fn a_limit_that_limits_nothing_is_allowed_with_ranks() {
    let served = Served::with(&[]);
    let mut client = served.client();
    assert_eq!(client.say("ZADD z 1 a 2 b 3 c"), int(3));
    let all = array(["a", "b", "c"].map(bulk));
    assert_eq!(client.say("ZRANGE z 0 -1 LIMIT 0 -1"), all);
    // Its offset is ignored.
    assert_eq!(client.say("ZRANGE z 0 -1 LIMIT 2 -1"), all);
    assert_eq!(client.say("ZRANGE z 0 0 REV LIMIT -5 -1"), array([bulk("c")]));
    assert_eq!(client.say("ZRANGESTORE y z 1 2 LIMIT 1 -1"), int(2));
    for limit in ["0 0", "0 -2", "0 1"] {
        let refused = error(&client.say(&format!("ZRANGE z 0 -1 LIMIT {limit}")));
        assert!(refused.starts_with("ERR syntax error, LIMIT is only"), "{limit}: {refused}");
    }
    let ends = "ERR value is not an integer or out of range";
    refused(&mut client, "ZRANGE z 0 x LIMIT 0 -1", ends);
}

#[test]
fn a_key_is_given_one_expiry_or_a_word_instead() {
    // Its clock stands: all of a time is left, however long the test takes.
    let (served, _clock) = Served::with_clock(&[]);
    let mut client = served.client();
    let syntax = "ERR syntax error";
    for options in [
        "EX",
        "EX 1 PX 1",
        "EX 1 EXAT 1",
        "KEEPTTL EX 1",
        "EX 1 KEEPTTL",
        "PERSIST",
        "NX XX",
        "KEEPTTL PXAT",
    ] {
        refused(&mut client, &format!("SET k v {options}"), syntax);
    }
    for options in ["EX", "PX 1 EX 1", "PERSIST EX 1", "EX 1 PERSIST", "KEEPTTL", "PERSIST GET"] {
        refused(&mut client, &format!("GETEX k {options}"), syntax);
    }
    refused(&mut client, "SET k v EX 0", "ERR invalid expire time in 'set' command");
    refused(&mut client, "SET k v EX x", "ERR value is not an integer or out of range");
    // The last time holds.
    assert_eq!(client.say("SET k v ex 1000 Ex 5000"), ok());
    assert_eq!(client.say("TTL k"), int(5000));
    assert_eq!(client.say("SET k w KEEPTTL keepttl XX"), ok());
    assert_eq!(client.say("TTL k"), int(5000));
    assert_eq!(client.say("GETEX k"), bulk("w"));
    assert_eq!(client.say("TTL k"), int(5000));
    assert_eq!(client.say("GETEX k PXAT 99999999999999 PXAT 88888888888888"), bulk("w"));
    assert_eq!(client.say("PEXPIRETIME k"), int(88_888_888_888_888));
    refused(&mut client, "GETEX k EX -1", "ERR invalid expire time in 'getex' command");
    assert_eq!(client.say("GETEX none EX -1"), Reply::Null);
    assert_eq!(client.say("GETEX k PERSIST persist"), bulk("w"));
    assert_eq!(client.say("TTL k"), int(-1));
    assert_eq!(client.say("SET k v PX 100000"), ok());
    assert_eq!(client.say("SET k v"), ok());
    assert_eq!(client.say("TTL k"), int(-1));
}

#[test]
fn seconds_are_the_nearest_ones_also_of_the_latest_time() {
    let served = Served::with(&[]);
    let mut client = served.client();
    for (at_ms, seconds) in [
        (99_999_999_999_499, 99_999_999_999),
        (99_999_999_999_500, 100_000_000_000),
        (i64::MAX - 308, 9_223_372_036_854_775),
        (i64::MAX - 307, 9_223_372_036_854_776),
        (i64::MAX, 9_223_372_036_854_776),
    ] {
        assert_eq!(client.say(&format!("SET k v PXAT {at_ms}")), ok());
        assert_eq!(client.say("EXPIRETIME k"), int(seconds), "{at_ms}");
        assert_eq!(client.say("PEXPIRETIME k"), int(at_ms));
    }
}

#[test]
fn scans_show_a_cursor_and_what_matches() {
    let served = Served::with(&[]);
    let mut client = served.client();
    client.pipeline(&[
        "HSET h a 1 b 2 ab 3",
        "SADD s a b ab",
        "ZADD z 1 a 2.5 b 3 ab",
        "SET a x",
        "RPUSH al x",
    ]);
    let page = |items: &[&str]| array([bulk("0"), array(items.iter().map(|item| bulk(item)))]);
    for request in ["HSCAN none 0", "SSCAN none 0", "ZSCAN none 0", "SCAN 0 MATCH nothing*"] {
        assert_eq!(client.say(request), page(&[]), "{request}");
    }
    assert_eq!(client.say("HSCAN h 0 match b"), page(&["b", "2"]));
    assert_eq!(client.say("SSCAN s 0 MATCH b COUNT 100"), page(&["b"]));
    assert_eq!(client.say("ZSCAN z 0 MATCH b"), page(&["b", "2.5"]));
    assert_eq!(client.say("HSCAN h 0 MATCH x*"), page(&[]));
    assert_eq!(client.say("SCAN 0 MATCH a* TYPE string"), page(&["a"]));
    assert_eq!(client.say("SCAN 0 TYPE list COUNT 1000"), page(&["al"]));
    assert_eq!(client.say("SCAN 0 TYPE no-type"), page(&[]));
    let Reply::Array(both) = client.say("SCAN 0 MATCH a*") else { panic!("no page") };
    let Reply::Array(keys) = &both[1] else { panic!("no keys") };
    let mut keys: Vec<String> = keys.iter().map(text).collect();
    keys.sort();
    assert_eq!(keys, ["a", "al"]);
    for scan in ["SCAN 0", "HSCAN h 0", "SSCAN s 0", "ZSCAN z 0"] {
        for options in ["COUNT 0", "COUNT", "MATCH", "FOO 1"] {
            refused(&mut client, &format!("{scan} {options}"), "ERR syntax error");
        }
        let number = "ERR value is not an integer or out of range";
        refused(&mut client, &format!("{scan} COUNT x"), number);
    }
    refused(&mut client, "HSCAN h 0 TYPE hash", "ERR syntax error");
    refused(&mut client, "SCAN x", "ERR invalid cursor");
}

#[test]
fn a_subcommand_that_there_is_not_is_named() {
    let served = Served::with(&[]);
    let mut client = served.client();
    for command in ["CONFIG", "MEMORY", "SLOWLOG", "LATENCY", "ACL", "COMMAND", "CLIENT"] {
        let text = format!("ERR unknown subcommand 'Foo'. Try {command} HELP.");
        refused(&mut client, &format!("{command} Foo"), &text);
    }
    let few = "ERR wrong number of arguments for 'memory|usage' command";
    refused(&mut client, "MEMORY Usage", few);
    let many = "ERR unknown subcommand or wrong number of arguments for 'geT'. Try SLOWLOG HELP.";
    refused(&mut client, "SLOWLOG geT 1 2", many);
}

/// Against a model that has all sources at hand, also those that are named twice, are not there, or are the target.
#[test]
fn bits_of_several_strings_are_combined() {
    let served = Served::with(&[]);
    let mut client = served.client();
    let mut words = 7_u64;
    let mut below = |end: usize| {
        words =
            words.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (words >> 33) as usize % end
    };
    for round in 0..300 {
        let mut values: Vec<Vec<u8>> = Vec::new();
        for at in 0..4 {
            let length = if below(4) == 0 { 0 } else { below(20) };
            values.push((0..length).map(|_| below(256) as u8).collect());
            client.say(&format!("DEL k{at}"));
            if !values[at].is_empty() {
                client.call(&[&b"SET"[..], format!("k{at}").as_bytes(), &values[at]]);
            }
        }
        let (name, combine): (&str, fn(u8, u8) -> u8) = match below(4) {
            0 => ("AND", |a, b| a & b),
            1 => ("OR", |a, b| a | b),
            2 => ("XOR", |a, b| a ^ b),
            _ => ("NOT", |_, b| b),
        };
        let count = if name == "NOT" { 1 } else { 1 + below(6) };
        let sources: Vec<usize> = (0..count).map(|_| below(4)).collect();
        let length = sources.iter().map(|at| values[*at].len()).max().unwrap();
        let byte = |source: usize, at: usize| values[source].get(at).copied().unwrap_or(0);
        let wanted: Vec<u8> = (0..length)
            .map(|at| match name {
                "NOT" => !byte(sources[0], at),
                _ => sources.iter().map(|source| byte(*source, at)).reduce(combine).unwrap(),
            })
            .collect();
        let target = format!("k{}", below(5));
        let mut request = vec!["BITOP".to_string(), name.into(), target.clone()];
        request.extend(sources.iter().map(|at| format!("k{at}")));
        assert_eq!(client.call(&request), int(length as i64), "{round}: {request:?}");
        let found = client.call(&["GET", &target]);
        match length {
            0 => assert_eq!(found, Reply::Null, "{round}: {request:?}"),
            _ => assert_eq!(found, Reply::Bulk(wanted.into()), "{round}: {request:?}"),
        }
        client.say("DEL k4");
    }
    client.say("RPUSH list e");
    assert!(error(&client.say("BITOP OR k k0 list")).starts_with("WRONGTYPE"));
}

/// Both zeros are equal, so members decide.
#[test]
fn a_negative_zero_is_in_the_place_of_zero() {
    let served = Served::with(&[]);
    let mut client = served.client();
    client.pipeline(&["ZADD y 0 a", "ZADD z 0 b", "ZADD both 0 a 0 b"]);
    let in_order = array(["a", "b"].map(bulk));
    assert_eq!(client.say("ZUNION 2 y z WEIGHTS 1 -1"), in_order);
    assert_eq!(client.say("ZUNION 2 z y WEIGHTS -1 1"), in_order);
    client.pipeline(&["ZADD sign 0 b"]);
    assert_eq!(client.say("ZINTER 2 both both WEIGHTS -1 1"), in_order);
}

/// As C's `strtod` reads them for Redis, which takes no such score.
#[test]
fn ends_of_scores_that_do_not_fit_are_infinite_or_zero() {
    let served = Served::with(&[]);
    let mut client = served.client();
    client.pipeline(&["ZADD z 1 a 2 b"]);
    for end in ["1e309", "0x1p1024", "0x1.fffffffffffff8p1023", "0X1P99999999999999"] {
        let request = format!("ZRANGEBYSCORE z 2 {end}");
        assert_eq!(client.say(&request), array([bulk("b")]), "{request}");
        assert_eq!(client.say(&format!("ZCOUNT z -{end} ({end}")), int(2), "{end}");
        refused(&mut client, &format!("ZADD z {end} c"), "ERR value is not a valid float");
    }
    assert_eq!(client.say("ZCOUNT z 0x1p-99999 1"), int(1));
    refused(&mut client, "ZADD z 0x1p-99999 c", "ERR value is not a valid float");
}

/// Refusals in Redis's words.
#[test]
fn what_is_out_of_range_is_refused_as_redis_refuses_it() {
    let served = Served::with(&[]);
    let mut client = served.client();
    client.pipeline(&["RPUSH list a", "ZADD set 1 a", "HSET hash a 1"]);
    let range = "ERR value is out of range";
    let rank = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
    let exec =
        "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
    let count = "ERR count should be greater than 0";
    let bits = "ERR value is out of range, value must between -2147483648 and 2147483647";
    let database = "ERR DB index is out of range";
    for (request, why) in [
        ("SELECT 2147483648", bits),
        ("SELECT -2147483649", bits),
        ("SELECT 2147483647", database),
        ("SELECT -2147483648", database),
        ("SELECT 9223372036854775808", "ERR value is not an integer or out of range"),
        ("COPY list copy DB 4294967296", bits),
        ("COPY list copy DB 4294967", database),
        ("MOVE list -4294967296", bits),
        ("MOVE list -1", database),
        ("HRANDFIELD hash 9223372036854775807 WITHVALUES", range),
        ("ZRANDMEMBER set 9223372036854775807 WITHSCORES", range),
        ("HRANDFIELD absent 4611686018427387904 WITHVALUES", range),
        ("LPOS list a RANK -9223372036854775808", rank),
        ("LMPOP 1 list LEFT COUNT foo", count),
        ("ZMPOP 1 set MIN COUNT foo", count),
        ("LMPOP 1 list LEFT COUNT 0 foo", count),
        ("ZMPOP 1 set MIN COUNT -1 COUNT 1", count),
        ("ZMPOP 1 set MIN COUNT 1 COUNT 1", "ERR syntax error"),
        ("EXEC foo", exec),
    ] {
        assert_eq!(error(&client.say(request)), why, "{request}");
    }
    assert_eq!(client.say("HRANDFIELD hash 9223372036854775807"), array([bulk("a")]));
    let most = "HRANDFIELD hash 4611686018427387903 WITHVALUES";
    assert_eq!(client.say(most), array(["a", "1"].map(bulk)));
}

#[test]
fn subcommands_are_among_the_names_and_the_documents_of_commands() {
    let served = Served::with(&[]);
    let mut client = served.client();
    let Reply::Array(names) = client.say("COMMAND LIST") else { panic!("no names") };
    let names: Vec<String> = names.iter().map(text).collect();
    for name in ["get", "config", "config|get", "memory|usage"] {
        assert_eq!(names.iter().filter(|one| *one == name).count(), 1, "{name}");
    }
    let docs = client.say("COMMAND DOCS config|get nothing config config|nothing lpos");
    let Reply::Array(pairs) = &docs else { panic!("{docs:?}") };
    assert_eq!(pairs.len(), 2 * 3);
    let get = field(&docs, "config|get");
    let patterns = field(get, "arguments");
    assert_eq!(text(field(get, "group")), "server");
    assert_eq!(field(field(field(&docs, "config"), "subcommands"), "config|get"), get);
    let Reply::Array(patterns) = patterns else { panic!("{patterns:?}") };
    assert_eq!(text(field(&patterns[0], "type")), "pattern");
    assert_eq!(*field(&patterns[0], "flags"), array([Reply::Simple(b"multiple"[..].into())]));
    let Reply::Array(arguments) = field(field(&docs, "lpos"), "arguments") else {
        panic!("{docs:?}")
    };
    assert_eq!(*field(&arguments[0], "key_spec_index"), int(0));
    assert_eq!(text(field(&arguments[2], "token")), "RANK");
}

/// As in Redis, where what has subcommands has an array of them.
#[test]
fn a_command_without_subcommands_has_an_empty_set_of_them() {
    let served = Served::with(&[]);
    let mut client = served.client();
    let subcommands = |client: &mut Client, name: &str| {
        let Reply::Array(rows) = client.say(&format!("COMMAND INFO {name}")) else {
            panic!("no rows")
        };
        let Reply::Array(fields) = &rows[0] else { panic!("{rows:?}") };
        fields[9].clone()
    };
    assert_eq!(subcommands(&mut client, "get"), array([]));
    client.say("HELLO 3");
    for name in ["get", "config|get"] {
        assert_eq!(subcommands(&mut client, name), Reply::Set(Vec::new()), "{name}");
    }
    assert!(matches!(subcommands(&mut client, "config"), Reply::Array(parts) if !parts.is_empty()));
}

/// As in Redis 7.0, also if a pattern with a place for the element follows.
#[test]
fn sort_by_nothing_leaves_the_order() {
    let served = Served::with(&[]);
    let mut client = served.client();
    client.pipeline(&["RPUSH list b c a", "MSET w_a 1 w_b 2 w_c 3", "SADD set b"]);
    let as_it_is = array(["b", "c", "a"].map(bulk));
    assert_eq!(client.say("SORT list BY nosort"), as_it_is);
    assert_eq!(client.say("SORT list BY nosort BY w_*"), as_it_is);
    assert_eq!(client.say("SORT list BY w_* BY nosort"), as_it_is);
    assert_eq!(client.say("SORT list BY w_*"), array(["a", "b", "c"].map(bulk)));
    // What is stored of a set is sorted in any case.
    client.pipeline(&["SADD set c", "SADD set a", "MSET w_a 3 w_b 2 w_c 1"]);
    assert_eq!(client.say("SORT set BY nosort BY w_* STORE sorted"), int(3));
    assert_eq!(client.say("LRANGE sorted 0 -1"), array(["a", "b", "c"].map(bulk)));
}

/// What monitoring for Redis looks for, where there is a truth to tell; EXEC is not slow beside its commands.
#[test]
fn info_tells_what_monitoring_looks_for() {
    let served = Served::with(&[("slowlog-log-slower-than", "0"), ("requirepass", "pw")]);
    let mut client = served.client();
    assert!(error(&client.say("HELLO 3 AUTH default wrong")).starts_with("WRONGPASS"));
    assert_eq!(client.say("AUTH pw"), ok());
    let page = text(&client.say("INFO"));
    for name in [
        "total_system_memory",
        "instantaneous_input_kbps",
        "instantaneous_output_kbps",
        "pubsub_channels",
        "tracking_clients",
        "executable",
        "master_repl_offset",
    ] {
        assert!(page.lines().any(|line| line.starts_with(&format!("{name}:"))), "{name}");
    }
    assert!(shown(&client.say("ACL LOG")).contains("HELLO"));
    client.pipeline(&["SLOWLOG RESET", "MULTI", "SET k v", "EXEC"]);
    let slow = shown(&client.say("SLOWLOG GET")).to_uppercase();
    assert!(slow.contains("SET") && !slow.contains("EXEC"), "{slow}");
}

/// They are known by their names, which are times.
#[test]
fn the_last_checkpoints_stay_when_the_clock_is_set_back() {
    const HOUR_MS: u64 = 3_600_000;
    const KEPT: usize = 2;
    let clock = ManualClock::wall_at(1_700_000_000_000);
    let set = |options: &mut terrace::Options| options.advanced.clock = Arc::new(clock.clone());
    let served = Served::start(Arc::new(tempfile::tempdir().unwrap()), None, &[], &set);
    let mut client = served.client();
    let folder = served.dir.path().join("store-checkpoints");
    let there = || -> BTreeSet<OsString> {
        let entries = std::fs::read_dir(&folder).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    };
    let mut made = Vec::new();
    // Forward, back, not at all, and forward past all of them.
    for turned_ms in [1, 1, HOUR_MS.wrapping_neg(), 1, 0, 0, 2 * HOUR_MS, 1] {
        clock.advance(turned_ms);
        let before = there();
        assert_eq!(client.say("SAVE"), ok());
        made.extend(there().difference(&before).cloned());
        let last: BTreeSet<OsString> = made.iter().rev().take(KEPT).cloned().collect();
        assert_eq!(there(), last, "of {made:?}");
    }
    assert_eq!(made.len(), 8);
}

/// It is no store.
#[test]
fn a_folder_with_a_number_among_the_checkpoints_that_is_none_stays() {
    let served = Served::with(&[]);
    let mut client = served.client();
    let folder = served.dir.path().join("store-checkpoints");
    let archive = folder.join("2024").join("archive");
    std::fs::create_dir_all(archive.parent().unwrap()).unwrap();
    std::fs::write(&archive, "precious").unwrap();
    for _ in 0..4 {
        assert_eq!(client.say("SAVE"), ok());
    }
    assert_eq!(std::fs::read(&archive).unwrap(), b"precious");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3, "and the last two");
}
