//! Options over a connection: what is live and what is not, the file written and read again.

use crate::client::{Client, bulk, error, int, ok, shown, text, until};
use crate::served::Served;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use terrace::vfs::{Fault, FaultKind, OpClass, SimVfs};
use terrace_resp::Reply;
use terrace_server::config::{Config, LogLevel, OPTIONS, OptionSpec, Settings, When, option};

/// Another value than the default for every option that is live.
const LIVE: &[(&str, &str)] = &[
    ("maxmemory", "64mb"),
    ("memory-split", "auto"),
    ("appendfsync", "always"),
    ("value-separation-threshold", "2kb"),
    ("gc-garbage-ratio", "0.5"),
    ("rate-limit-bytes", "100mb"),
    ("hot-table", "auto"),
    ("background-jobs", "3"),
    ("compression", "none,zstd"),
    ("filter", "bloom:4x6,ribbon:12"),
    ("learning", "off"),
    ("http-host-names", "store.example other.example"),
    ("protected-mode", "no"),
    ("maxclients", "77"),
    ("timeout", "1000"),
    ("tcp-keepalive", "60"),
    ("client-output-buffer-limit", "normal 1gb 512mb 30"),
    ("client-query-buffer-limit", "2gb"),
    ("proto-max-bulk-len", "256mb"),
    ("requirepass", "a \"password\" \\ of # signs"),
    ("acllog-max-len", "7"),
    ("loglevel", "warning"),
    ("slowlog-log-slower-than", "0"),
    ("slowlog-max-len", "9"),
    ("latency-monitor-threshold", "1"),
    ("trace-sample-every", "7"),
];

/// What is shown of an option that was given this value.
fn canonical(name: &str, value: &str) -> String {
    let mut settings = Settings::default();
    let option = option(name).unwrap();
    option.assign(&mut settings, value).unwrap();
    option.show(&settings)
}

#[test]
fn every_live_option_changes_and_every_other_one_is_refused() {
    let listed: BTreeSet<_> = LIVE.iter().map(|(name, _)| *name).collect();
    // Key files have tests of their own: they must be there.
    let others = |option: &&OptionSpec| option.name != "encryption-key-file";
    let live = OPTIONS.iter().filter(|option| option.when == When::Live).filter(others);
    assert_eq!(listed, live.map(|option| option.name).collect());
    let served = Served::with(&[]);
    let mut client = served.client();
    for (name, value) in LIVE {
        let before = client.option(name);
        assert_eq!(client.call(&["CONFIG", "SET", name, value]), ok(), "{name}");
        let after = client.option(name);
        assert_eq!(after, canonical(name, value));
        assert_ne!(after, before, "{name}");
        let shouted = name.to_uppercase();
        assert_eq!(client.call(&["CONFIG", "SET", &shouted, &before]), ok(), "{name}");
        assert_eq!(client.option(name), before);
        for nonsense in ["", "\0", "yes no maybe", "-999999999999999999999", "\u{e9}"] {
            let reply = client.call(&["CONFIG", "SET", name, nonsense]);
            if reply != ok() {
                assert!(error(&reply).starts_with("ERR CONFIG SET failed"), "{name}: {reply:?}");
                assert_eq!(client.option(name), before);
            } else {
                assert_eq!(client.call(&["CONFIG", "SET", name, &before]), ok(), "{name}");
            }
        }
    }
    for option in OPTIONS.iter().filter(|option| option.when == When::Start) {
        let before = client.option(option.name);
        assert_eq!(client.call(&["CONFIG", "SET", option.name, &before]), ok(), "{}", option.name);
        for value in [option.default, "1", "x y"].into_iter().filter(|value| *value != before) {
            let refused = error(&client.call(&["CONFIG", "SET", option.name, value]));
            let kind = if option.name == "dir" { "protected" } else { "immutable" };
            let why = format!("'{}') - can't set {kind} config", option.name);
            assert!(refused.ends_with(&why), "{refused}");
        }
        assert_eq!(client.option(option.name), before);
    }
    for fact in ["appendonly", "save", "maxmemory-policy"] {
        assert!(error(&client.call(&["CONFIG", "SET", fact, "x"])).contains("immutable"));
    }
    let unknown = error(&client.say("CONFIG SET maxclient 5"));
    assert!(unknown.starts_with("ERR Unknown option"), "{unknown}");
}

