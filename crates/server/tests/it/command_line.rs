//! The command line of the page, over HTTP at a server: what it executes, for whom, and that it changes nothing.

use crate::client::{Client, bulk, int, ok};
use crate::served::Served;
use std::io::{Read, Write};
use std::net::TcpStream;
use terrace_resp::Reply;

/// The status of the answer to a command line, and its body. `login` is user and password in Base64.
pub fn line(served: &Served, db: u8, line: &str, login: Option<&str>) -> (u16, String) {
    let escaped: String = line.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let login = login.map_or(String::new(), |login| format!("Authorization: Basic {login}\r\n"));
    let mut stream = TcpStream::connect(served.running().http_addresses()[0]).unwrap();
    let head =
        format!("GET /api/v1/command?db={db}&line={escaped} HTTP/1.1\r\nHost: localhost\r\n");
    write!(stream, "{head}{login}Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_string())
}

/// The answer of a server that asks for no login; it must be there.
fn answer(served: &Served, db: u8, words: &str) -> String {
    let (status, body) = line(served, db, words, None);
    assert_eq!(status, 200, "{words}: {body}");
    body
}

fn assert_has(body: &str, parts: &[&str]) {
    for part in parts {
        assert!(body.contains(part), "{part}: {body}");
    }
}

fn with_http(flags: &[(&str, &str)]) -> Served {
    Served::with(&[&[("http-port", "free")], flags].concat())
}

/// All keys of database 0, with what they are.
fn everything(client: &mut Client) -> Vec<(Reply<'static>, Reply<'static>)> {
    let Reply::Array(keys) = client.say("KEYS *") else { panic!() };
    let value = |key: Reply<'static>| match &key {
        Reply::Bulk(name) => (key.clone(), client.call(&[&b"GET"[..], &name[..]])),
        _ => panic!(),
    };
    keys.into_iter().map(value).collect()
}

