//! What clients of Redis look at in replies, and what they must not be able to do.

use crate::client::{Client, array, bulk, error, int, ok, text};
use crate::served::Served;
use terrace_resp::Reply;

fn queued() -> Reply<'static> {
    Reply::Simple(b"QUEUED"[..].into())
}

#[test]
fn a_line_about_a_client_has_all_fields_of_redis_in_its_order() {
    const FIELDS: &str = "id addr laddr fd name age idle flags db sub psub ssub multi qbuf qbuf-free \
                          argv-mem multi-mem rbs rbp obl oll omem tot-mem events cmd user redir resp";
    let served = Served::with(&[]);
    let mut client = served.client();
    client.say("CLIENT SETNAME me");
    for request in ["CLIENT INFO", "CLIENT LIST"] {
        let line = text(&client.say(request));
        let pairs: Vec<(&str, &str)> =
            line.trim_end().split(' ').map(|pair| pair.split_once('=').unwrap()).collect();
        let names: Vec<&str> = pairs.iter().map(|(name, _)| *name).collect();
        let wanted: Vec<&str> = FIELDS.split(' ').collect();
        assert_eq!(names[..wanted.len()], wanted, "{request}");
        let value = |name: &str| pairs.iter().find(|(one, _)| *one == name).unwrap().1;
        let command = request.to_lowercase().replace(' ', "|");
        assert_eq!((value("name"), value("flags"), value("multi")), ("me", "N", "-1"));
        assert_eq!((value("cmd"), value("user"), value("resp")), (&*command, "default", "2"));
    }
    client.pipeline(&["MULTI", "GET a", "GET b"]);
    let line = text(&served.client().say("CLIENT LIST"));
    assert!(line.contains(" flags=x ") && line.contains(" multi=2 "), "{line}");
    assert_eq!(client.say("CLIENT INFO"), queued());
    // Also while it is executed, for itself and others.
    let Reply::Array(replies) = client.say("EXEC") else { panic!("no array") };
    let line = text(&replies[2]);
    assert!(line.contains(" flags=x ") && line.contains(" multi=3 "), "{line}");
    let line = text(&client.say("CLIENT INFO"));
    assert!(line.contains(" flags=N ") && line.contains(" multi=-1 "), "{line}");
}

#[test]
fn others_see_which_subcommand_a_client_has_sent_last() {
    let served = Served::with(&[]);
    let (mut client, mut other) = (served.client(), served.client());
    let Reply::Integer(id) = client.say("CLIENT ID") else { panic!("no id") };
    for (request, shown) in [
        ("CLIENT SETNAME me", "client|setname"),
        ("config get timeout", "config|get"),
        ("OBJECT ENCODING none", "object|encoding"),
        ("CLIENT NONSENSE", "client"),
        ("GET a", "get"),
    ] {
        client.say(request);
        let line = text(&other.say(&format!("CLIENT LIST ID {id}")));
        assert!(line.contains(&format!(" cmd={shown} ")), "{request}: {line}");
    }
}

#[test]
fn a_request_of_http_ends_the_connection_and_nothing_behind_it_is_executed() {
    let served = Served::with(&[]);
    for first in ["POST / HTTP/1.1\r\n", "post /\r\n", "Host: a.example\r\n"] {
        let mut client = served.client();
        client.send_raw(format!("{first}SET stolen 1\r\n").as_bytes());
        client.expect_end();
    }
    let mut client = served.client();
    client.send(&["POST", "/"]);
    client.expect_end();
    assert_eq!(served.client().say("EXISTS stolen"), int(0));
}

#[test]
fn save_and_shutdown_are_refused_in_a_transaction() {
    let served = Served::with(&[]);
    let mut client = served.client();
    for request in ["SAVE", "SHUTDOWN NOSAVE"] {
        assert_eq!(client.say("MULTI"), ok());
        let refused = error(&client.say(request));
        assert_eq!(refused, "ERR Command not allowed inside a transaction", "{request}");
        assert!(error(&client.say("EXEC")).starts_with("EXECABORT"));
    }
    assert_eq!(client.say("SAVE"), ok());
}

