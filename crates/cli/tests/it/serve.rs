//! `terrace serve` as a process: its signals, its memory under those who mean no good.

use crate::process::Server;
use crate::program::{Program, end_of, holds_up};
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use terrace_resp::test_client::{HANG_GUARD, free_port};

/// A server with a file of options.
struct Serving {
    server: Server,
    program: Program,
}

impl Serving {
    /// With this `terrace.toml` and these flags.
    fn start(file: &str, flags: &[&str]) -> Self {
        let program = Program::new();
        program.write("terrace.toml", file);
        Self { server: Server::terrace(program.command(&[]), flags), program }
    }

    fn try_connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.server.port))?;
        stream.set_read_timeout(Some(HANG_GUARD))?;
        Ok(stream)
    }

    /// Waits until `what` holds; the server must not end meanwhile.
    fn until(&mut self, why: &str, what: impl Fn(&Self) -> bool) {
        let end = Instant::now() + HANG_GUARD;
        while !what(self) {
            self.server.wait_a_little(why, end);
        }
    }

    /// Everything that is answered to inline requests, the last of which ends the connection.
    fn ask(&self, requests: &str) -> String {
        let mut stream = self.try_connect().unwrap();
        write!(stream, "{requests}\r\nQUIT\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn option(&self, name: &str) -> String {
        let answer = self.ask(&format!("CONFIG GET {name}"));
        answer.lines().nth(4).unwrap_or_else(|| panic!("{answer}")).to_string()
    }

    fn signal(&self, name: &str) {
        signal(&self.server.child, name);
    }

    /// Bytes of the process in memory.
    fn resident(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// The most bytes of the process that were in memory.
    fn most_resident(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    fn status_bytes(&self, name: &str) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.server.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn the_file_is_read_again_at_sighup() {
    let mut serving = Serving::start("maxclients = 100\ntimeout = 0\n", &[]);
    assert_eq!(serving.option("maxclients"), "100");
    serving.program.write("terrace.toml", "maxclients = 200\ntimeout = 1000\ndatabases = 3\n");
    serving.signal("HUP");
    serving.until("it does not read its file", |serving| serving.option("maxclients") == "200");
    assert_eq!(serving.option("timeout"), "1000");
    // What needs a new start is left, and said to be.
    assert_eq!(serving.option("databases"), "16");
    serving.until("it says nothing", |serving| serving.server.log().contains("read again"));
    serving.until("it does not say what is left", |serving| {
        serving.server.log().contains("refused: [\"databases\"]")
    });
    serving.program.write("terrace.toml", "maxclients = 300\ntimeout = \"soon\"\n");
    serving.signal("HUP");
    serving.until("it does not say that the file is broken", |serving| {
        let log = serving.server.log();
        log.contains("stays as it was") && log.contains("timeout")
    });
    assert_eq!(
        (serving.option("maxclients"), serving.option("timeout")),
        ("200".into(), "1000".into())
    );
    serving.signal("TERM");
    serving.server.end_well();
}

/// `-v` is how much is logged, not how, and not for good.
#[test]
fn a_verbose_server_logs_as_its_options_say() {
    let mut serving = Serving::start("", &["-v", "--log-format", "json"]);
    assert_eq!(serving.option("loglevel"), "verbose");
    serving.ask("CONFIG SET loglevel nothing");
    assert_eq!(serving.option("loglevel"), "nothing");
    serving.until("it says nothing", |serving| serving.server.log().contains("\"INFO\""));
    serving.signal("TERM");
    serving.server.end_well();
    let log = serving.server.log();
    for line in log.lines() {
        let object: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(object["level"].is_string(), "{line}");
    }
    assert!(!log.contains("told to stop"), "{log}");
    // What an option says is said on purpose.
    let serving = Serving::start("loglevel = \"warning\"\n", &["-vv"]);
    assert_eq!(serving.option("loglevel"), "warning");
}

#[test]
fn the_log_can_be_json() {
    let file = "log-format = \"json\"\nloglevel = \"debug\"\n";
    let mut serving = Serving::start(file, &[]);
    serving.ask("SET field rice");
    serving.program.write("terrace.toml", "timeout = 1000\n");
    serving.signal("HUP");
    serving.until("it says nothing", |serving| serving.server.log().contains("read again"));
    serving.signal("TERM");
    serving.server.end_well();
    let log = serving.server.log();
    let mut levels = Vec::new();
    for line in log.lines() {
        let object: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in ["timestamp", "level", "target", "message"] {
            assert!(object[field].is_string(), "{field}: {line}");
        }
        levels.push(object["level"].as_str().unwrap().to_string());
    }
    assert!(levels.iter().any(|level| level == "INFO"), "{log}");
}

#[test]
fn why_a_server_ends_is_json_too() {
    let program = Program::new();
    let file = program.write("file", "");
    let flags = ["serve", "--port", "0", "--http-port", "0", "--dir", &file];
    let json = [&flags[..], &["--log-format", "json"]].concat();
    let ran = program.run(&json);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let last = ran.err.lines().last().unwrap();
    let object: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(object["level"], "ERROR");
    assert!(object["message"].as_str().unwrap().contains(&file), "{object}");
    // Where nothing is logged it is said all the same.
    let unlogged = [&json[..], &["--loglevel", "nothing"]].concat();
    assert!(program.fails(1, &unlogged).contains(&file));
}

/// A signal during the start is neither lost nor the end of the process.
#[test]
fn a_sighup_during_the_start_is_heard() {
    let mut serving = Serving::start("maxclients = 100\nappendfsync = \"no\"\n", &[]);
    let dir = serving.program.path(&serving.option("dir"));
    // A log whose replay takes a while.
    let mut stream = serving.try_connect().unwrap();
    let value = "v".repeat(1000);
    let requests: String = (0..8000).map(|n| format!("SET key{n} {value}\r\n")).collect();
    stream.write_all(requests.as_bytes()).unwrap();
    serving.until("it does not write", |serving| serving.ask("EXISTS key7999").starts_with(":1"));
    serving.server.child.kill().unwrap();
    serving.server.child.wait().unwrap();
    let port = free_port().to_string();
    let mut command = serving.program.command(&[]);
    command.args(["serve", "--http-port", "0", "--bind", "127.0.0.1", "--port", &port]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let lock = dir.join("LOCK");
    std::fs::remove_file(&lock).unwrap();
    let mut child = command.spawn().unwrap();
    while !lock.exists() {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before it opened the store");
        std::thread::yield_now();
    }
    serving.program.write("terrace.toml", "maxclients = 200\n");
    serving.server.child = child;
    serving.server.port = port.parse().unwrap();
    serving.signal("HUP");
    serving.until("it does not listen", |serving| serving.try_connect().is_ok());
    serving.until("it does not read its file", |serving| serving.option("maxclients") == "200");
    serving.signal("TERM");
    serving.server.end_well();
}

/// Nor does what comes behind it wait for the end of the start.
#[test]
fn a_sigterm_behind_a_sighup_ends_a_start_that_takes_long() {
    let program = Program::new();
    let keys = program.path("keys");
    assert!(Command::new("mkfifo").arg(&keys).status().unwrap().success());
    let flags = ["serve", "--port", "0", "--http-port", "0", "--encryption-key-file", "keys"];
    let mut command = program.command(&flags);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // It hears signals by then.
    let _writer = holds_up(&mut child, &keys);
    signal(&child, "HUP");
    signal(&child, "TERM");
    let ended = end_of(child);
    assert_eq!(ended.signal(), Some(libc::SIGTERM), "{ended}");
}

/// What is meant for the server and cannot be read is not passed over: it may be a password.
#[test]
fn a_variable_of_an_option_that_is_no_text_is_refused() {
    let program = Program::new();
    let file = program.write("file", "");
    let flags = ["serve", "--port", "0", "--http-port", "0", "--dir", &file];
    let mut command = program.command(&flags);
    command.env("TERRACE_REQUIREPASS", OsStr::from_bytes(b"p\xffw"));
    command.env("TERRACE_OF_ANOTHER_PROGRAM", OsStr::from_bytes(b"\xff"));
    let ended = command.output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert_eq!(said, "terrace: TERRACE_REQUIREPASS in the environment is not UTF-8\n");
}

#[test]
fn a_configuration_that_is_a_link_to_nothing_is_not_passed_over() {
    let program = Program::new();
    std::os::unix::fs::symlink("gone.toml", program.path("terrace.toml")).unwrap();
    let file = program.write("file", "");
    let flags = ["serve", "--port", "0", "--http-port", "0", "--dir", &file];
    let said = program.fails(1, &flags);
    assert!(said.starts_with("terrace: terrace.toml: "), "{said}");
}

/// Connections that announce as much as they may and send next to nothing.
#[test]
fn announcements_take_no_memory() {
    // Buffers of the connections, and what the allocator keeps.
    const MAX_GROWTH: u64 = 48 << 20;
    const CONNECTIONS: usize = 500;
    let mut grown = Vec::new();
    for (file, words) in [
        // Half a gigabyte each, of a client.
        ("", &b"*2147483647\r\n$536870912\r\nabc"[..]),
        ("", b"*2147483647\r\n$3\r\nSET\r\n$536870912\r\n"),
        // 160 KiB each, of a guest.
        ("requirepass = \"pw\"\n", b"*10\r\n$16384\r\nabc"),
        ("requirepass = \"pw\"\n", b"*10\r\n$4\r\nAUTH\r\n$16384\r\n"),
    ] {
        let file = format!("{file}maxmemory = \"16mb\"\n");
        let serving = Serving::start(&file, &[]);
        serving.ask("PING");
        let before = serving.resident();
        let mut open = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut stream = serving.try_connect().unwrap();
            stream.write_all(words).unwrap();
            open.push(stream);
        }
        // Served after all of them.
        assert!(serving.ask("PING").ends_with("+OK\r\n"));
        let growth = serving.resident().saturating_sub(before);
        assert!(growth < MAX_GROWTH, "{growth} bytes for {}", words.escape_ascii());
        grown.push(growth >> 10);
    }
    println!("KiB for {CONNECTIONS} connections: {grown:?}");
}

/// What takes some kilobytes to ask for holds large values once, not once for each command, also in a transaction
/// and in a reply.
#[test]
fn small_requests_about_large_values_take_little_memory() {
    const MAX_GROWTH: u64 = 256 << 20;
    let file = "maxmemory = \"16mb\"\nclient-output-buffer-limit = \"normal 64mb 0 0\"\n";
    let times = |count: usize, words: &dyn Fn(usize) -> String| -> String {
        (0..count).map(|at| words(at) + "\r\n").collect()
    };
    let value = "SETRANGE s 8000000 x\r\n";
    let set_bits = times(300, &|at| format!("SETBIT bits {at} 1"));
    for requests in [
        format!("SETBIT bits 64000000 1\r\nMULTI\r\n{set_bits}EXEC\r\n"),
        format!("{value}{}", times(60, &|_| "APPEND s y".into())),
        format!("{value}{}", times(60, &|at| format!("COPY s copy{at}"))),
        format!("{value}MGET{}\r\n", " s".repeat(300)),
        format!("{value}MULTI\r\n{}EXEC\r\n", times(300, &|_| "GET s".into())),
    ] {
        let serving = Serving::start(file, &[]);
        serving.ask("PING");
        let before = serving.resident();
        let mut stream = serving.try_connect().unwrap();
        write!(stream, "{requests}QUIT\r\n").unwrap();
        // It is answered, or the connection ends.
        let _ended = std::io::copy(&mut stream, &mut std::io::sink());
        assert!(serving.ask("PING").contains("PONG"));
        let growth = serving.most_resident().saturating_sub(before);
        assert!(growth < MAX_GROWTH, "{growth} bytes for {}", &requests[..40]);
    }
}

/// A guest who sends without end what is no login costs no more than one request.
#[test]
fn guests_cannot_fill_the_memory() {
    const MAX_GROWTH: u64 = 48 << 20;
    let serving = Serving::start("requirepass = \"pw\"\nmaxmemory = \"16mb\"\n", &[]);
    serving.ask("PING");
    let before = serving.resident();
    let long = "x".repeat(16_000);
    let request = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{long}\r\n", long.len());
    let mut threads = Vec::new();
    for _ in 0..8 {
        let (mut stream, request) = (serving.try_connect().unwrap(), request.clone());
        threads.push(std::thread::spawn(move || {
            let mut answers = stream.try_clone().unwrap();
            let reader = std::thread::spawn(move || {
                let mut text = String::new();
                answers.read_to_string(&mut text).map(|_| text)
            });
            (0..1000).for_each(|_| stream.write_all(request.as_bytes()).unwrap());
            stream.write_all(b"QUIT\r\n").unwrap();
            reader.join().unwrap().unwrap()
        }));
    }
    for thread in threads {
        let answers = thread.join().unwrap();
        assert_eq!(answers.matches("-NOAUTH").count(), 1000);
    }
    let growth = serving.resident().saturating_sub(before);
    assert!(growth < MAX_GROWTH, "{growth} bytes");
}
