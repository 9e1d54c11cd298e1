//! TLS: what comes through it, who is let in, and what strangers do to it. Certificates are made
//! anew by every test.

use crate::client::{Client, HANG_GUARD, bulk, error, int, ok, until};
use crate::served::Served;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use terrace_resp::{Reply, write_request};

/// Who signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, as PEM.
struct Identity {
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for this use; an expired one ended long ago.
    fn sign(&self, purpose: ExtendedKeyUsagePurpose, is_expired: bool) -> Identity {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_string()]).unwrap();
        params.extended_key_usages = vec![purpose];
        if is_expired {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { certificate, key: key.serialize_pem() }
    }

    fn server(&self) -> Identity {
        self.sign(ExtendedKeyUsagePurpose::ServerAuth, false)
    }

    fn client(&self) -> Identity {
        self.sign(ExtendedKeyUsagePurpose::ClientAuth, false)
    }
}

/// A server with this certificate, and further options.
fn serve(own: &Identity, clients: Option<&Authority>, flags: &[(&str, &str)]) -> Served {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let file =
        |name: &str, content: &str| write(&dir, name, content).to_string_lossy().into_owned();
    let certificate = file("server.pem", &own.certificate);
    let key = file("server.key", &own.key);
    let authority = clients.map(|authority| file("ca.pem", &authority.pem));
    let mut all = vec![
        ("tls-port", "free"),
        ("tls-cert-file", certificate.as_str()),
        ("tls-key-file", key.as_str()),
    ];
    if let Some(authority) = &authority {
        all.push(("tls-ca-cert-file", authority));
    }
    all.extend(flags);
    Served::again(dir.clone(), &all)
}

fn write(dir: &TempDir, name: &str, content: &str) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    path
}

fn address(served: &Served) -> SocketAddr {
    served.running().tls_addresses()[0]
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A connection that trusts one authority, and shows who it is if it is somebody.
fn connect(address: SocketAddr, trusts: &Authority, own: Option<&Identity>) -> Client<Stream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusts.pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let chain = vec![CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let name = ServerName::from(address.ip());
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(HANG_GUARD)).unwrap();
    Client::over(StreamOwned::new(session, socket))
}

/// What a connection fails with that must not come about.
fn refusal(mut client: Client<Stream>) -> String {
    let said = client.stream.write_all(b"PING\r\n").and_then(|()| {
        client.stream.flush()?;
        let mut piece = [0; 64];
        let n = client.stream.read(&mut piece)?;
        Ok(piece[..n].escape_ascii().to_string())
    });
    let error = match said {
        Err(error) => error,
        Ok(said) => panic!("served: {said:?}"),
    };
    match error.kind() {
        // Ended while we spoke: the reason has come before.
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => alert(&mut client.stream).to_string(),
        _ => error.to_string(),
    }
}

/// The error in what was received.
fn alert(stream: &mut Stream) -> std::io::Error {
    loop {
        match stream.conn.read_tls(&mut stream.sock) {
            Ok(0) => return ErrorKind::UnexpectedEof.into(),
            Ok(_) => {}
            Err(error) => return error,
        }
        if let Err(error) = stream.conn.process_new_packets() {
            return std::io::Error::other(error);
        }
    }
}

#[test]
fn the_protocol_is_spoken_over_tls() {
    let authority = Authority::new("authority");
    let served = serve(&authority.server(), None, &[]);
    let mut client = connect(address(&served), &authority, None);
    assert_eq!(client.say("PING"), Reply::Simple(b"PONG"[..].into()));
    assert_eq!(client.say("SET k v"), ok());
    assert_eq!(client.say("GET k"), bulk("v"));
    assert_eq!(served.client().say("GET k"), bulk("v"));
    assert_eq!(client.say("QUIT"), ok());
    // The end is announced: nobody cut the connection.
    assert!(matches!(client.stream.read(&mut [0]), Ok(0)));
}

#[test]
fn who_does_not_trust_our_certificate_is_not_served() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let served = serve(&ours.server(), None, &[]);
    let why = refusal(connect(address(&served), &other, None));
    assert!(why.contains("UnknownIssuer"), "{why}");
    let expired = ours.sign(ExtendedKeyUsagePurpose::ServerAuth, true);
    let old = serve(&expired, None, &[]);
    let why = refusal(connect(address(&old), &ours, None));
    assert!(why.contains("xpired"), "{why}");
    assert_eq!(connect(address(&served), &ours, None).say("GET k"), Reply::Null);
}