#[test]
fn a_shutdown_with_words_that_contradict_each_other_is_refused_and_stops_nothing() {
    const SYNTAX: &str = "ERR syntax error";
    const NOTHING_TO_ABORT: &str = "ERR No shutdown in progress.";
    let served = Served::with(&[]);
    let mut client = served.client();
    for (words, refusal) in [
        ("SAVE NOSAVE", SYNTAX),
        ("nosave NOW save", SYNTAX),
        ("ABORT NOW", SYNTAX),
        ("FORCE ABORT", SYNTAX),
        ("NOSAVE ABORT", SYNTAX),
        ("ABORT SAVE", SYNTAX),
        ("NOW NOSUCH", SYNTAX),
        ("ABORT", NOTHING_TO_ABORT),
        ("ABORT abort", NOTHING_TO_ABORT),
    ] {
        assert_eq!(error(&client.say(&format!("SHUTDOWN {words}"))), refusal, "{words}");
    }
    assert_eq!(client.say("SET k v"), ok());
}

#[test]
fn a_shutdown_by_force_needs_no_checkpoint_that_can_be_made() {
    let served = Served::with(&[]);
    let mut client = served.client();
    // In the place of their directory.
    std::fs::write(served.dir.path().join("store-checkpoints"), "").unwrap();
    for words in ["SAVE", "SAVE NOW"] {
        error(&client.say(&format!("SHUTDOWN {words}")));
        assert!(!served.server().stop.is_requested(), "{words}");
    }
    assert_eq!(client.say("SET k v"), ok());
    client.send_words(&["SHUTDOWN SAVE FORCE"]);
    client.expect_end();
    assert!(served.server().stop.is_requested());
}

#[test]
fn a_password_is_refused_where_none_is_configured() {
    let served = Served::with(&[]);
    let mut client = served.client();
    let refused = error(&client.say("AUTH secret"));
    assert!(refused.starts_with("ERR AUTH <password> called without any password"), "{refused}");
    assert_eq!(client.say("AUTH default anything"), ok());
}

#[test]
fn passwords_are_bytes() {
    let served = Served::with(&[]);
    let mut admin = served.client();
    let password = [b">".as_slice(), &[0, 0xFF, 0xFE, b'\n', 0x80]].concat();
    let rules = [&b"ACL"[..], b"SETUSER", b"u", b"on", &password, b"+@all", b"~*"];
    assert_eq!(admin.call(&rules), ok());
    let mut client = served.client();
    assert!(error(&client.call(&[&b"AUTH"[..], b"u", &[0, 0xFF, 0xFD]])).starts_with("WRONGPASS"));
    assert_eq!(client.call(&[&b"AUTH"[..], b"u", &password[1..]]), ok());
    assert_eq!(admin.call(&["CONFIG", "SET", "requirepass", "abc\0def"]), ok());
    let mut client = served.client();
    assert!(error(&client.call(&["AUTH", "abc"])).starts_with("WRONGPASS"));
    assert_eq!(client.call(&["AUTH", "abc\0def"]), ok());
}

#[test]
fn errors_are_counted_by_their_code() {
    let served = Served::with(&[]);
    let mut client = served.client();
    client.pipeline(&["NOSUCH", "GET", "SET a x", "INCR a", "LPUSH a x", "CLIENT NOSUCH"]);
    let told = text(&client.say("INFO errorstats"));
    assert!(told.contains("errorstat_ERR:count=4\r\n"), "{told}");
    assert!(told.contains("errorstat_WRONGTYPE:count=1\r\n"), "{told}");
    client.say("CONFIG RESETSTAT");
    assert!(!text(&client.say("INFO errorstats")).contains("errorstat_"));
}

