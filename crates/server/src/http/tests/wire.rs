//! Who is answered, and who is not: hosts, methods, logins, limits, slow and malformed clients.

use super::*;
use crate::http::shared::Shared;
use crate::http::wire::{Door, Impatient};
use std::io::ErrorKind;
use std::time::Instant;
use terrace::vfs::{Fault, FaultKind, OpClass, SimVfs};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

#[test]
fn what_monitoring_asks_is_answered() {
    let served = Served::open();
    let alive = served.get("/healthz");
    assert_eq!((alive.status, alive.body.as_str()), (200, "alive\n"));
    assert_eq!(served.get("/readyz").status, 200);
    let metrics = served.get("/metrics");
    assert!(metrics.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    for name in ["terrace_gets_total", "terrace_server_connected_clients 3", "# EOF"] {
        assert!(metrics.body.contains(name), "{name}");
    }
    served.made.is_stopping.store(true, Ordering::Relaxed);
    let ready = served.get("/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.body.contains("stopping"), "{}", ready.body);
    assert_eq!(served.get("/healthz").status, 200);
}

#[test]
fn a_store_that_refuses_writes_is_not_ready() {
    let sim = SimVfs::new(7);
    let mut store = small();
    store.advanced.vfs = Arc::new(sim.clone());
    let served = Served::over(store, false, HttpOptions::default());
    assert_eq!(served.get("/readyz").status, 200);
    let (kind, filter) = (FaultKind::Eio, Some(OpClass::Append));
    sim.set_fault(Some(Fault { at_op: sim.op_count(), kind, forever: true, filter }));
    served.made.db.put("a", "b").unwrap_err();
    let ready = served.get("/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.body.contains("until the store is opened again"), "{}", ready.body);
    assert_eq!(served.get("/healthz").status, 200);
}

#[test]
fn the_page_comes_with_headers_that_keep_it_to_itself() {
    let served = Served::open();
    let page = served.get("/");
    assert_eq!(page.status, 200);
    assert!(page.body.contains("<title>Terrace</title>"), "{}", page.body);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let tag = page.header("etag").unwrap();
    let again = served.get_with("/", &format!("If-None-Match: {tag}\r\n"));
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    assert_eq!(page.header("cache-control"), Some("no-cache"));
    assert_eq!(served.get("/healthz").header("cache-control"), Some("no-store"));
    for path in ["/", "/api/v1/summary", "/nothing", "/metrics"] {
        let answer = served.get_with(path, "Origin: http://evil.example\r\n");
        let csp = answer.header("content-security-policy").unwrap();
        assert!(csp.starts_with("default-src 'self';"), "{path}: {csp}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
    }
}

#[test]
fn only_get_is_answered() {
    let served = Served::open();
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"] {
        let request = format!(
            "{method} /api/v1/summary HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(served.send(request.as_bytes()).status, 405, "{method}");
    }
    let head =
        served.send(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let posted = served.send(
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
    );
    assert_eq!(posted.status, 405);
}

#[test]
fn a_name_that_is_not_ours_gets_nothing() {
    let served = Served::open();
    let status = |head: &str| served.send(format!("GET /healthz {head}\r\n\r\n").as_bytes()).status;
    for good in ["localhost", "127.0.0.1:80", "[::1]:6380", "store.example:6380"] {
        assert_eq!(
            status(&format!("HTTP/1.1\r\nConnection: close\r\nHost: {good}")),
            200,
            "{good}"
        );
    }
    for evil in ["evil.example", "evil.example:6380", "", "127.0.0.1.evil.example"] {
        assert_eq!(
            status(&format!("HTTP/1.1\r\nConnection: close\r\nHost: {evil}")),
            421,
            "{evil}"
        );
    }
    let twice = "HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\nHost: evil.example";
    assert_eq!(status(twice), 421);
    assert_eq!(status("HTTP/1.1\r\nConnection: close"), 421, "no name at all");
    let target =
        b"GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(served.send(target).status, 421);
}

#[test]
fn users_see_what_the_acl_lets_them() {
    let served = Served::start(true, HttpOptions::default());
    // "alice:a:b", "root:secret", "writer:w", "alice:wrong"
    let (alice, root, writer, wrong) =
        ("YWxpY2U6YTpi", "cm9vdDpzZWNyZXQ=", "d3JpdGVyOnc=", "YWxpY2U6d3Jvbmc=");
    let status = |path: &str, user: &str| {
        served.get_with(path, &format!("Authorization: Basic {user}\r\n")).status
    };
    for path in ["/", "/metrics", "/api/v1/summary", "/api/v1/stream", "/api/v1/nothing"] {
        let answer = served.get(path);
        assert_eq!(answer.status, 401, "{path}");
        assert!(answer.header("www-authenticate").unwrap().starts_with("Basic realm="));
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(served.get(path).status, 200, "{path}");
    }
    assert_eq!(status("/api/v1/summary", alice), 200);
    assert_eq!(status("/api/v1/config", alice), 403);
    assert_eq!(status("/api/v1/config", root), 200);
    assert_eq!(status("/api/v1/config/", alice), 404);
    assert_eq!(status("/api/v1/shape", writer), 403);
    let began = Instant::now();
    assert_eq!(status("/api/v1/summary", wrong), 401);
    assert!(began.elapsed() >= Duration::from_millis(300), "guesses take time");
    let other = served.get_with("/", "Authorization: Bearer YWxpY2U6YTpi\r\n");
    assert_eq!(other.status, 401);
}

#[test]
fn what_anybody_gets_ends_the_connection() {
    let connection = |served: &Served, request: &str| {
        let mut stream = served.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let answer = Answer::read_head(&mut BufReader::new(stream));
        (answer.status, answer.header("connection").map(str::to_string))
    };
    let get = |served: &Served, path: &str, headers: &str| {
        let host = if headers.contains("Host:") { "" } else { "Host: localhost\r\n" };
        connection(served, &format!("GET {path} HTTP/1.1\r\n{host}{headers}\r\n"))
    };
    let closes = |status: u16| (status, Some("close".to_string()));
    let served = Served::start(true, HttpOptions::default());
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(&served, path, ""), closes(200), "{path}");
    }
    assert_eq!(get(&served, "/", ""), closes(401));
    assert_eq!(get(&served, "/api/v1/config", ALICE), closes(403));
    assert_eq!(get(&served, "/", "Host: evil.example\r\n"), closes(421));
    let post = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(connection(&served, post), closes(405));
    for (path, status) in [("/", 200), ("/api/v1/summary", 200), ("/nothing", 404)] {
        assert_eq!(get(&served, path, ALICE), (status, None), "{path}");
    }
}

#[test]
fn the_api_is_not_for_pages_of_other_sites() {
    let served = Served::open();
    let status = |path: &str, site: &str| {
        served.get_with(path, &format!("Sec-Fetch-Site: {site}\r\n")).status
    };
    for path in [
        "/api/v1/explain?key=a",
        "/api/v1/value?key=a",
        "/api/v1/keys",
        "/api/v1/shape",
        "/api/v1/live",
        "/api/v1/nothing",
    ] {
        for site in ["cross-site", "same-site"] {
            assert_eq!(status(path, site), 403, "{path} {site}");
        }
        for site in ["same-origin", "none"] {
            assert_ne!(status(path, site), 403, "{path} {site}");
        }
    }
    for path in ["/", "/metrics", "/healthz"] {
        assert_eq!(status(path, "cross-site"), 200, "{path}");
    }
}

fn impatient() -> HttpOptions {
    let (read_timeout, write_timeout) = (Duration::from_millis(500), Duration::from_millis(500));
    HttpOptions { read_timeout, write_timeout }
}

/// Whether the server has closed a connection with this outcome, not our guard.
fn is_closed<T>(outcome: &std::io::Result<T>) -> bool {
    let is_ours = |kind| matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut);
    outcome.as_ref().is_err_and(|error| !is_ours(error.kind()))
}

/// Asks until `is_answered`: an impatient server that is busy may close a connection before it has come to it.
fn ask_again(what: &str, mut is_answered: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_answered() {
        assert!(began.elapsed() < HANG, "no answer: {what}");
    }
}

#[test]
fn who_asks_too_slowly_is_closed() {
    let served = Served::start(false, impatient());
    let ends = |mut stream: TcpStream| {
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(ended.is_ok() || is_closed(&ended), "{ended:?}");
        rest
    };
    for begun in [&b""[..], b"GET /heal", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: "] {
        let mut stream = served.connect();
        stream.write_all(begun).unwrap();
        assert!(!ends(stream).starts_with(b"HTTP/1.1 200"));
    }
    // A connection that was useful and stays idle goes, too.
    ask_again("/favicon.svg", || {
        let mut stream = served.connect();
        let _ = stream.write_all(b"GET /favicon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n");
        ends(stream).starts_with(b"HTTP/1.1 200")
    });
}

#[test]
fn who_takes_nothing_is_closed() {
    let served = Served::start(false, impatient());
    let mut stream = served.connect();
    // Answers that nobody reads fill the buffers of both sides.
    let request = "GET /app.js HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2000);
    let mut sent = stream.write_all(request.as_bytes());
    let began = Instant::now();
    loop {
        ask_again("/metrics", || {
            served.get("/metrics").body.contains("terrace_server_http_requests_total")
        });
        // Writing to a connection that the other side has closed fails.
        if is_closed(&sent) {
            break;
        }
        assert!(sent.is_ok() && began.elapsed() < HANG, "the connection is not closed");
        std::thread::sleep(Duration::from_millis(200));
        sent = stream.write_all(b"GET");
    }
}

/// As `nc -N` does. The answer to a wrong password is held back for a moment.
#[test]
fn who_has_closed_its_side_is_answered_and_the_connection_ends() {
    let served = Served::start(true, HttpOptions::default());
    let wrong = "Authorization: Basic YWxpY2U6eA==\r\n";
    for (path, login, status) in [("/api/v1/summary", wrong, 401), ("/metrics", ALICE, 200)] {
        for version in ["1.0", "1.1"] {
            let mut stream = served.connect();
            let head = format!("GET {path} HTTP/{version}\r\nHost: localhost\r\n{login}\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with(&format!("HTTP/{version} {status} ")), "{path}: {answer}");
        }
    }
}

#[test]
fn who_takes_a_byte_now_and_then_is_closed() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut stream = Impatient::new(ours, Duration::from_secs(2));
        let answer = vec![0u8; 1 << 20];
        let takes = async {
            let mut byte = [0u8];
            while theirs.read(&mut byte).await.unwrap() > 0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let gives = async {
            tokio::select! {
                given = stream.write_all(&answer) => given,
                () = takes => unreachable!("this side has not closed"),
            }
        };
        let given = tokio::time::timeout(HANG, gives).await.expect("it ends");
        assert_eq!(given.unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

/// The client's end of a connection that comes from `peer`, as far as the server can see.
async fn come(
    door: &Door,
    listener: &tokio::net::TcpListener,
    peer: &str,
    connections: &mut JoinSet<()>,
) -> tokio::net::TcpStream {
    let client = tokio::net::TcpStream::connect(listener.local_addr().unwrap());
    let (client, accepted) = tokio::join!(client, listener.accept());
    door.admit(accepted.unwrap().0, peer.parse().unwrap(), connections);
    client.unwrap()
}

#[test]
fn one_peer_does_not_have_all_connections() {
    let shared = Arc::new(Shared::new(Arc::new(Made::over(small()))));
    let (_stop, stopped) = watch::channel(false);
    let patient = HttpOptions { read_timeout: HANG, write_timeout: HANG };
    let door = Door::new(shared.clone(), patient, stopped);
    let counts = || {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed) as usize;
        (of(&shared.connections), of(&shared.refused))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connections = &mut JoinSet::new();
        let mut clients = Vec::new();
        for _ in 0..MAX_PEER_CONNECTIONS {
            clients.push(come(&door, &listener, "192.0.2.7:1", connections).await);
        }
        assert_eq!(counts(), (MAX_PEER_CONNECTIONS, 0));
        // Another one is for the health alone, and no more than are spare.
        for (path, status) in [("/metrics", "503"), ("/healthz", "200")] {
            let mut spare = come(&door, &listener, "192.0.2.7:2", connections).await;
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            spare.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            spare.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        }
        assert_eq!(counts(), (MAX_PEER_CONNECTIONS + 2, 0));
        // All others, on this machine.
        for _ in MAX_PEER_CONNECTIONS..MAX_CONNECTIONS {
            clients.push(come(&door, &listener, "127.0.0.1:1", connections).await);
        }
        assert_eq!(counts(), (MAX_CONNECTIONS + 2, 0));
        connections.shutdown().await;
        clients.push(come(&door, &listener, "192.0.2.7:3", connections).await);
        assert_eq!(counts(), (MAX_CONNECTIONS + 3, 0), "its connections have ended");
    });
}

#[test]
fn connections_have_a_bound() {
    let patient = HttpOptions { read_timeout: HANG, write_timeout: HANG };
    let served = Served::start(false, patient);
    let mut held: Vec<TcpStream> = (0..MAX_CONNECTIONS).map(|_| served.connect()).collect();
    for stream in &mut held {
        // Each is known to be accepted once it has been answered.
        stream.write_all(b"GET /favicon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert_eq!(Answer::read_head(&mut BufReader::new(stream)).status, 200);
    }
    // Others are answered once each.
    let is_healthy = || {
        let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let began = Instant::now();
        // The one before may not have ended yet.
        while served.send(request).status != 200 {
            assert!(began.elapsed() < HANG, "a health check is refused");
        }
    };
    (0..2 * SPARE_CONNECTIONS).for_each(|_| is_healthy());
    // Those who ask for nothing keep these connections too, for a moment, and more are refused.
    let is_one_refused = |_| {
        let silent: Vec<TcpStream> = (0..2 * SPARE_CONNECTIONS).map(|_| served.connect()).collect();
        let mut answers = silent.iter().map(|stream| Answer::read(&mut BufReader::new(stream)));
        answers.any(|answer| answer.status == 503)
    };
    assert!((0..20).any(is_one_refused));
    is_healthy();
    assert_eq!(served.get("/metrics").status, 503);
    drop(held);
    let began = Instant::now();
    let metrics = loop {
        let answer = served.get("/metrics");
        if answer.status == 200 {
            break answer.body;
        }
        assert!(began.elapsed() < HANG, "places become free");
        std::thread::sleep(Duration::from_millis(20));
    };
    let refused = metrics
        .lines()
        .find_map(|line| line.strip_prefix("terrace_server_http_refused_connections_total "));
    assert!(refused.unwrap().parse::<u64>().unwrap() >= 1);
}

#[test]
fn malformed_requests_harm_nobody() {
    let served = Served::open();
    let long = "x".repeat(MAX_HEAD_BYTES + 1);
    let many = "A: b\r\n".repeat(200);
    let requests: [Vec<u8>; 9] = [
        b"\x00\xff\xfe\r\n\r\n".to_vec(),
        b"*1\r\n$4\r\nPING\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes(),
        format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n").into_bytes(),
        format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n").into_bytes(),
    ];
    for request in requests {
        let answer = served.send(&request);
        let shown = String::from_utf8_lossy(&request[..request.len().min(40)]).into_owned();
        assert!(answer.status == 0 || (400..600).contains(&answer.status), "{shown}: {answer:?}");
    }
    let strange = served.get("/api/v1/explain?key=%ff%00%zz&db=0");
    assert_eq!(strange.status, 400);
    for path in ["/..%2f..%2fCargo.toml", "/%00", "//app.js", "/api/v1/../../metrics"] {
        assert_eq!(served.get(path).status, 404, "{path}");
    }
    assert_eq!(served.get("/healthz").status, 200);
}

#[test]
fn who_is_kept_out_by_protected_mode_is_told_so() {
    let served = Served::of(
        Made { is_protected: true.into(), ..Made::over(small()) },
        HttpOptions::default(),
    );
    for path in ["/", "/metrics", "/api/v1/summary", "/api/v1/keys", "/api/v1/config"] {
        let answer = served.get(path);
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.body.contains("protected-mode"), "{path}");
    }
    assert_eq!(served.get("/healthz").status, 200);
}
