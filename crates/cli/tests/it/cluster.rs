//! `terrace cluster`: three nodes in one process, what is asked of them, and their second start.

use crate::process::Server;
use crate::program::{Program, end_of, holds_up};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use terrace_resp::Reply;
use terrace_resp::test_client::{Client, free_port, free_ports, until};

/// A cluster that was started, and whose shards are all served.
struct Up {
    server: Server,
    at: String,
}

impl Up {
    fn start(program: &Program, port: u16, flags: &[&str]) -> Self {
        Self::start_to(Stdio::null(), program, port, flags)
    }

    fn start_to(out: Stdio, program: &Program, port: u16, flags: &[&str]) -> Self {
        let mut command = program.command(&["cluster", "up", "--http-port", "0"]);
        command.args(["--port", &port.to_string(), "--set", "maxmemory=64mb"]);
        // No pause of a loaded machine ends a lease.
        command.args(["--set", "cluster-lease=60000"]).args(flags);
        let up =
            Self { server: Server::start(out, command, port), at: format!("127.0.0.1:{port}") };
        until("not every shard is served", || {
            program.run(&["cluster", "status", "--at", &up.at]).code == 0
        });
        up
    }

    fn client(&self) -> Client {
        Client::connect(([127, 0, 0, 1], self.server.port).into())
    }

    fn stop(mut self) {
        let id = self.server.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
        self.server.end_well();
    }
}

/// Where somebody answers this many requests with `text`, one a connection.
fn answers_with(text: String, requests: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for _ in 0..requests {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 10]).unwrap();
            write!(stream, "${}\r\n{text}\r\n", text.len()).unwrap();
            // Until the other end has read it.
            drop(std::io::copy(&mut stream, &mut std::io::sink()));
        }
    });
    address
}

#[test]
fn a_cluster_whose_output_has_no_room_serves_and_ends_well() {
    let (program, port) = (Program::new(), free_ports(2));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let up = Up::start_to(full.into(), &program, port, &["--instances", "2"]);
    assert_eq!(up.client().call(&["SET", "key", "v"]), Reply::Simple(b"OK".into()));
    until("it is logged", || up.server.log().contains("standard output cannot be written"));
    up.stop();
}