#[test]
fn errors_of_queued_commands_are_counted_too() {
    let served = Served::with(&[]);
    let mut client = served.client();
    client.pipeline(&["SET a x", "MULTI", "INCR a", "LPUSH a x", "GET a", "EXEC"]);
    let told = text(&client.say("INFO errorstats"));
    assert!(told.contains("errorstat_ERR:count=1\r\n"), "{told}");
    assert!(told.contains("errorstat_WRONGTYPE:count=1\r\n"), "{told}");
}

#[test]
fn exec_with_an_argument_ends_the_transaction() {
    let served = Served::with(&[]);
    let mut client = served.client();
    let replies = client.pipeline(&["MULTI", "SET a 1", "EXEC x", "EXEC", "GET a"]);
    assert_eq!(
        error(&replies[2]),
        "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command"
    );
    assert_eq!((&*error(&replies[3]), &replies[4]), ("ERR EXEC without MULTI", &Reply::Null));
}

#[test]
fn a_queued_login_and_a_queued_protocol_hold_from_there_on() {
    let served = Served::with(&[]);
    let mut client = served.client();
    assert_eq!(client.say("ACL SETUSER u on >pw ~* +get +hello +exec"), ok());
    client.pipeline(&["MULTI", "HSET h f v", "HELLO 3", "HGETALL h", "AUTH u pw", "DEL h"]);
    let Reply::Array(replies) = client.say("EXEC") else { panic!("no array") };
    assert!(matches!(&replies[1], Reply::Map(_)), "{:?}", replies[1]);
    assert_eq!(replies[2], Reply::Map(vec![(bulk("f"), bulk("v"))]));
    assert_eq!(replies[3], ok());
    assert!(error(&replies[4]).starts_with("NOPERM"), "{:?}", replies[4]);
    assert_eq!(client.say("GET absent"), Reply::Null);
}

#[test]
fn help_tells_the_subcommands_of_every_command_that_has_some() {
    let served = Served::with(&[]);
    let mut client = served.client();
    for spec in terrace_server::command::table().all() {
        if spec.subcommands().is_empty() {
            continue;
        }
        let Reply::Array(lines) = client.say(&format!("{} HELP", spec.name)) else {
            panic!("{} has no help", spec.name)
        };
        let told: Vec<String> = lines.iter().map(text).collect();
        let first = format!("{} <subcommand> ", spec.name.to_uppercase());
        assert!(told[0].starts_with(&first), "{told:?}");
        assert!(told.len() > 3 && told.contains(&"HELP".to_string()), "{told:?}");
        // A form, and what it does.
        for lines in told[1..].chunks(2) {
            assert!(!lines[0].starts_with(' ') && lines[1].starts_with("    "), "{lines:?}");
        }
    }
}

#[test]
fn options_that_cannot_change_may_be_set_to_what_they_are() {
    let served = Served::with(&[]);
    let mut client = served.client();
    assert_eq!(client.call(&["CONFIG", "SET", "save", ""]), ok());
    assert_eq!(client.say("CONFIG SET maxmemory-policy noeviction timeout 7"), ok());
    assert_eq!(client.option("timeout"), "7");
    assert!(
        error(&client.say("CONFIG SET maxmemory-policy allkeys-lru")).contains("CONFIG SET failed")
    );
    assert!(error(&client.call(&["CONFIG", "SET", "save", "60 1"])).contains("CONFIG SET failed"));
}

fn exec_after(client: &mut Client, other: &mut Client, between: &[&str]) -> Reply<'static> {
    client.say("WATCH k");
    for request in between {
        let reply = other.say(request);
        assert!(!matches!(reply, Reply::Error(_)), "{request}: {reply:?}");
    }
    client.say("MULTI");
    assert_eq!(client.say("PING"), queued());
    client.say("EXEC")
}

