//! Who gets in: protected mode, passwords, and that they are shown nowhere.

use crate::client::{Client, bulk, error, field, int, ok, shown, text};
use crate::served::Served;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;
use terrace_resp::Reply;
use terrace_server::Running;
use terrace_server::command::table;
use terrace_server::config::Config;

/// An address of this machine that is not loopback, if it has one. Nothing is sent.
fn outside_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

fn simple(text: &str) -> Reply<'static> {
    Reply::Simple(text.as_bytes().to_vec().into())
}

#[test]
fn by_default_only_this_machine_can_connect() {
    let dir = tempfile::tempdir().unwrap();
    let mut tries = 0;
    let running = loop {
        let flags = [
            ("dir", dir.path().join("store").to_string_lossy().into_owned()),
            ("port", crate::client::free_port().to_string()),
            ("http-port", crate::client::free_port().to_string()),
        ];
        let flags = flags.map(|(name, value)| (name.to_string(), value));
        match Running::start(Config::load(None, [], flags).unwrap()) {
            Ok(running) => break running,
            Err(error) => assert!(tries < 20 && error.to_string().contains("listen"), "{error}"),
        }
        tries += 1;
    };
    for addresses in [running.addresses(), running.http_addresses()] {
        assert!(!addresses.is_empty());
        assert!(addresses.iter().all(|address| address.ip().is_loopback()), "{addresses:?}");
        if let Some(ip) = outside_address() {
            TcpStream::connect((ip, addresses[0].port())).expect_err("reached from outside");
        }
    }
    running.end().unwrap();
}

/// No machine has one of the addresses (reserved: RFC 1112, section 4), and all may be left out.
#[test]
fn a_server_that_would_listen_nowhere_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store").to_string_lossy().into_owned();
    for (bind, http_bind) in [("-240.0.0.1 -240.0.0.2", "127.0.0.1"), ("127.0.0.1", "-240.0.0.2")] {
        let flags = [
            ("dir", store.clone()),
            ("bind", bind.to_string()),
            ("http-bind", http_bind.to_string()),
            ("port", crate::client::free_port().to_string()),
            ("http-port", crate::client::free_port().to_string()),
        ];
        let flags = flags.map(|(name, value)| (name.to_string(), value));
        let refused = Running::start(Config::load(None, [], flags).unwrap()).err().unwrap();
        assert!(refused.to_string().contains("cannot listen on 240.0.0.2:"), "{refused}");
    }
}

#[test]
fn without_a_password_strangers_are_told_why_they_are_not_served() {
    let outside = outside_address();
    let bind = outside.map_or("127.0.0.1".into(), |ip| format!("127.0.0.1 {ip}"));
    let served = Served::with(&[("bind", &bind)]);
    let mut own = served.client();
    let refusal = |address: &str| served.server().refusal(&address.parse().unwrap());
    for stranger in ["192.0.2.1:5", "[2001:db8::1]:5", "[::ffff:192.0.2.1]:5", "0.0.0.0:5"] {
        assert!(refusal(stranger).unwrap().starts_with("-DENIED "), "{stranger}");
    }
    for own in ["127.0.0.1:5", "127.9.9.9:5", "[::1]:5", "[::ffff:127.0.0.1]:5"] {
        assert_eq!(refusal(own), None, "{own}");
    }
    let is_kept_out = |peer: &str| served.server().is_protected_from(peer.parse().unwrap());
    assert!(is_kept_out("10.0.0.1") && is_kept_out("fe80::1"));
    assert!(!is_kept_out("127.0.0.1") && !is_kept_out("::ffff:127.0.0.1"));
    // What follows is about a real connection; a machine without a network has none to offer.
    let Some(ip) = outside else { return };
    let address = SocketAddr::new(ip, served.address().port());
    let before = own.info("rejected_connections");
    let mut stranger = Client::connect(address);
    let denied = error(&stranger.reply());
    assert!(denied.starts_with("DENIED ") && denied.contains("requirepass"), "{denied}");
    stranger.expect_end();
    assert_eq!(own.info("rejected_connections"), before + 1);
    assert_eq!(own.say("CONFIG SET protected-mode no"), ok());
    assert_eq!(Client::connect(address).say("PING"), simple("PONG"));
    assert_eq!(own.say("CONFIG SET protected-mode yes requirepass secret"), ok());
    let mut stranger = Client::connect(address);
    assert!(error(&stranger.say("PING")).starts_with("NOAUTH"));
    assert_eq!(stranger.say("AUTH secret"), ok());
}

