//! What test suites and monitoring for Redis send, and go by.

use crate::client::{
    Client, array, bulk, error, field, hears_nothing, int, ok, shown, text, until,
};
use crate::served::Served;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_resp::Reply;

#[test]
fn functions_and_scripts_are_none() {
    let served = Served::with(&[]);
    let mut client = served.client();
    for request in ["FUNCTION FLUSH", "FUNCTION FLUSH async", "SCRIPT FLUSH", "SCRIPT FLUSH SYNC"] {
        assert_eq!(client.say(request), ok(), "{request}");
    }
    for request in ["FUNCTION LIST", "FUNCTION LIST WITHCODE LIBRARYNAME x*"] {
        assert_eq!(client.say(request), array([]), "{request}");
    }
    assert_eq!(client.say("SCRIPT EXISTS a b"), array([int(0), int(0)]));
    for (request, refusal) in [
        ("FUNCTION FLUSH x", "ERR FUNCTION FLUSH only supports SYNC|ASYNC option"),
        ("FUNCTION LIST x", "ERR Unknown argument x"),
        ("FUNCTION LIST LIBRARYNAME", "ERR library name argument was not given"),
        ("FUNCTION LOAD x", "ERR there are no functions"),
        ("FUNCTION KILL", "NOTBUSY No scripts in execution right now."),
        ("FUNCTION NONSENSE", "ERR unknown subcommand 'NONSENSE'. Try FUNCTION HELP."),
        ("SCRIPT FLUSH x", "ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        ("SCRIPT LOAD x", "ERR there are no scripts"),
        ("SCRIPT EXISTS", "ERR wrong number of arguments for 'script|exists' command"),
    ] {
        assert_eq!(error(&client.say(request)), refusal, "{request}");
    }
}

#[test]
fn keys_are_counted_exactly_after_each_flush() {
    let served = Served::with(&[]);
    let mut client = served.client();
    for flush in ["FLUSHALL", "FLUSHDB", "FLUSHALL"] {
        assert_eq!(client.say(flush), ok());
        let requests: Vec<String> = (0..5000).map(|n| format!("SET {n} {n}")).collect();
        let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
        client.pipeline(&requests);
        assert_eq!(client.say("DBSIZE"), int(5000), "{flush}");
    }
    let requests: Vec<String> = (0..500).map(|n| format!("DEL {n}")).collect();
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    client.pipeline(&requests);
    assert_eq!(client.say("DBSIZE"), int(4500));
    assert!(text(&client.say("INFO keyspace")).contains("db0:keys=4500,"));
    assert!(!text(&client.say("INFO server")).contains("db0:"));
}

#[test]
fn subcommands_are_counted_and_timed_apart() {
    let served = Served::with(&[]);
    let mut client = served.client();
    client.pipeline(&["CONFIG RESETSTAT", "CLIENT ID", "CLIENT ID", "CLIENT GETNAME", "GET a"]);
    let stats = text(&client.say("INFO commandstats"));
    assert!(stats.contains("cmdstat_client|id:calls=2,"), "{stats}");
    assert!(stats.contains("cmdstat_config|resetstat:calls=1,"), "{stats}");
    assert!(!stats.contains("cmdstat_client:"), "{stats}");
    let stats = text(&client.say("INFO latencystats"));
    assert!(stats.contains("latency_percentiles_usec_client|id:p50="), "{stats}");
    let names = |reply: Reply<'static>| -> Vec<String> {
        let Reply::Array(rows) = reply else { panic!("{reply:?}") };
        rows.iter().step_by(2).map(text).collect()
    };
    assert_eq!(names(client.say("LATENCY HISTOGRAM client|id")), ["client|id"]);
    let mut both = names(client.say("LATENCY HISTOGRAM CLIENT nonsense"));
    both.sort();
    assert_eq!(both, ["client|getname", "client|id"]);
    assert_eq!(names(client.say("LATENCY HISTOGRAM get")), ["get"]);
    // A refusal counts where it belongs.
    error(&client.say("CLIENT ID x"));
    let stats = text(&client.say("INFO commandstats"));
    let row = stats.lines().find(|line| line.starts_with("cmdstat_client|id:")).unwrap();
    assert!(row.contains("rejected_calls=1"), "{row}");
}