#[test]
fn a_signal_ends_a_cluster_whose_start_takes_long() {
    let (program, port) = (Program::new(), free_ports(2));
    let certificate = program.path("certificate");
    assert!(Command::new("mkfifo").arg(&certificate).status().unwrap().success());
    let mut command = program.command(&["cluster", "up", "--instances", "1", "--http-port", "0"]);
    command.args(["--port", &port.to_string(), "--set", &format!("tls-port={}", port + 1)]);
    command.args(["--set", "tls-cert-file=certificate", "--set", "tls-key-file=certificate"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // It hears signals by then.
    let _writer = holds_up(&mut child, &certificate);
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
    let ended = end_of(child);
    assert_eq!(ended.signal(), Some(libc::SIGTERM), "{ended}");
}

#[test]
fn a_cluster_is_started_changed_and_started_again() {
    let (program, port) = (Program::new(), free_ports(3));
    let up = Up::start(&program, port, &[]);
    let at = up.at.clone();
    let ok = |words: &[&str]| program.ok(&[&["cluster"], words, &["--at", &at]].concat());
    let mut client = up.client();
    for n in 0..300 {
        assert_eq!(client.call(&["SET", &format!("key:{n}"), "v"]), Reply::Simple(b"OK".into()));
    }
    let page = ok(&["status"]);
    assert!(page.starts_with("cluster terrace: slots, every shard is served"), "{page}");
    for wanted in ["0-5460", "5461-10921", "10922-16383", &at] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    let status: serde_json::Value = serde_json::from_str(&ok(&["status", "--json"])).unwrap();
    assert_eq!(status["nodes"].as_array().unwrap().len(), 3);
    assert!(status["nodes"].as_array().unwrap().iter().all(|node| node["report"]["writes"] != 0));

    // Somebody who says the same, but that not all is served.
    let mut away = status.clone();
    away["is_served"] = false.into();
    let somebody = answers_with(away.to_string(), 2);
    for form in [&["status"][..], &["status", "--json"]] {
        let ran = program.run(&[&["cluster"], form, &["--at", &somebody]].concat());
        assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{form:?}");
    }

    // A key goes to each shard, so at least twice elsewhere.
    for shard in ["1", "2", "3"] {
        assert_eq!(ok(&["move", "key:7", shard]), format!("moved \"key:7\" to {shard}\n"));
        assert_eq!(client.call(&["GET", "key:7"]), Reply::Bulk(b"v".into()));
    }
    let told = ok(&["repartition", "top-n-to-one:50:2", "--keys", "100"]);
    // Although nothing has left the log by itself.
    assert!(told.starts_with("the plan has ") && !told.contains("has 0 keys"), "{told}");
    let first = status["nodes"][0]["id"].as_str().unwrap();
    assert!(ok(&["drain", first]).ends_with("owns no shard any more\n"));
    until("nobody takes the shard over", || {
        program.run(&["cluster", "status", "--at", &at]).code == 0
    });
    // Keys of the other shards may still be on their way by the plan: in no store's count, or in those of two.
    until("a key is lost, or there twice", || client.call(&["DBSIZE"]) == Reply::Integer(300));
    assert!(ok(&["drain", &first[..12], "--over"]).ends_with("may own shards again\n"));

    let fails = |words: &[&str]| program.fails(1, &[&["cluster"], words, &["--at", &at]].concat());
    assert!(fails(&["move", "key:7", "9"]).contains("no shard '9'"));
    assert!(fails(&["repartition", "best"]).contains("unknown plan"));
    assert!(fails(&["repartition", "top-n-to-one:1000000"]).contains("at most 100000"));
    assert!(fails(&["drain", "nobody"]).contains("no node nobody"));
    let again = program.fails(1, &["cluster", "create", &at]);
    assert!(again.contains("exists already"), "{again}");
    drop(client);
    up.stop();

    let fewer = program.fails(1, &["cluster", "up", "--instances", "2"]);
    assert!(fewer.contains("more than 2 nodes"), "{fewer}");
    let up = Up::start(&program, port, &[]);
    let mut client = up.client();
    assert_eq!(client.call(&["DBSIZE"]), Reply::Integer(300));
    assert_eq!(client.call(&["GET", "key:7"]), Reply::Bulk(b"v".into()));
    drop(client);
    up.stop();
}

#[test]
fn a_cluster_by_ranges_keeps_the_order_of_keys() {
    let (program, port) = (Program::new(), free_ports(3));
    let up = Up::start(&program, port, &["--instances", "2", "--range", "m"]);
    let mut client = up.client();
    for key in ["zebra", "apple", "mango", "lemon"] {
        assert_eq!(client.call(&["SET", key, "v"]), Reply::Simple(b"OK".into()));
    }
    let Reply::Array(keys) = client.call(&["TSCAN", "-", "+", "KEYS"]) else { panic!("no keys") };
    let wanted = ["apple", "lemon", "mango", "zebra"].map(|key| Reply::Bulk(key.as_bytes().into()));
    assert_eq!(keys, wanted);
    let page = program.ok(&["cluster", "status", "--at", &up.at]);
    assert!(page.contains("..\"m\"") && page.contains("\"m\".."), "{page}");
    drop(client);
    up.stop();
}

/// Closes a listener, and waits until nobody listens there: a process that another test starts at this moment has it as
/// well, until it executes its program.
fn give_up(listener: TcpListener) {
    let address = listener.local_addr().unwrap();
    drop(listener);
    until("somebody listens", || TcpStream::connect(address).is_err());
}

#[test]
fn what_cannot_be_started_says_why() {
    let program = Program::new();
    let fails = |words: &[&str]| program.fails(1, &[&["cluster"], words].concat());
    for key in ["m", "-5"] {
        let boundaries = fails(&["up", "--instances", "3", "--range", key]);
        assert!(boundaries.contains("3 nodes have 2 keys between their ranges"), "{boundaries}");
    }
    let unreached = fails(&["create", "nonsense", "--range", "-5", "-3"]);
    assert!(unreached.contains("HOST:PORT is needed"), "{unreached}");
    let twice = fails(&["up", "--set", "port=1"]);
    assert!(twice.contains("sets port itself"), "{twice}");
    assert!(fails(&["up", "--set", "maxmemory"]).contains("OPTION=VALUE"));
    let port = free_ports(3);
    let taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let busy = fails(&["up", "--http-port", "0", "--port", &port.to_string()]);
    assert!(busy.contains("node 1"), "{busy}");
    give_up(taken);
    // A node that did not start does not count for the next attempt.
    let taken = TcpListener::bind(("127.0.0.1", port + 1 + 10_000)).unwrap();
    let two = ["--http-port", "0", "--instances", "2", "--port", &port.to_string()];
    let busy = program.run(&[&["cluster", "up"], &two[..]].concat());
    assert!(busy.code == 1 && busy.err.contains("terrace: node 2: "), "{}", busy.err);
    give_up(taken);
    Up::start(&program, port, &["--instances", "1"]).stop();
    let nobody = free_port().to_string();
    let away = fails(&["status", "--at", &format!("127.0.0.1:{nobody}")]);
    assert!(away.contains("no node answers at"), "{away}");
    assert!(fails(&["status", "--at", "nonsense"]).contains("HOST:PORT is needed"));
    let anybody = answers_with("{}".into(), 1);
    let nameless = fails(&["status", "--at", &anybody, "--user", "somebody"]);
    assert!(nameless.contains("no password is given for the user somebody"), "{nameless}");
    let server = Server::terrace(program.command(&[]), &["--dir", "alone"]);
    let alone = fails(&["status", "--at", &format!("127.0.0.1:{}", server.port)]);
    assert!(alone.contains("cluster support disabled"), "{alone}");
}

/// A node that clients reach by TLS only, and what it is asked for with the options of `redis-cli`.
#[test]
fn a_node_with_tls_alone_is_administered() {
    let program = Program::new();
    let file = |name: &str, content: &str| {
        std::fs::write(program.path(name), content).unwrap();
    };
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    file("ca.pem", &params.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(params, key);
    for name in ["node", "client"] {
        let params = CertificateParams::new(vec!["127.0.0.1".to_string()]).unwrap();
        let key = KeyPair::generate().unwrap();
        file(&format!("{name}.pem"), &params.signed_by(&key, &issuer).unwrap().pem());
        file(&format!("{name}.key"), &key.serialize_pem());
    }
    let (port, bus) = (free_port(), free_port().to_string());
    let (own, at) = (port.to_string(), format!("127.0.0.1:{port}"));
    let mut command = program.command(&["serve", "--http-port", "0", "--bind", "127.0.0.1"]);
    command.args(["--port", "0", "--tls-port", &own, "--dir", "node", "--maxmemory", "32mb"]);
    command.args(["--tls-cert-file", "node.pem", "--tls-key-file", "node.key"]);
    command.args(["--tls-ca-cert-file", "ca.pem", "--tls-auth-clients", "yes"]);
    command.args(["--cluster-enabled", "yes", "--cluster-port", &bus]);
    let _server = Server::start(Stdio::null(), command, port);
    let tls =
        ["--at", &at, "--tls", "--cacert", "ca.pem", "--cert", "client.pem", "--key", "client.key"];
    let with_tls = |words: &[&str]| program.run(&[&["cluster"], words, &tls].concat());
    until("it is not served", || with_tls(&["status"]).code == 0);
    assert!(with_tls(&["status"]).out.contains(&at));
    let moved = with_tls(&["move", "key", "home"]);
    assert_eq!((&*moved.err, &*moved.out), ("", "moved \"key\" to home\n"));
    // Without, or not as somebody that the node knows, or not knowing the node.
    for few in [&tls[..2], &tls[..5]] {
        let why = program.fails(1, &[&["cluster", "status"], few].concat());
        assert!(why.contains("does not answer"), "{why}");
    }
    let stranger = ["cluster", "status", "--at", &at, "--tls", "--cacert", "node.pem"];
    assert!(program.fails(1, &stranger).contains("does not answer"));
    let missing = ["cluster", "status", "--at", &at, "--tls", "--cacert", "nothing.pem"];
    assert!(program.fails(1, &missing).contains("nothing.pem"));
    let endless = ["cluster", "status", "--at", &at, "--tls", "--cacert", "/dev/zero"];
    assert!(program.fails(1, &endless).contains("/dev/zero: it is too long"));
    assert_eq!(program.run(&["cluster", "status", "--tls"]).code, 2, "--cacert is missing");
}