#[test]
fn a_flush_changes_watched_keys_that_are_there_and_no_others() {
    let served = Served::with(&[]);
    let (mut client, mut other) = (served.client(), served.client());
    let done = || array([Reply::Simple(b"PONG"[..].into())]);
    for flush in ["FLUSHALL", "FLUSHDB"] {
        assert_eq!(exec_after(&mut client, &mut other, &[flush]), done(), "absent, {flush}");
        assert_eq!(exec_after(&mut client, &mut other, &[flush, flush]), done(), "twice");
        for there in ["SET k 1", "HSET k f v"] {
            other.say(there);
            assert_eq!(exec_after(&mut client, &mut other, &[flush]), Reply::Null, "{there}");
        }
        for between in
            [&["SET k 1", flush][..], &[flush, "SET k 1", "DEL k"], &["SET k 1", "DEL k", flush]]
        {
            assert_eq!(exec_after(&mut client, &mut other, between), Reply::Null, "{between:?}");
        }
        let queued = ["MULTI", "SET k 1", flush, "EXEC"];
        assert_eq!(exec_after(&mut client, &mut other, &queued), Reply::Null, "one transaction");
        assert_eq!(exec_after(&mut client, &mut other, &["SELECT 1", flush, "SELECT 0"]), done());
    }
}

#[test]
fn a_new_name_takes_the_time_to_live_along_and_both_keys_count_as_written() {
    let served = Served::with(&[]);
    let (mut client, mut other) = (served.client(), served.client());
    for (make, show, shown) in [
        ("SET a v", "GET b", bulk("v")),
        ("HSET a f v", "HGET b f", bulk("v")),
        ("RPUSH a v", "LINDEX b 0", bulk("v")),
        ("ZADD a 1.5 v", "ZSCORE b v", bulk("1.5")),
    ] {
        other.pipeline(&["DEL a b k", make, "EXPIRE a 1000", "SADD b old", "EXPIRE b 5"]);
        assert_eq!(other.say("RENAME a b"), ok(), "{make}");
        assert_eq!(other.say("EXISTS a"), int(0));
        assert_eq!(other.say(show), shown);
        let Reply::Integer(left) = other.say("TTL b") else { panic!("no time") };
        assert!((900..=1000).contains(&left), "{make}: {left}");
        other.say(make);
        for rename in ["RENAME k moved", "RENAME a k"] {
            other.pipeline(&["DEL k", "SET k 1"]);
            assert_eq!(exec_after(&mut client, &mut other, &[rename]), Reply::Null, "{rename}");
        }
        other.pipeline(&["DEL a", make, "EXPIRE a 1000"]);
        assert_eq!(other.say("COPY a c REPLACE"), int(1));
        assert_eq!(other.say("MOVE a 1"), int(1));
        assert_eq!(
            other.pipeline(&["DEL c", "EXISTS a", "SELECT 1", "TYPE a", "DEL a", "SELECT 0"])[1],
            int(0)
        );
    }
}

#[test]
fn a_large_collection_gets_another_name_without_being_written_again() {
    let served = Served::with(&[]);
    let mut client = served.client();
    for start in (0..20_000).step_by(1000) {
        let mut request = vec!["RPUSH".to_string(), "a".into()];
        request.extend((start..start + 1000).map(|number| format!("element number {number}")));
        client.call(&request);
    }
    let sent = |served: &Served| served.server().space.db().metrics().user_bytes;
    let before = sent(&served);
    assert_eq!(client.say("RENAME a b"), ok());
    assert!(sent(&served) - before < 1000, "the elements were written again");
    assert_eq!(client.say("LLEN b"), int(20_000));
    assert_eq!(client.say("LINDEX b -1"), bulk("element number 19999"));
    assert_eq!(client.say("COPY b c"), int(1));
    assert_eq!(client.say("DEL b"), int(1));
    assert_eq!(
        (client.say("LLEN c"), client.say("LINDEX c 12345")),
        (int(20_000), bulk("element number 12345"))
    );
}

