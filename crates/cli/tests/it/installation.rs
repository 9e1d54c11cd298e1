//! What packages make of the program: completions, manual pages, the configuration, and the states that it sends to a
//! service notified.

use crate::process::Server;
use crate::program::Program;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use terrace_resp::test_client::HANG_GUARD;

#[test]
fn shells_get_completions_of_every_command() {
    let program = Program::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = program.ok(&["completions", shell]);
        for word in ["checkpoint", "man-pages", "maxmemory", "repartition"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
    assert_eq!(program.run(&["completions", "cmd"]).code, 2);
}

#[test]
fn every_command_has_a_manual_page() {
    let program = Program::new();
    program.ok(&["man-pages", "pages/man1"]);
    let page = |name: &str| {
        let path = program.path("pages/man1").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    assert!(page("terrace.1").contains("terrace\\-serve(1)"), "{}", page("terrace.1"));
    assert!(page("terrace-serve.1").contains("maxmemory"));
    assert!(page("terrace-cluster-move.1").contains("home"));
    let file = program.write("file", "");
    assert!(program.fails(1, &["man-pages", &file]).contains("manual pages"));
}

/// What a service tells its state to.
struct NotifySocket {
    socket: UnixDatagram,
    path: PathBuf,
}

impl NotifySocket {
    fn new(program: &Program) -> Self {
        let path = program.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(HANG_GUARD)).unwrap();
        Self { socket, path }
    }

    fn start(&self, program: &Program, flags: &[&str]) -> Server {
        let mut command = program.command(&[]);
        command.env("NOTIFY_SOCKET", &self.path);
        Server::terrace(command, flags)
    }

    /// The next state that a service sends.
    fn state(&self) -> String {
        let mut bytes = [0; 256];
        let len = self.socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    }
}

fn terminate(server: &Server) {
    let id = server.child.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
}

/// As it is, and with the options that its comments propose.
#[test]
fn the_configuration_of_the_service_is_one() {
    let packaged = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/terrace.toml");
    let text = std::fs::read_to_string(packaged).unwrap();
    let proposed = |line: &str| {
        let line = line.strip_prefix("# ")?;
        let (name, _) = line.split_once(" = ")?;
        (!name.contains(' ')).then(|| line.to_string())
    };
    let lines = text.lines().map(|line| proposed(line).unwrap_or_else(|| line.to_string()) + "\n");
    let with_proposals: String = lines.collect();
    assert_ne!(with_proposals, text, "nothing is proposed");
    for text in [text, with_proposals] {
        let program = Program::new();
        program.write("terrace.toml", &text);
        let notified = NotifySocket::new(&program);
        let mut server = notified.start(&program, &["--dir", "data"]);
        assert_eq!(notified.state(), "READY=1");
        terminate(&server);
        server.end_well();
    }
}

#[test]
fn systemd_learns_that_the_server_is_ready_and_that_it_stops() {
    let program = Program::new();
    let notified = NotifySocket::new(&program);
    let mut server = notified.start(&program, &[]);
    assert_eq!(notified.state(), "READY=1");
    terminate(&server);
    assert_eq!(notified.state(), "STOPPING=1");
    server.end_well();
    notified.socket.set_nonblocking(true).unwrap();
    assert!(notified.socket.recv(&mut [0; 256]).is_err(), "and nothing else");
}

/// A server that cannot reach its service manager serves all the same.
#[test]
fn a_notify_socket_that_is_gone_is_logged() {
    let program = Program::new();
    let mut command = program.command(&[]);
    command.env("NOTIFY_SOCKET", program.path("gone"));
    let mut server = Server::terrace(command, &[]);
    let end = Instant::now() + HANG_GUARD;
    while !server.log().contains("cannot be notified") {
        server.wait_a_little("it logs nothing", end);
    }
    terminate(&server);
    server.end_well();
}