#[test]
fn nothing_but_a_login_is_answered_before_one() {
    let served = Served::with(&[("requirepass", "correct horse")]);
    let mut client = served.client();
    let for_guests = ["auth", "hello", "quit", "reset"];
    for spec in table().all().iter().filter(|spec| !for_guests.contains(&spec.name)) {
        let first = spec.subcommands().first();
        let mut request: Vec<&str> =
            std::iter::once(spec.name).chain(first.map(|one| one.name)).collect();
        let arity = first.map_or(spec.arity, |one| one.arity);
        request.resize(arity.unsigned_abs() as usize, "1");
        let refusal = error(&client.call(&request));
        // That of EXEC has something in front.
        let wanted = match spec.name {
            "exec" => "EXECABORT Transaction discarded because of: NOAUTH Authentication required.",
            _ => "NOAUTH Authentication required.",
        };
        assert_eq!(refusal, wanted, "{request:?}");
    }
    assert!(error(&client.say("HELLO")).starts_with("NOAUTH"));
    assert!(error(&client.say("HELLO 3")).starts_with("NOAUTH"));
    assert_eq!(client.say("RESET"), simple("RESET"));
    for wrong in [
        &["AUTH", "correct"][..],
        &["AUTH", ""],
        &["AUTH", "correct horse "],
        &["AUTH", "default", "wrong"],
        &["AUTH", "nobody", "correct horse"],
        &["AUTH", "Default", "correct horse"],
        &["HELLO", "3", "AUTH", "default", "wrong"],
    ] {
        let refused = error(&client.call(wrong));
        assert!(refused.starts_with("WRONGPASS invalid username-password pair"), "{refused}");
        assert!(error(&client.say("GET 1")).starts_with("NOAUTH"));
    }
    assert_eq!(client.call(&["AUTH", "default", "correct horse"]), ok());
    // Nothing of what was refused has happened.
    assert_eq!(client.say("DBSIZE"), int(0));
    assert_eq!(client.info("acl_access_denied_auth"), 7);
    assert_eq!(client.say("RESET"), simple("RESET"));
    assert!(error(&client.say("PING")).starts_with("NOAUTH"));
    let hello = client.call(&["HELLO", "3", "AUTH", "default", "correct horse", "SETNAME", "me"]);
    assert!(matches!(hello, Reply::Map(_)), "{hello:?}");
    assert_eq!(client.say("CLIENT GETNAME"), bulk("me"));
    let mut guest = served.client();
    assert_eq!(guest.say("QUIT"), ok());
    guest.expect_end();
    assert_eq!(served.client().call(&["AUTH", "correct horse"]), ok());
}

/// As by Redis.
#[test]
fn what_is_no_command_is_refused_as_such_before_a_login_too() {
    let served = Served::with(&[("requirepass", "pw")]);
    let mut client = served.client();
    for (request, refusal) in [
        ("NOSUCH", "ERR unknown command 'NOSUCH', with args beginning with: "),
        ("GET", "ERR wrong number of arguments for 'get' command"),
        ("AUTH", "ERR wrong number of arguments for 'auth' command"),
        ("AUTH a b c", "ERR syntax error"),
        ("RESET x", "ERR wrong number of arguments for 'reset' command"),
        ("CLIENT", "ERR wrong number of arguments for 'client' command"),
        ("CONFIG NOSUCH x", "ERR unknown subcommand 'NOSUCH'. Try CONFIG HELP."),
        (
            "EXEC x",
            "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' \
             command",
        ),
        (
            "HELLO 3",
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO AUTH <user> <pass> option can be used to authenticate the client and select the \
             RESP protocol version at the same time",
        ),
    ] {
        assert_eq!(error(&client.say(request)), refusal, "{request}");
    }
}