#[test]
fn commands_that_read_are_executed_and_keep_their_types() {
    let served = with_http(&[]);
    let mut client = served.client();
    assert_eq!(client.call(&[&b"SET"[..], b"\xff\0 k", b"v\xfe\n"]), ok());
    assert_eq!(client.say("HSET h f 1"), int(1));
    assert_eq!(client.say("ZADD z 1.5 m"), int(1));
    assert_eq!(client.say("SELECT 2"), ok());
    assert_eq!(client.say("SET other 2"), ok());
    let got = answer(&served, 0, r#"GET "\xff\x00 k""#);
    assert_has(
        &got,
        &[r#""type":"string""#, r#""hex":"76fe0a""#, r#""is_cut":false"#, r#""db":0"#],
    );
    assert_has(&answer(&served, 0, "get nobody"), &[r#""type":"null""#]);
    assert_has(
        &answer(&served, 0, "HGETALL h"),
        &[r#""type":"map""#, r#""text":"f""#, r#""size":2"#],
    );
    assert_has(&answer(&served, 0, "ZSCORE z m"), &[r#""type":"double""#, r#""text":"1.5""#]);
    assert_has(&answer(&served, 0, "TYPE h"), &[r#""type":"simple""#, r#""text":"hash""#]);
    assert_has(&answer(&served, 2, "'GET' 'other'"), &[r#""text":"2""#, r#""db":2"#]);
    assert_has(&answer(&served, 0, "OBJECT ENCODING h"), &[r#""text":"hashtable""#]);
    assert_has(&answer(&served, 0, "LRANGE h 0 -1"), &[r#""type":"error""#, "WRONGTYPE"]);
    assert_has(&answer(&served, 0, "GET"), &[r#""type":"error""#, "wrong number of arguments"]);
    assert_has(&answer(&served, 0, "NOSUCH a"), &[r#""type":"error""#, "unknown command"]);
    // It is nobody's connection.
    assert_eq!(served.server().clients.count(), 1);
}

#[test]
fn what_does_not_only_read_is_refused_and_changes_nothing() {
    let served = with_http(&[("enable-debug-command", "yes")]);
    let mut client = served.client();
    assert_eq!(client.say("SET a 1"), ok());
    let (before, options) = (everything(&mut client), client.say("CONFIG GET *"));
    for words in [
        "SET a 2",
        "set b 1",
        "DEL a",
        "GETDEL a",
        "GETEX a EX 1",
        "EXPIRE a 1",
        "INCR a",
        "APPEND a b",
        "FLUSHALL",
        "FLUSHDB",
        "SORT a STORE b",
        "COPY a b",
        "RENAME a b",
        "CONFIG SET timeout 7",
        "CONFIG GET *",
        "CONFIG RESETSTAT",
        "ACL SETUSER x on",
        "ACL LIST",
        "CLIENT LIST",
        "CLIENT KILL ID 1",
        "SHUTDOWN",
        "SAVE",
        "DEBUG SLEEP 100",
        "KEYS *",
        "MULTI",
        "EXEC",
        "WATCH a",
        "SELECT 1",
        "AUTH x",
        "HELLO 3",
        "RESET",
        "QUIT",
        "SLOWLOG GET",
        "MEMORY PURGE",
        "PING",
    ] {
        let (status, body) = line(&served, 0, words, None);
        let name = words.split(' ').next().unwrap().to_uppercase();
        assert_eq!(status, 403, "{words}: {body}");
        assert_has(&body, &[&format!("{name} does not only read")]);
    }
    assert_eq!((everything(&mut client), client.say("CONFIG GET *")), (before, options));
    assert_eq!(client.say("GET a"), bulk("1"));
}

/// The Redis port ends a connection that sends them, and logs it: here there is none to be ended.
#[test]
fn words_of_http_are_refused_for_good() {
    let served = with_http(&[]);
    for words in ["POST / HTTP/1.1", "Host: localhost"] {
        let (status, body) = line(&served, 0, words, None);
        assert_eq!(status, 403, "{words}: {body}");
        assert_has(&body, &["there is no such command"]);
    }
    assert_has(&answer(&served, 0, "GETX a"), &["ERR unknown command"]);
}

#[test]
fn the_rights_of_the_user_hold() {
    let served = with_http(&[("requirepass", "secret")]);
    let mut admin = served.client();
    assert_eq!(admin.say("AUTH secret"), ok());
    assert_eq!(admin.say("SET app:1 v"), ok());
    // "default:secret", "a:pw", "a:no"
    let (default, login, wrong) = ("ZGVmYXVsdDpzZWNyZXQ=", "YTpwdw==", "YTpubw==");
    assert_eq!(line(&served, 0, "GET app:1", None).0, 401);
    assert_eq!(line(&served, 0, "GET app:1", Some(wrong)).0, 401);
    assert_has(&line(&served, 0, "GET app:1", Some(default)).1, &[r#""text":"v""#]);
    for (rules, status) in [
        ("~* +@read", 200),
        ("~* +@all", 200),
        ("~app:* +@read", 403),
        ("~* +get", 403),
        ("~* +@read -hgetall", 403),
        ("%W~* +@read", 403),
        ("off ~* +@read", 401),
    ] {
        assert_eq!(admin.say(&format!("ACL SETUSER a reset on >pw {rules}")), ok());
        let (found, body) = line(&served, 0, "GET app:1", Some(login));
        assert_eq!(found, status, "{rules}: {body}");
    }
    // Also of a user who may write.
    assert_eq!(admin.say("ACL SETUSER a reset on >pw ~* +@all"), ok());
    assert_eq!(line(&served, 0, "SET app:1 w", Some(login)).0, 403);
    assert_eq!(admin.say("GET app:1"), bulk("v"));
}

#[test]
fn replies_have_bounds() {
    let served = with_http(&[]);
    let mut client = served.client();
    for chunk in 0..3 {
        let elements: Vec<String> = (0..1000).map(|n| format!("{}", chunk * 1000 + n)).collect();
        let words: Vec<&str> =
            ["RPUSH", "l"].into_iter().chain(elements.iter().map(|e| &e[..])).collect();
        client.call(&words);
    }
    let cut = answer(&served, 0, "LRANGE l 0 -1");
    assert_has(&cut, &[r#""is_cut":true"#, r#""size":3000"#, r#""text":"999""#]);
    assert!(!cut.contains(r#""text":"1000""#), "the first 1,000 elements");
    assert_eq!(client.call(&["SETRANGE", "large", "5000", "x"]), int(5001));
    let cut = answer(&served, 0, "GET large");
    assert_has(&cut, &[r#""is_cut":true"#, r#""len":5001"#]);
    // More than is made of it.
    assert_eq!(client.call(&["SETRANGE", "huge", "17000000", "x"]), int(17_000_001));
    assert_has(&answer(&served, 0, "GET huge"), &[r#""type":"error""#, "over the output limit"]);
    assert_has(&answer(&served, 0, "STRLEN huge"), &[r#""text":"17000001""#]);
    assert_eq!(line(&served, 16, "GET a", None).0, 400);
    assert_eq!(line(&served, 0, &"x".repeat(4097), None).0, 400);
}

#[test]
fn a_node_that_has_not_joined_its_cluster_reads_no_key() {
    let served = with_http(&[("cluster-enabled", "yes")]);
    assert_has(&answer(&served, 0, "GET a"), &[r#""type":"error""#, "CLUSTERDOWN"]);
}