#[test]
fn all_databases_that_may_be_asked_for_can_be_used() {
    let served = Served::with(&[("databases", "128")]);
    let mut client = served.client();
    assert_eq!(client.say("SELECT 127"), ok());
    assert_eq!(client.say("SET key last"), ok());
    assert_eq!(client.say("RPUSH list a"), int(1));
    assert_eq!(client.say("DBSIZE"), int(2));
    assert_eq!(error(&client.say("SELECT 128")), "ERR DB index is out of range");
    assert_eq!(client.say("GET key"), bulk("last"));
    let more = [("databases".to_string(), "129".to_string())];
    let refused = Config::load(None, [], more.to_vec()).unwrap_err().to_string();
    assert!(refused.contains("a whole number from 1 to 128"), "{refused}");
}

#[test]
fn several_options_change_together_or_not_at_all() {
    let served = Served::with(&[]);
    let mut client = served.client();
    for request in [
        "CONFIG SET maxclients 50 timeout x",
        "CONFIG SET maxclients 50 port 1",
        "CONFIG SET maxclients 50 maxclients 60",
        "CONFIG SET maxclients 50 nonsense 1",
        "CONFIG SET maxclients 50 client-query-buffer-limit 1mb proto-max-bulk-len 2mb",
        "CONFIG SET maxclients 50 timeout",
    ] {
        error(&client.say(request));
        assert_eq!(client.option("maxclients"), "10000", "{request}");
    }
    assert_eq!(client.say("CONFIG SET maxclients 50 timeout 7"), ok());
    assert_eq!((client.option("maxclients"), client.option("timeout")), ("50".into(), "7".into()));
    let many = shown(&client.say("CONFIG GET max* TIMEOUT"));
    assert!(["maxclients", "maxmemory", "timeout"].iter().all(|n| many.contains(n)), "{many}");
}

/// It is the store that refuses them: its manifest cannot be written.
#[test]
fn options_that_the_store_refuses_leave_all_others_as_they_were() {
    let memory = "maxmemory = \"32mb\"\n";
    let user = "[[user]]\nname = \"u\"\nrules = \"on >pw +@all\"\n";
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let path = dir.path().join("terrace.toml");
    std::fs::write(&path, format!("{memory}{user}")).unwrap();
    let sim = SimVfs::new(1);
    let files = sim.clone();
    let set = move |options: &mut terrace::Options| options.advanced.vfs = Arc::new(files.clone());
    let served = Served::start(dir, Some(&path), &[], &set);
    let mut client = served.client();
    let engine = || {
        let db = served.server().space.db();
        let names = ["background_jobs", "memory_budget", "sync", "rate_limit_bytes_per_s"];
        names.map(|name| db.option(name))
    };
    let before = engine();
    let (kind, filter) = (FaultKind::Eio, Some(OpClass::Append));
    sim.set_fault(Some(Fault { at_op: sim.op_count(), kind, forever: true, filter }));
    let pairs = "requirepass secret maxmemory 64mb appendfsync always rate-limit-bytes 100mb \
                 background-jobs 3 filter ribbon:12";
    let refused = error(&client.say(&format!("CONFIG SET {pairs}")));
    assert!(refused.starts_with("ERR CONFIG SET failed"), "{refused}");
    assert_eq!(engine(), before);
    let mut other = served.client();
    assert_eq!(other.call(&["ECHO", "without a password"]), bulk("without a password"));
    for pair in pairs.split_whitespace().collect::<Vec<_>>().chunks_exact(2) {
        assert_ne!(client.option(pair[0]), canonical(pair[0], pair[1]), "{}", pair[0]);
    }
    // The file, read again: the user would be gone.
    std::fs::write(&path, format!("{memory}filter = \"ribbon:12\"\n")).unwrap();
    served.server().reload();
    assert_eq!(other.say("AUTH u pw"), ok());
    drop((client, other));
    let _what_may_be_lost = served.try_end();
}

fn http(address: SocketAddr, host: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_string()
}

#[test]
fn what_is_live_takes_effect() {
    let served = Served::with(&[("http-port", "free")]);
    let mut client = served.client();
    let set = |request: &str| assert_eq!(served.client().say(request), ok(), "{request}");

    set("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 3");
    (0..10).for_each(|_| drop(client.say("GET k")));
    assert_eq!(client.say("SLOWLOG LEN"), int(3));
    set("CONFIG SET slowlog-log-slower-than -1");
    client.say("SLOWLOG RESET");
    client.say("GET k");
    assert_eq!(client.say("SLOWLOG LEN"), int(0));

    set("CONFIG SET acllog-max-len 2");
    (0..5).for_each(|n| drop(client.say(&format!("AUTH user{n} wrong"))));
    let Reply::Array(entries) = client.say("ACL LOG 100") else { panic!() };
    assert_eq!(entries.len(), 2);

    set("CONFIG SET maxmemory 48mb");
    assert_eq!(client.info("maxmemory"), 48 << 20);
    assert_eq!(served.server().space.db().memory().budget_bytes, 48 << 20);

    let address = served.running().http_addresses()[0];
    assert!(http(address, "localhost").contains(" 200 "));
    assert!(http(address, "store.example").contains(" 421 "));
    set("CONFIG SET http-host-names store.example");
    assert!(http(address, "store.example").contains(" 200 "));
    assert!(http(address, "evil.example").contains(" 421 "));

    let levels = Arc::new(Mutex::new(Vec::new()));
    let told = levels.clone();
    served.server().on_log_level(move |level| told.lock().unwrap().push(level));
    set("CONFIG SET loglevel nothing");
    set("CONFIG SET loglevel debug");
    assert_eq!(*levels.lock().unwrap(), [LogLevel::Nothing, LogLevel::Debug]);
}