#[test]
fn the_password_changes_while_the_server_runs() {
    let served = Served::with(&[]);
    let mut early = served.client();
    assert_eq!(early.say("CONFIG SET requirepass first"), ok());
    // Who is in stays in, as in Redis.
    assert_eq!(early.say("PING"), simple("PONG"));
    let mut late = served.client();
    assert!(error(&late.say("PING")).starts_with("NOAUTH"));
    assert_eq!(late.say("AUTH first"), ok());
    assert_eq!(early.say("CONFIG SET requirepass second"), ok());
    assert_eq!(early.option("requirepass"), "second");
    let mut later = served.client();
    assert!(error(&later.say("AUTH first")).starts_with("WRONGPASS"));
    assert_eq!(later.say("AUTH second"), ok());
    assert_eq!(early.call(&["CONFIG", "SET", "requirepass", ""]), ok());
    assert_eq!(served.client().say("PING"), simple("PONG"));
}

#[test]
fn passwords_are_shown_nowhere() {
    // The option is shown by CONFIG GET, to those who may run it; nothing else shows a password.
    const SECRETS: [&str; 5] = ["hunter2", "bobs-own", "mistaken", "third-one", "fourth-one"];
    let served = Served::with(&[
        ("requirepass", "hunter2"),
        ("slowlog-log-slower-than", "0"),
        ("slowlog-max-len", "1000"),
    ]);
    let mut client = served.client();
    for mistake in ["AUTH mistaken", "AUTH bob mistaken", "HELLO 3 AUTH default mistaken"] {
        assert!(error(&client.say(mistake)).starts_with("WRONGPASS"));
    }
    assert_eq!(client.say("AUTH hunter2"), ok());
    for request in [
        "HELLO 2 AUTH default hunter2",
        "auth default hunter2",
        "ACL SETUSER bob on >bobs-own ~* +@all",
        "Acl SetUser bob >third-one <bobs-own",
        "CONFIG SET timeout 1000 requirepass third-one",
        "config set RequirePass hunter2 timeout 0",
        "AUTH bob third-one",
        "CONFIG SET requirepass fourth-one maxclients 0",
        "ACL SETUSER bob >fourth-one nonsense",
        "ACL DRYRUN bob AUTH default hunter2",
        "MULTI",
        "ACL SETUSER bob >third-one",
        "EXEC",
    ] {
        let reply = shown(&client.say(request));
        assert!(SECRETS.iter().all(|secret| !reply.contains(secret)), "{request}: {reply}");
    }
    for request in [
        "SLOWLOG GET 1000",
        "INFO everything",
        "CLIENT LIST",
        "CLIENT INFO",
        "ACL LIST",
        "ACL GETUSER default",
        "ACL GETUSER bob",
        "ACL LOG 1000",
        "LATENCY LATEST",
        "LATENCY DOCTOR",
        "MEMORY STATS",
        "KEYS *",
    ] {
        let reply = shown(&client.say(request));
        assert!(reply.len() > 2, "{request}: {reply}");
        for secret in SECRETS {
            assert!(!reply.contains(secret), "{secret} in {request}: {reply}");
        }
    }
    let slow = shown(&client.say("SLOWLOG GET 1000"));
    assert!(slow.contains("(redacted)") && slow.contains("SetUser"), "{slow}");
    let dump = format!("{:?} {:?}", served.server().config.dump(), served.server().config);
    assert!(SECRETS.iter().all(|secret| !dump.contains(secret)), "{dump}");
    assert_eq!(client.option("requirepass"), "hunter2");
    // SHA-256 of "third-one" and of nothing else.
    let user = client.say("ACL GETUSER bob");
    let Reply::Array(hashes) = field(&user, "passwords") else { panic!("{user:?}") };
    assert_eq!(hashes.len(), 1);
    assert!(
        text(&hashes[0]).len() == 64 && text(&hashes[0]).bytes().all(|b| b.is_ascii_hexdigit())
    );
}