#[test]
fn who_does_not_speak_tls_is_ended_and_harms_nobody() {
    let authority = Authority::new("authority");
    let served = serve(&authority.server(), None, &[]);
    let mut good = connect(address(&served), &authority, None);
    for words in [
        &b"PING\r\n"[..],
        b"*1\r\n$4\r\nPING\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3],
        &[0xff; 40_000],
        &[0; 40_000],
    ] {
        let mut plain = TcpStream::connect(address(&served)).unwrap();
        plain.set_read_timeout(Some(HANG_GUARD)).unwrap();
        let _refused = plain.write_all(words);
        let _refused = plain.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        match plain.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        assert!(!answer.windows(4).any(|four| four == b"PONG"), "{}", answer.escape_ascii());
        // An alert at most.
        assert!(answer.len() < 64, "{}", answer.escape_ascii());
        assert_eq!(good.say("ECHO here"), bulk("here"));
    }
    assert_eq!(served.client().say("GET k"), Reply::Null);
}

#[test]
fn clients_show_a_certificate_where_one_is_asked_for() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let served = serve(&ours.server(), Some(&ours), &[("tls-auth-clients", "yes")]);
    let try_with = |own: Option<&Identity>| connect(address(&served), &ours, own);
    let why = refusal(try_with(None));
    assert!(why.contains("CertificateRequired"), "{why}");
    for (own, words) in [
        (other.client(), "UnknownCA"),
        (ours.sign(ExtendedKeyUsagePurpose::ClientAuth, true), "CertificateExpired"),
        // A server's certificate is none of a client.
        (ours.server(), "ertificate"),
    ] {
        let why = refusal(try_with(Some(&own)));
        assert!(why.contains(words), "{words}: {why}");
    }
    let good = ours.client();
    assert_eq!(try_with(Some(&good)).say("SET k v"), ok());
    // A certificate is no login.
    assert_eq!(served.client().say("CONFIG SET requirepass pw"), ok());
    assert!(error(&try_with(Some(&good)).say("GET k")).starts_with("NOAUTH"));
    assert_eq!(try_with(Some(&good)).say("AUTH pw"), ok());
    // Optional: none is fine, a wrong one is not.
    let optional = serve(&ours.server(), Some(&ours), &[("tls-auth-clients", "optional")]);
    assert_eq!(connect(address(&optional), &ours, None).say("GET k"), Reply::Null);
    assert_eq!(connect(address(&optional), &ours, Some(&good)).say("GET k"), Reply::Null);
    refusal(connect(address(&optional), &ours, Some(&other.client())));
}

#[test]
fn large_replies_and_pipelines_arrive_whole() {
    let authority = Authority::new("authority");
    let served = serve(&authority.server(), None, &[("server-threads", "2")]);
    let mut client = connect(address(&served), &authority, None);
    for bytes in [100_000, 300_000, (1 << 20) + 1, 10 << 20] {
        let value: Vec<u8> = (0..bytes as u32).map(|at| (at % 251) as u8).collect();
        assert_eq!(client.call(&[&b"SET"[..], b"big", &value]), ok());
        // Also when the reader is late: the kernel's buffers are full, and ours too.
        for pause_ms in [0, 300] {
            client.send(&["GET", "big"]);
            std::thread::sleep(Duration::from_millis(pause_ms));
            match client.reply() {
                Reply::Bulk(got) => assert!(got[..] == value[..], "{bytes} bytes: others"),
                reply => panic!("{reply:?}"),
            }
        }
    }
    let mut requests = Vec::new();
    for n in 0..20_000 {
        write_request(&mut requests, &["INCRBY", "n", &n.to_string()]);
    }
    client.stream.write_all(&requests).unwrap();
    let mut sum = 0;
    for n in 0..20_000 {
        sum += n;
        assert_eq!(client.reply(), int(sum));
    }
}

/// In one packet with its last requests, and without the word of TLS that nothing more comes.
#[test]
#[cfg(target_os = "linux")]
fn who_sends_nothing_more_gets_the_replies_to_what_it_has_sent() {
    let authority = Authority::new("authority");
    let served = serve(&authority.server(), None, &[]);
    for round in 1..=20 {
        let mut client = connect(address(&served), &authority, None);
        assert_eq!(client.say("PING"), Reply::Simple(b"PONG"[..].into()));
        rustix::net::sockopt::set_tcp_cork(&client.stream.sock, true).unwrap();
        client.send_words(&["INCR k", "PING"]);
        client.stream.sock.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.try_reply(), Some(int(round)));
        assert_eq!(client.try_reply(), Some(Reply::Simple(b"PONG"[..].into())));
        assert_eq!(client.try_reply(), None);
    }
}