#[test]
fn an_event_that_took_long_is_drawn() {
    let served =
        Served::with(&[("enable-debug-command", "yes"), ("latency-monitor-threshold", "10")]);
    let mut client = served.client();
    let none = error(&client.say("LATENCY GRAPH command"));
    assert_eq!(none, "ERR No samples available for event 'command'");
    assert_eq!(client.say("DEBUG SLEEP 0.02"), ok());
    let drawn = text(&client.say("LATENCY GRAPH command"));
    assert!(drawn.starts_with("command - high ") && drawn.contains(" ms, low "), "{drawn}");
    assert!(error(&client.say("LATENCY GRAPH")).contains("wrong number of arguments"));
}

#[test]
fn the_log_of_refusals_has_the_whole_line_of_the_client() {
    let served = Served::with(&[]);
    let mut admin = served.client();
    admin.say("ACL SETUSER u on nopass ~* +client +auth");
    let mut user = served.client();
    user.pipeline(&["CLIENT SETNAME mine", "AUTH u x"]);
    assert!(error(&user.say("GET k")).starts_with("NOPERM"));
    let Reply::Array(entries) = admin.say("ACL LOG 1") else { panic!("no array") };
    let line = text(field(&entries[0], "client-info"));
    assert!(line.starts_with("id=") && line.contains(" name=mine ") && line.contains(" cmd=get "));
    assert!(line.contains(" user=u ") && line.contains(" lib-ver=") && !line.contains('\n'));
}

#[test]
fn a_pause_lets_writes_wait_and_reads_go_on() {
    let (served, clock) = Served::with_clock(&[]);
    let (mut client, mut writer) = (served.client(), served.client());
    client.say("SET k old");
    for (request, refusal) in [
        ("CLIENT PAUSE x", "ERR timeout is not an integer or out of range"),
        ("CLIENT PAUSE -1", "ERR timeout is negative"),
        ("CLIENT PAUSE 1 foo", "ERR CLIENT PAUSE mode must be WRITE or ALL"),
        ("CLIENT PAUSE", "ERR wrong number of arguments for 'client|pause' command"),
    ] {
        assert_eq!(error(&client.say(request)), refusal, "{request}");
    }
    let mut transaction = served.client();
    assert_eq!(transaction.say("MULTI"), ok());
    transaction.say("APPEND k !");
    assert_eq!(client.say("CLIENT PAUSE 100000 WRITE"), ok());
    // What is refused is refused at once.
    assert!(error(&writer.say("SET k")).contains("wrong number"));
    writer.send_raw(b"GET k\r\nSET k new\r\nGET k\r\n");
    assert_eq!(writer.reply(), bulk("old"));
    transaction.send_raw(b"EXEC\r\n");
    until("two clients wait", || client.info("blocked_clients") == 2);
    assert!(hears_nothing(&writer) && hears_nothing(&transaction));
    assert_eq!(client.say("GET k"), bulk("old"));
    assert_eq!(client.say("CLIENT UNPAUSE"), ok());
    assert_eq!((writer.reply(), text(&writer.reply()).starts_with("new")), (ok(), true));
    assert!(matches!(transaction.reply(), Reply::Array(_)));
    assert_eq!(client.say("GET k"), bulk("new!"));
    until("nobody waits", || client.info("blocked_clients") == 0);
    // One for all ends by time.
    assert_eq!(client.say("CLIENT PAUSE 1000"), ok());
    writer.send_raw(b"GET k\r\n");
    client.send_raw(b"CLIENT UNPAUSE\r\n");
    assert!(hears_nothing(&writer) && hears_nothing(&client));
    drop(transaction);
    clock.advance(1000);
    assert_eq!((writer.reply(), client.reply()), (bulk("new!"), ok()));
}