/// The allocator belongs to the program that the server is in.
#[test]
fn memory_purge_asks_the_program_to_give_memory_back() {
    let served = Served::with(&[]);
    let mut client = served.client();
    assert_eq!(client.say("MEMORY PURGE"), ok());
    let asked = Arc::new(Mutex::new(0));
    let counted = asked.clone();
    served.server().on_memory_purge(move || *counted.lock().unwrap() += 1);
    assert_eq!(client.say("MEMORY PURGE"), ok());
    assert_eq!(*asked.lock().unwrap(), 1);
}

/// A server of a file; the file says what is given.
fn of_file(content: &str) -> (Served, PathBuf) {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let path = dir.path().join("terrace.toml");
    std::fs::write(&path, content).unwrap();
    (Served::of_file(dir, Some(&path), &[]), path)
}

#[test]
fn what_was_rewritten_is_there_at_the_next_start() {
    let (served, path) = of_file("# mine\nmaxmemory = \"32mb\" # little\ntimeout = 5\n");
    let mut client = served.client();
    assert_eq!(client.option("timeout"), "5");
    for (name, value) in LIVE {
        assert_eq!(client.call(&["CONFIG", "SET", name, value]), ok(), "{name}");
    }
    assert_eq!(client.say("CONFIG REWRITE"), ok());
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(written.starts_with("# mine\n") && written.contains("# little"), "{written}");
    // Flags win over the file, and stay out of it.
    assert!(!written.contains("\nport") && !written.contains("\ndir"), "{written}");
    // Twice changes nothing.
    assert_eq!(client.say("CONFIG REWRITE"), ok());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), written);
    drop(client);
    let dir = served.end();
    let served = Served::of_file(dir, Some(&path), &[]);
    let mut client = served.client();
    let (_, password) = LIVE.iter().find(|(name, _)| *name == "requirepass").unwrap();
    assert!(error(&client.say("PING")).starts_with("NOAUTH"));
    assert_eq!(client.call(&["AUTH", password]), ok());
    for (name, value) in LIVE {
        assert_eq!(client.option(name), canonical(name, value));
    }
    let none = error(&Served::with(&[]).client().say("CONFIG REWRITE"));
    assert_eq!(none, "ERR The server is running without a config file");
}

#[test]
fn the_file_is_read_again_and_a_broken_one_changes_nothing() {
    let user = |rules: &str| format!("[[user]]\nname = \"u\"\nrules = \"on >pw {rules}\"\n");
    let first = format!("maxclients = 100\ntimeout = 50\nslowlog-max-len = 5\n{}", user("~* +get"));
    let (served, path) = of_file(&first);
    let mut client = served.client();
    let reload = |content: &str| {
        std::fs::write(&path, content).unwrap();
        served.server().reload();
    };
    let options = |client: &mut Client| {
        ["maxclients", "timeout", "slowlog-max-len"].map(|name| client.option(name))
    };
    let as_user = || {
        let mut user = served.client();
        assert_eq!(user.say("AUTH u pw"), ok());
        user
    };
    assert!(error(&as_user().say("SET k v")).starts_with("NOPERM"));
    // What CONFIG SET changed stays, unless the file says something else about it than before.
    assert_eq!(client.say("CONFIG SET slowlog-max-len 6 timeout 60"), ok());
    let mut stays = as_user();
    reload(&format!("maxclients = 200\ntimeout = 51\nslowlog-max-len = 5\n{}", user("~* +@all")));
    assert_eq!(options(&mut client), ["200", "51", "6"]);
    assert_eq!(as_user().say("SET k v"), ok());
    assert_eq!(stays.say("GET k"), bulk("v"));
    for broken in [
        "maxclients = 300\ntimeout = [",
        "maxclients = 300\ntimeout = -1\n",
        "maxclients = 300\nnonsense = 1\n",
        "maxclients = 300\nport = \"x\"\n",
        "maxclients = 300\nclient-query-buffer-limit = \"1mb\"\n",
        "maxclients = 300\n[[user]]\nname = \"u\"\nrules = \"on +nonsense\"\n",
        "maxclients = 300\n[[user]]\nname = \"u\"\nrules = \"on\"\npassword = \"x\"\n",
    ] {
        reload(broken);
        assert_eq!(options(&mut client), ["200", "51", "6"], "{broken}");
        assert_eq!(as_user().say("GET k"), bulk("v"), "{broken}");
    }
    std::fs::remove_file(&path).unwrap();
    served.server().reload();
    assert_eq!(options(&mut client), ["200", "51", "6"]);
    // Whole again; what cannot change while it runs is left.
    reload("maxclients = 400\ndatabases = 3\n");
    assert_eq!(options(&mut client), ["400", "0", "128"]);
    assert_eq!(client.option("databases"), "16");
    // The user is not in the file any more.
    assert!(error(&served.client().say("AUTH u pw")).starts_with("WRONGPASS"));
    stays.send(&["GET", "k"]);
    stays.expect_end();
    assert_eq!(text(&client.say("ACL WHOAMI")), "default");
}