/// The first line of the answer to `GET path` of a user with a password, in Base64.
fn status_of(served: &Served, path: &str, login: &str) -> String {
    let mut stream = TcpStream::connect(served.running().http_addresses()[0]).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {login}\r\n\
         Connection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_string()
}

/// What `CONFIG GET` refuses is not shown by the page of options either.
#[test]
fn rules_about_subcommands_hold_for_pages_too() {
    let served = Served::with(&[("http-port", "free"), ("requirepass", "secret")]);
    let mut admin = served.client();
    assert_eq!(admin.say("AUTH secret"), ok());
    // "a:pw"
    let login = "YTpwdw==";
    for (rules, may_see_options, may_read) in [
        ("+@all", true, true),
        ("+@all -config", false, true),
        ("+@all -config -acl", false, true),
        ("+@all -config|get", false, true),
        ("+@all -object", true, false),
        ("+@read", false, true),
        ("+@read -memory|usage", false, false),
    ] {
        assert_eq!(admin.say(&format!("ACL SETUSER a reset on >pw ~* &* {rules}")), ok());
        let expected = |may: bool| if may { " 200 " } else { " 403 " };
        let options = status_of(&served, "/api/v1/config", login);
        assert!(options.contains(expected(may_see_options)), "{rules}: {options}");
        let keys = status_of(&served, "/api/v1/keys", login);
        assert!(keys.contains(expected(may_read)), "{rules}: {keys}");
    }
}

/// The stream of events of the page, of a user with a password in Base64 or of nobody.
fn events(served: &Served, login: Option<&str>) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(served.running().http_addresses()[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let login = login.map_or(String::new(), |login| format!("Authorization: Basic {login}\r\n"));
    write!(stream, "GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n{login}\r\n").unwrap();
    BufReader::new(stream)
}

/// Whether one more event comes before the last chunk.
fn goes_on(events: &mut BufReader<TcpStream>) -> bool {
    let mut line = String::new();
    while events.read_line(&mut line).unwrap() > 0 && line.trim_end() != "0" {
        if line.starts_with("data: ") {
            return true;
        }
        line.clear();
    }
    false
}

#[test]
fn an_open_page_gets_nothing_more_when_its_login_has_ended() {
    let served = Served::with(&[("http-port", "free")]);
    let mut admin = served.client();
    let mut of_nobody = events(&served, None);
    assert!(goes_on(&mut of_nobody) && goes_on(&mut of_nobody));
    assert_eq!(admin.say("CONFIG SET requirepass secret"), ok());
    assert!((0..20).any(|_| !goes_on(&mut of_nobody)));
    assert_eq!(admin.say("AUTH secret"), ok());
    for change in [
        "ACL SETUSER a off",
        "ACL SETUSER a resetpass >other",
        "ACL SETUSER a -@read",
        "ACL DELUSER a",
    ] {
        assert_eq!(admin.say("ACL SETUSER a reset on >pw ~* &* +@read"), ok());
        // "a:pw"
        let mut of_a = events(&served, Some("YTpwdw=="));
        assert!(goes_on(&mut of_a) && goes_on(&mut of_a), "{change}");
        let said = admin.say(change);
        assert!(!matches!(said, Reply::Error(_)), "{change}: {said:?}");
        assert!((0..20).any(|_| !goes_on(&mut of_a)), "{change}");
    }
}