#[test]
fn a_copy_that_does_not_fit_into_memory_is_refused_and_changes_nothing() {
    // Values are stored beside the elements: the test costs no more than the log.
    let served = Served::with(&[("maxmemory", "64mb")]);
    let mut client = served.client();
    let value = vec![b'v'; 32 << 20];
    for field in 0..9 {
        let field = format!("field {field}");
        assert_eq!(client.call(&[b"HSET", &b"large"[..], field.as_bytes(), &value]), int(1));
    }
    assert_eq!(client.say("SET copy old"), ok());
    for request in ["COPY large copy REPLACE", "MOVE large 1"] {
        let refused = error(&client.say(request));
        assert!(refused.contains("over the limit of 268435456 bytes"), "{request}: {refused}");
    }
    assert_eq!((client.say("GET copy"), client.say("HLEN large")), (bulk("old"), int(9)));
    assert_eq!(client.call(&["HDEL", "large", "field 8", "field 7"]), int(2));
    assert_eq!(client.say("COPY large copy REPLACE"), int(1));
    assert_eq!(client.say("HLEN copy"), int(7));
    assert_eq!(client.call(&["HSTRLEN", "copy", "field 6"]), int(32 << 20));
}

#[test]
fn after_reset_a_connection_is_shown_as_it_is() {
    let served = Served::with(&[]);
    let mut client = served.client();
    client.say("HELLO 3");
    assert!(text(&client.say("CLIENT INFO")).contains(" resp=3 "));
    client.say("RESET");
    assert!(text(&client.say("CLIENT INFO")).contains(" resp=2 "));
}

#[test]
fn sort_without_an_order_shows_the_part_that_is_asked_for() {
    let served = Served::with(&[]);
    let mut client = served.client();
    assert_eq!(client.say("RPUSH l a b c d e"), int(5));
    assert_eq!(client.say("ZADD z 1 a 2 b 3 c 4 d 5 e"), int(5));
    assert_eq!(client.say("SADD s a b c d e"), int(5));
    let bulks = |text: &str| array(text.split_whitespace().map(bulk));
    for key in ["l", "z"] {
        for (options, shown) in [
            ("", "a b c d e"),
            ("DESC", "e d c b a"),
            ("LIMIT 1 2", "b c"),
            ("LIMIT 1 2 DESC", "d c"),
            ("LIMIT 3 9", "d e"),
            ("LIMIT 3 9 DESC", "b a"),
            ("LIMIT -1 2", "a b"),
            ("LIMIT 2 -1", "c d e"),
            ("LIMIT 5 1", ""),
            ("LIMIT 0 0", ""),
        ] {
            let request = format!("SORT {key} BY nosort {options}");
            assert_eq!(client.say(&request), bulks(shown), "{request}");
        }
    }
    let Reply::Array(all) = client.say("SORT s BY nosort") else { panic!("no array") };
    assert_eq!(client.say("SORT s BY nosort LIMIT 1 3"), array(all[1..4].iter().cloned()));
    assert_eq!(client.say("SORT s BY nosort LIMIT 1 3 STORE t"), int(3));
    assert_eq!(client.say("LRANGE t 0 -1"), bulks("b c d"));
}

/// Of an option that comes again the last one counts.
#[test]
fn clients_are_ended_by_what_is_said_last() {
    let served = Served::with(&[]);
    let [mut killer, mut first, mut second] = [(); 3].map(|()| served.client());
    let [one, two] = [&mut first, &mut second].map(|client| match client.say("CLIENT ID") {
        Reply::Integer(id) => id,
        other => panic!("{other:?}"),
    });
    let kill = format!("CLIENT KILL ID {one} TYPE pubsub ID {two} type normal");
    assert_eq!(killer.say(&kill), int(1));
    second.expect_end();
    assert_eq!(first.say("CLIENT ID"), int(one));
}
