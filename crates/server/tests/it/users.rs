//! What users may do: rules about commands and keys, and when they change.

use crate::client::{Client, bulk, error, field, int, ok, shown, text, until};
use crate::served::Served;
use terrace_resp::Reply;
use terrace_server::command::{Flags, Keys, table};

/// A connection as this user.
fn logged_in(served: &Served, name: &str, password: &str) -> Client {
    let mut client = served.client();
    assert_eq!(client.call(&["AUTH", name, password]), ok());
    client
}

/// What a user may do: rules, what works, and what is refused for the command or for a key.
type Row =
    (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

const ROWS: &[Row] = &[
    (
        "~* +@read -@write",
        &["GET a", "EXISTS a", "HGET h f"],
        &["SET a 1", "DEL a", "CONFIG GET x"],
        &[],
    ),
    ("~* +@all -@write", &["GET a", "PING", "TIME"], &["SET a 1", "HSET h f v", "FLUSHALL"], &[]),
    (
        "~* +@all -@dangerous",
        &["GET a", "SET a 1", "CLIENT ID", "CLIENT SETNAME n", "ACL WHOAMI"],
        &[
            "FLUSHALL",
            "KEYS *",
            "CONFIG GET x",
            "CLIENT LIST",
            "CLIENT KILL ID 1",
            "ACL LIST",
            "SORT a",
            "EXPLAIN a",
        ],
        &[],
    ),
    ("~* +get", &["GET a", "GET b"], &["SET a 1", "MGET a", "PING"], &[]),
    ("~* +get +set -get", &["SET a 1"], &["GET a"], &[]),
    ("allkeys allcommands", &["SET a 1", "DEL b", "ACL WHOAMI", "CONFIG GET port"], &[], &[]),
    ("~* allcommands nocommands", &[], &["GET a", "PING"], &[]),
    ("+@all", &["PING"], &[], &["GET a", "SET a 1", "DEL a"]),
    (
        "~a* +@all",
        &["GET a", "SET a1 1", "MGET a ab"],
        &[],
        &["GET b", "MGET a b", "DEL b a", "MSET a 1 b 2"],
    ),
    ("~a* resetkeys ~b* +@all", &["GET b"], &[], &["GET a"]),
    (
        "%R~a* %W~b* +@all",
        &["GET a", "DEL b", "MSET b 1 bb 2"],
        &[],
        &["GET b", "DEL a", "MSET b 1 a 2", "GETDEL a"],
    ),
    ("%RW~a* +@all", &["GETDEL a", "INCR a"], &[], &["GETDEL b"]),
    ("~user:[0-9]? +@all", &["GET user:12"], &[], &["GET user:1", "GET user:x2", "GET xuser:12"]),
    (
        "~* +config|get +acl|whoami",
        &["CONFIG GET port", "ACL WHOAMI"],
        &["CONFIG SET timeout 1", "ACL LIST"],
        &[],
    ),
    (
        "~* +@all -config|set",
        &["CONFIG GET port"],
        &["CONFIG SET timeout 1", "CONFIG set timeout 1"],
        &[],
    ),
    // Commands that tell about keys or show them without a place for them among their arguments.
    (
        "~a* +@all",
        &["OBJECT ENCODING a", "MEMORY USAGE a", "EXPLAIN a"],
        &[],
        &["OBJECT ENCODING b", "MEMORY USAGE b", "EXPLAIN b", "TSCAN - +", "TSCAN a b", "WATCH b"],
    ),
    ("%W~* +@all", &["DEL b", "OBJECT ENCODING a"], &[], &["TSCAN - +", "GET a"]),
    ("%R~* +@all", &["TSCAN - +", "OBJECT HELP", "MEMORY STATS"], &[], &["DEL b"]),
];

#[test]
fn users_do_what_their_rules_say_and_nothing_else() {
    let served = Served::with(&[("acllog-max-len", "1000")]);
    let mut admin = served.client();
    for (rules, allowed, denied_commands, denied_keys) in ROWS {
        let set = format!("ACL SETUSER u reset on >pw {rules}");
        assert_eq!(admin.say(&set), ok(), "{rules}");
        let mut user = logged_in(&served, "u", "pw");
        // An encoding needs a string.
        admin.say("MSET a 1 b 1");
        for request in *allowed {
            admin.say("MSET a 1 b 1");
            let reply = shown(&user.say(request));
            assert!(!reply.starts_with('-'), "{rules}: {request}: {reply}");
            assert_eq!(admin.say(&format!("ACL DRYRUN u {request}")), ok(), "{rules}: {request}");
        }
        for request in *denied_commands {
            let mut words = request.split(' ').map(str::to_lowercase);
            let mut name = words.next().unwrap();
            if ["config", "acl", "client"].contains(&&*name) {
                name = format!("{name}|{}", words.next().unwrap());
            }
            admin.say("ACL LOG RESET");
            let why = format!("his user has no permissions to run the '{name}' command");
            assert_eq!(error(&user.say(request)), format!("NOPERM t{why}"), "{rules}: {request}");
            let dry = text(&admin.say(&format!("ACL DRYRUN u {request}")));
            assert_eq!(dry, format!("T{why}"));
            logged(&mut admin, "command", &name);
        }
        for request in *denied_keys {
            admin.say("ACL LOG RESET");
            let refused = error(&user.say(request));
            let why =
                "NOPERM this user has no permissions to access one of the keys used as arguments";
            assert_eq!(refused, why, "{rules}: {request}");
            let dry = text(&admin.say(&format!("ACL DRYRUN u {request}")));
            assert!(dry.starts_with("This user has no permissions to access the '"), "{dry}");
            let key = dry.split('\'').nth(1).unwrap().to_string();
            assert!(request.split(' ').any(|word| word == key), "{request}: {dry}");
            logged(&mut admin, "key", &key);
        }
    }
}

/// The log has one entry, about this.
fn logged(admin: &mut Client, reason: &str, object: &str) {
    let log = admin.say("ACL LOG");
    let Reply::Array(entries) = &log else { panic!("{log:?}") };
    assert_eq!(entries.len(), 1, "{log:?}");
    let told = |name| shown(field(&entries[0], name));
    for (name, value) in
        [("reason", reason), ("object", object), ("username", "u"), ("context", "toplevel")]
    {
        assert!(told(name).contains(&format!("\r\n{value}\r\n")), "{name}: {}", told(name));
    }
    assert!(told("client-info").contains("addr=127.0.0.1:"));
    assert_eq!(field(&entries[0], "count"), &int(1));
}

/// A command that touches data is checked by its keys. One that has none among its arguments shows
/// names only, or is about the whole database, or asks for the right to all keys.
#[test]
fn every_command_that_touches_data_has_keys_or_is_known() {
    // Redis says of LOLWUT that it reads.
    let known = ["dbsize", "flushall", "flushdb", "keys", "lolwut", "randomkey", "scan", "tscan"];
    let touches = |flags: Flags| flags.has(Flags::READ) || flags.has(Flags::WRITE);
    let mut without: Vec<_> = table()
        .all()
        .iter()
        .filter(|spec| touches(spec.flags) && spec.keys == Keys::None)
        .map(|spec| spec.name)
        .collect();
    without.retain(|name| !known.contains(name));
    assert_eq!(without, [""; 0]);
}

#[test]
fn a_user_that_is_gone_or_off_is_gone_at_once() {
    let served = Served::with(&[("server-threads", "2")]);
    let mut admin = served.client();
    let make = |admin: &mut Client| {
        assert_eq!(admin.say("ACL SETUSER u reset on >pw ~* +@all"), ok());
    };
    make(&mut admin);
    let (mut idle, mut second) = (logged_in(&served, "u", "pw"), logged_in(&served, "u", "pw"));
    assert_eq!(second.say("MULTI"), ok());
    second.say("SET k u");
    assert_eq!(admin.say("ACL DELUSER u nobody"), int(1));
    // It need not say anything to be ended.
    idle.expect_end();
    second.expect_end();
    assert!(error(&served.client().say("AUTH u pw")).starts_with("WRONGPASS"));
    make(&mut admin);
    let mut off = logged_in(&served, "u", "pw");
    off.say("MULTI");
    off.say("SET k u");
    assert_eq!(admin.say("ACL SETUSER u off"), ok());
    off.send(&["EXEC"]);
    off.expect_end();
    assert_eq!(admin.say("EXISTS k"), int(0));
    assert!(error(&served.client().say("AUTH u pw")).starts_with("WRONGPASS"));
    assert!(error(&admin.say("ACL DELUSER default")).contains("cannot be removed"));
    until("connections are left", || served.server().clients.count() == 1);
}

#[test]
fn a_right_that_was_taken_away_is_gone_for_what_is_queued_too() {
    let served = Served::with(&[]);
    let mut admin = served.client();
    assert_eq!(admin.say("ACL SETUSER u on >pw ~* +@all"), ok());
    let mut user = logged_in(&served, "u", "pw");
    user.pipeline(&["MULTI", "SET a 1", "SET b 1", "DEL c"]);
    assert_eq!(admin.say("ACL SETUSER u -del resetkeys ~a ~c"), ok());
    let Reply::Array(replies) = user.say("EXEC") else { panic!("no array") };
    assert_eq!(replies[0], ok());
    for (reply, why) in
        [(&replies[1], "touch the specified keys"), (&replies[2], "execute the command")]
    {
        let refused = error(reply);
        assert!(refused.starts_with("NOPERM") && refused.contains(why), "{refused}");
    }
    assert_eq!(admin.say("MGET a b"), Reply::Array(vec![bulk("1"), Reply::Null]));
    assert!(shown(&admin.say("ACL LOG")).contains("\r\ndel\r\n"));
}

#[test]
fn the_line_of_a_user_makes_the_same_user_and_has_no_password() {
    let served = Served::with(&[]);
    let mut admin = served.client();
    assert_eq!(admin.say("ACL SETUSER u on >pw ~a* %R~b* +@read -get +config|get"), ok());
    let lines = admin.say("ACL LIST");
    let Reply::Array(lines) = &lines else { panic!("{lines:?}") };
    let line = lines.iter().map(text).find(|line| line.starts_with("user u ")).unwrap();
    assert!(!line.contains("pw") && line.contains(" #"), "{line}");
    // The line, without the name, makes the same user.
    let rules = line.strip_prefix("user u ").unwrap();
    assert_eq!(admin.say(&format!("ACL SETUSER v {rules}")), ok());
    let lines = shown(&admin.say("ACL LIST"));
    assert!(lines.contains(&line.replace("user u", "user v")), "{lines}");
    let mut other = logged_in(&served, "v", "pw");
    assert_eq!(other.say("EXISTS a1"), int(0));
    assert!(error(&other.say("GET a1")).starts_with("NOPERM"));
}

#[test]
fn a_right_that_a_transaction_takes_away_is_gone_for_its_later_commands() {
    let served = Served::with(&[]);
    let mut admin = served.client();
    assert_eq!(admin.say("ACL SETUSER u on >pw ~* +@all"), ok());
    let mut user = logged_in(&served, "u", "pw");
    let mut executed = |commands: &[&str]| {
        let requests = [&["MULTI"], commands, &["EXEC"]].concat();
        match user.pipeline(&requests).pop() {
            Some(Reply::Array(replies)) => replies,
            other => panic!("{other:?}"),
        }
    };
    let replies = executed(&["SET a 1", "ACL SETUSER u -get", "GET a", "SET a 2"]);
    assert_eq!(replies[..2], [ok(), ok()]);
    assert!(error(&replies[2]).starts_with("NOPERM"), "{replies:?}");
    assert_eq!(replies[3], ok());
    let replies = executed(&["ACL DELUSER u", "SET a 3"]);
    assert_eq!(replies[0], int(1));
    assert!(error(&replies[1]).starts_with("NOAUTH"), "{replies:?}");
    user.expect_end();
    assert_eq!(admin.say("GET a"), bulk("2"));
}

/// A right that is lost between `MULTI` and `EXEC` is refused by `EXEC`, in Redis's words, and logged as such.
#[test]
fn what_is_refused_within_exec_says_so() {
    let served = Served::with(&[]);
    let mut admin = served.client();
    assert_eq!(admin.say("ACL SETUSER u on >pw ~* +@all"), ok());
    let mut user = logged_in(&served, "u", "pw");
    for (rules, why, object) in [
        ("-set", "no permission to execute the command or subcommand", "set"),
        ("+set resetkeys ~other", "no permission to touch the specified keys", "k"),
    ] {
        assert_eq!(admin.say("ACL SETUSER u ~* +@all"), ok());
        user.pipeline(&["MULTI", "SET k v", "PING"]);
        assert_eq!(admin.say(&format!("ACL SETUSER u {rules}")), ok());
        let Reply::Array(replies) = user.say("EXEC") else { panic!("no array") };
        let text = format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
             EXEC call. This command is no longer allowed for the following reason: {why}"
        );
        assert_eq!(error(&replies[0]), text);
        assert_eq!(replies[1], Reply::Simple(b"PONG"[..].into()));
        let Reply::Array(entries) = admin.say("ACL LOG 1") else { panic!("no array") };
        assert_eq!(*field(&entries[0], "context"), bulk("multi"));
        assert_eq!(*field(&entries[0], "object"), bulk(object));
        assert_eq!(admin.say("ACL LOG RESET"), ok());
    }
    error(&user.say("SET k v"));
    let Reply::Array(entries) = admin.say("ACL LOG 1") else { panic!("no array") };
    assert_eq!(*field(&entries[0], "context"), bulk("toplevel"));
}

#[test]
fn the_patterns_of_sort_are_for_those_who_may_read_all_keys() {
    let served = Served::with(&[]);
    let mut admin = served.client();
    assert_eq!(admin.say("RPUSH a 2 1"), int(2));
    assert_eq!(admin.say("ACL SETUSER u on >pw ~a* +@all"), ok());
    let mut user = logged_in(&served, "u", "pw");
    for (option, words) in [("BY", "BY w_*"), ("GET", "GET #"), ("GET", "BY nosort GET a_*")] {
        let refusal =
            format!("ERR {option} option of SORT denied due to insufficient ACL permissions.");
        assert_eq!(error(&user.say(&format!("SORT a {words}"))), refusal, "{words}");
    }
    assert_eq!(user.say("SORT a BY nosort"), Reply::Array(vec![bulk("2"), bulk("1")]));
    assert_eq!(admin.say("ACL SETUSER u %R~*"), ok());
    assert_eq!(user.say("SORT a GET #"), Reply::Array(vec![bulk("1"), bulk("2")]));
}