/// One for all is over, and one for writes begins before a loop has looked at those who wait.
#[test]
fn a_pause_for_writes_holds_no_read_that_an_earlier_one_held() {
    const LONG_MS: u64 = 100_000;
    let (served, clock) = Served::with_clock(&[]);
    let [mut client, mut reader, mut writer] = [(); 3].map(|()| served.client());
    assert_eq!(client.pipeline(&["SET k old", "CLIENT PAUSE 1000"]), [ok(), ok()]);
    reader.send_words(&["GET k"]);
    writer.send_words(&["SET k other"]);
    let pause = &served.server().pause;
    until("two clients wait", || pause.waiting() == 2);
    let end_ms = served.server().space.now_ms() + 1000;
    pause.begin(end_ms, end_ms + LONG_MS, false);
    assert_eq!(reader.reply(), bulk("old"));
    clock.advance(1000);
    assert!(hears_nothing(&writer));
    clock.advance(LONG_MS);
    assert_eq!(writer.reply(), ok());
}

/// What is written at the moment when a pause begins is committed before that is answered, or waits.
#[test]
fn nothing_is_written_after_a_pause_has_begun() {
    let served = Served::with(&[("server-threads", "4"), ("appendfsync", "always")]);
    let stop = AtomicBool::new(false);
    let mut client = served.client();
    std::thread::scope(|scope| {
        let _ended = EndOfWriters(&stop, served.client());
        for writer in 0..4 {
            let (mut client, stop) = (served.client(), &stop);
            scope.spawn(move || {
                let words = match writer {
                    0 => &["MULTI", "INCR k", "INCR k", "EXEC"][..],
                    1 => &["INCR k", "INCR k", "INCR k", "INCR k"],
                    _ => &["INCR k"],
                };
                while !stop.load(Ordering::SeqCst) {
                    client.pipeline(words);
                }
            });
        }
        for round in 0..40 {
            let before = client.say("GET k");
            until("nobody writes", || client.say("GET k") != before);
            let pause = "CLIENT PAUSE 1000000 WRITE";
            match round % 2 {
                0 => assert_eq!(client.say(pause), ok()),
                _ => {
                    let replies = client.pipeline(&["MULTI", "GET k", pause, "EXEC"]);
                    assert!(matches!(&replies[3], Reply::Array(_)), "{replies:?}");
                }
            }
            let first = client.say("GET k");
            assert!(hears_nothing(&client));
            assert_eq!(client.say("GET k"), first, "{round}");
            assert_eq!(client.say("CLIENT UNPAUSE"), ok());
        }
    });
}

/// Lets writers end, also when an assertion fails.
struct EndOfWriters<'a>(&'a AtomicBool, Client);

impl Drop for EndOfWriters<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        self.1.say("CLIENT UNPAUSE");
    }
}

#[test]
fn a_client_that_sends_nothing_more_gets_the_replies_before_what_waits() {
    let served = Served::with(&[]);
    let mut client = served.client();
    assert_eq!(client.pipeline(&["SET a 1", "CLIENT PAUSE 1000000 WRITE"]), [ok(), ok()]);
    for round in 0..20 {
        let mut leaves = served.client();
        leaves.send_raw(b"GET a\r\nSET b 1\r\n");
        leaves.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(leaves.reply(), bulk("1"), "{round}");
        assert_eq!(leaves.try_reply(), None);
    }
    until("nobody waits", || client.info("blocked_clients") == 0);
    client.say("CLIENT UNPAUSE");
    assert_eq!(client.say("GET b"), Reply::Null);
}

#[test]
fn debug_waits_for_a_pause_and_for_no_server_that_ends() {
    let served = Served::with(&[("enable-debug-command", "yes")]);
    let (mut client, mut other) = (served.client(), served.client());
    assert_eq!(client.say("CLIENT PAUSE 1000000 WRITE"), ok());
    other.send_words(&["DEBUG POPULATE 10"]);
    assert!(hears_nothing(&other));
    assert_eq!(client.say("DBSIZE"), int(0));
    assert_eq!(client.say("CLIENT UNPAUSE"), ok());
    assert_eq!(other.reply(), ok());
    assert_eq!(client.say("DBSIZE"), int(10));
    let offloads = || served.server().stats.offloads.get();
    let before = offloads();
    other.send_words(&["DEBUG SLEEP 1000000"]);
    until("it does not sleep", || offloads() > before);
    served.end();
}