/// The names of the users in a file, in order.
fn users_in(text: &str) -> Vec<&str> {
    let of_user = text.split("[[user]]").skip(1);
    of_user.filter_map(|table| table.split('"').nth(1)).collect()
}

#[test]
fn users_that_commands_have_changed_are_written_too() {
    let first = "timeout = 5 # short\n\n# reads\n[[user]]\nname = \"kept\"\n\
                 rules = \"on >pw1 ~* +get\" # plain\n\n[[user]]\nname = \"changed\"\n\
                 rules = [\"on\", \">pw2\"]\n\n[[user]]\nname = \"gone\"\nrules = \"on >pw3\"\n";
    let (served, path) = of_file(first);
    let mut client = served.client();
    assert_eq!(client.say("CONFIG REWRITE"), ok());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), first, "nothing has changed");
    for request in [
        "ACL SETUSER changed ~app:* +@read -hgetall",
        "ACL SETUSER added on >pw4 %R~log:* +@all -config|set",
        "ACL SETUSER default >secret",
        "CONFIG SET timeout 6",
    ] {
        assert_eq!(client.say(request), ok(), "{request}");
    }
    assert_eq!(client.say("ACL DELUSER gone"), int(1));
    let before = shown(&client.say("ACL LIST"));
    assert_eq!(client.say("CONFIG REWRITE"), ok());
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(users_in(&written), ["kept", "changed", "added", "default"], "{written}");
    assert!(written.contains("timeout = 6 # short") && written.contains("# reads"), "{written}");
    assert!(written.contains("rules = \"on >pw1 ~* +get\" # plain"), "{written}");
    for secret in ["pw2", "pw3", "pw4", "secret"] {
        assert!(!written.contains(secret), "passwords that were changed are hashes: {written}");
    }
    // Again, and read again: nothing changes.
    assert_eq!(client.say("CONFIG REWRITE"), ok());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), written);
    served.server().reload();
    assert_eq!(shown(&client.say("ACL LIST")), before);
    drop(client);
    let served = Served::of_file(served.end(), Some(&path), &[]);
    let mut client = served.client();
    assert_eq!(client.say("AUTH default secret"), ok());
    assert_eq!(shown(&client.say("ACL LIST")), before);
    let mut added = served.client();
    assert_eq!(added.say("AUTH added pw4"), ok());
    assert!(error(&added.say("CONFIG SET timeout 1")).starts_with("NOPERM"));
    // As it was by default: the file says nothing of it then.
    assert_eq!(client.say("ACL SETUSER default resetpass nopass"), ok());
    assert_eq!(client.say("ACL DELUSER added changed kept"), int(3));
    assert_eq!(client.say("CONFIG REWRITE"), ok());
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(!written.contains("[[user]]"), "{written}");
}

/// Whether a write has had to wait for memtables or files.
fn writes_have_stopped(client: &mut Client) -> bool {
    let info = text(&client.call(&["INFO", "all"]));
    info.split("stops=").skip(1).any(|rest| !rest.starts_with('0'))
}

#[test]
fn a_bound_on_writes_that_commands_wait_for_holds_no_end_up() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let served = Served::start(dir, None, &[("rate-limit-bytes", "1")], &|options| {
        options.memory_budget = 4 << 20;
        options.advanced.memtable_bytes = 64 << 10;
    });
    let mut writer = TcpStream::connect(served.address()).unwrap();
    let writer = std::thread::spawn(move || {
        let command = format!("SET key {}\r\n", "v".repeat(900));
        // Until the server has gone.
        while writer.write_all(command.as_bytes()).is_ok() {}
    });
    let mut client = served.client();
    until("writes never wait", || writes_have_stopped(&mut client));
    drop(client);
    served.try_end().unwrap();
    writer.join().unwrap();
}