/// Replies of every size up to several buffers arrive at a reader that takes them slowly.
#[test]
fn a_slow_reader_gets_everything_over_tls() {
    let authority = Authority::new("authority");
    let served = serve(&authority.server(), None, &[]);
    let value = "x".repeat(64 << 10);
    assert_eq!(served.client().call(&["SET", "value", &value]), ok());
    let mut client = connect(address(&served), &authority, None);
    let times = 300;
    let mut requests = Vec::new();
    (0..times).for_each(|_| write_request(&mut requests, &["GET", "value"]));
    client.stream.write_all(&requests).unwrap();
    client.stream.flush().unwrap();
    for n in 0..times {
        if n % 50 == 0 {
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(client.try_reply(), Some(bulk(&value)), "{n} of {times}");
    }
}

#[test]
fn handshakes_that_never_end_hold_nobody_up() {
    let authority = Authority::new("authority");
    let served = serve(&authority.server(), None, &[]);
    // The hello of a real client, up to its last byte.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::from(address(&served).ip());
    let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut hello = Vec::new();
    session.write_tls(&mut hello).unwrap();
    let mut open = Vec::new();
    for at in 0..200 {
        let mut socket = TcpStream::connect(address(&served)).unwrap();
        let cut = hello.len() * at / 200;
        socket.write_all(&hello[..cut]).unwrap();
        // Some send all of it, and never answer the server.
        if at % 10 == 0 {
            socket.write_all(&hello[cut..]).unwrap();
        }
        open.push(socket);
    }
    let mut good = connect(address(&served), &authority, None);
    for _ in 0..50 {
        assert_eq!(good.say("SET k v"), ok());
    }
    assert_eq!(served.server().clients.count(), 201);
    drop(open);
    until("connections are left", || served.server().clients.count() == 1);
    // The timeout is for them too.
    assert_eq!(good.say("CONFIG SET timeout 1"), ok());
    let half_open = TcpStream::connect(address(&served)).unwrap();
    half_open.set_read_timeout(Some(HANG_GUARD)).unwrap();
    let _refused = (&half_open).write_all(&hello[..100]);
    let ended = (&half_open).read_to_end(&mut Vec::new());
    // The server may have closed before these bytes came.
    let is_reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
    assert!(ended.is_ok() || ended.as_ref().is_err_and(is_reset), "{ended:?}");
}

/// Why a server with these files does not start, which has done nothing then.
fn refused_start(dir: &TempDir, files: &[(&str, PathBuf)]) -> String {
    let store = dir.path().join("store");
    let mut flags = vec![
        ("dir", store.clone()),
        ("tls-port", crate::client::free_port().to_string().into()),
        ("port", "0".into()),
        ("http-port", "0".into()),
    ];
    flags.extend_from_slice(files);
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let flags = flags.into_iter().map(|(name, value)| (name.to_string(), text(value)));
    let config = terrace_server::config::Config::load(None, [], flags).unwrap();
    let error = terrace_server::Running::start(config).err().unwrap().to_string();
    assert!(!store.exists());
    error
}

#[test]
fn a_server_with_a_bad_certificate_does_not_start() {
    let authority = Authority::new("authority");
    let (one, two) = (authority.server(), authority.server());
    let mixed = Identity { certificate: one.certificate.clone(), key: two.key };
    let none = Identity { certificate: String::new(), key: one.key.clone() };
    let noise = Identity { certificate: one.certificate, key: "no key".into() };
    for identity in [mixed, none, noise] {
        let dir = tempfile::tempdir().unwrap();
        let certificate = write(&dir, "server.pem", &identity.certificate);
        let key = write(&dir, "server.key", &identity.key);
        let error = refused_start(&dir, &[("tls-cert-file", certificate), ("tls-key-file", key)]);
        assert!(error.contains("server."), "{error}");
    }
}

#[test]
fn a_device_without_an_end_is_no_certificate_and_no_key() {
    let authority = Authority::new("authority");
    let own = authority.server();
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("tls-cert-file", write(&dir, "server.pem", &own.certificate)),
        ("tls-key-file", write(&dir, "server.key", &own.key)),
        ("tls-ca-cert-file", write(&dir, "ca.pem", &authority.pem)),
    ];
    for at in [0, 1, 2] {
        let mut files = files.to_vec();
        files[at].1 = "/dev/zero".into();
        files.push(("tls-auth-clients", "yes".into()));
        let error = refused_start(&dir, &files);
        assert_eq!(error, "/dev/zero: it is too long, more than 16 MiB");
    }
}