#[test]
fn debug_makes_keys_and_says_what_there_is() {
    let served = Served::with(&[("enable-debug-command", "yes")]);
    let mut client = served.client();
    let Reply::Array(lines) = client.say("DEBUG HELP") else { panic!("no array") };
    let lines: Vec<String> = lines.iter().map(text).collect();
    assert!(lines.iter().any(|line| line.starts_with("POPULATE")), "{lines:?}");
    client.say("SET p:1 mine");
    for request in [
        "DEBUG SET-ACTIVE-EXPIRE 0",
        "DEBUG QUICKLIST-PACKED-THRESHOLD 1b",
        "DEBUG LOG something",
        "DEBUG POPULATE 25000",
        "DEBUG POPULATE 3 p 10",
        "DEBUG RELOAD NOSAVE",
    ] {
        assert_eq!(client.say(request), ok(), "{request}");
    }
    assert_eq!(client.say("DBSIZE"), int(25_003));
    assert_eq!(client.say("GET key:24999"), bulk("value:24999"));
    assert_eq!(client.say("GET p:1"), bulk("mine"));
    assert_eq!(client.say("GET p:2"), bulk("value:2\0\0\0"));
    error(&client.say("DEBUG POPULATE x"));
    let refused = error(&client.say("DEBUG SLEEP"));
    assert!(refused.contains("unknown subcommand or wrong number"), "{refused}");
}

#[test]
fn small_things_are_answered_as_by_redis() {
    let served = Served::with(&[]);
    let mut client = served.client();
    assert_eq!(client.info("blocked_clients"), 0);
    assert_eq!((client.info("total_forks"), client.info("hz")), (0, 10));
    assert_eq!(client.info("rdb_saves"), 0);
    assert_eq!(client.say("SAVE"), ok());
    assert_eq!(client.info("rdb_saves"), 1);
    let least = i64::MIN.to_string();
    for command in ["HRANDFIELD", "SRANDMEMBER", "ZRANDMEMBER"] {
        let refused = error(&client.call(&[command, "k", &least]));
        let wanted = "ERR value is out of range, value must between -9223372036854775807 and \
                      9223372036854775807";
        assert_eq!(refused, wanted, "{command}");
    }
    client.pipeline(&["MULTI", "BGSAVE"]);
    let Reply::Array(replies) = client.say("EXEC") else { panic!("no array") };
    assert_eq!(text(&replies[0]), "Background saving scheduled");
    for (value, encoding) in [("12", "int"), ("ab", "embstr"), (&*"a".repeat(45), "raw")] {
        assert_eq!(client.call(&["SET", "t", value]), ok());
        assert_eq!(client.say("OBJECT ENCODING t"), bulk(encoding));
    }
    for (request, refusal) in [
        ("CLIENT TRACKING ON x", "ERR syntax error"),
        ("CLIENT TRACKING ON REDIRECT 99", "ERR The client ID you want redirect to does not exist"),
        ("CLIENT TRACKING ON PREFIX a", "ERR PREFIX option requires BCAST mode to be enabled"),
        ("CLIENT TRACKING ON BCAST OPTIN", "ERR OPTIN and OPTOUT are not compatible with BCAST"),
        ("CLIENT TRACKING ON", "ERR there is no tracking of keys"),
        ("CLIENT SETINFO Nothing \u{e9}", "ERR Unrecognized option 'Nothing'"),
        (
            "CLIENT SETINFO Lib-Name \u{e9}",
            "ERR Lib-Name cannot contain spaces, newlines or special characters.",
        ),
    ] {
        assert_eq!(error(&client.say(request)), refusal, "{request}");
    }
    assert_eq!(client.say("ZADD z 123456789012345678 a 1e300 b 0.1 c"), int(3));
    let shown = shown(&client.say("ZSCAN z 0"));
    assert!(shown.contains("123456789012345680") && shown.contains("e+300"), "{shown}");
    assert_eq!(client.say("ZSCORE z a"), bulk("1.2345678901234568e+17"));
    assert_eq!(client.say("CLIENT TRACKING OFF BCAST"), ok());
    assert!(text(&client.say("MEMORY MALLOC-STATS")).contains("not supported"));
}
