//! Messages to the service manager that started this process, as `sd_notify(3)` of systemd defines them: a datagram
//! with lines `NAME=VALUE` to the socket in the variable `NOTIFY_SOCKET`. Sent by `terrace serve`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable that names the socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// The service serves: units that come after it may be started.
pub const READY: &str = "READY=1";

/// The service has begun to stop.
pub const STOPPING: &str = "STOPPING=1";

/// Sends `state` if a service manager waits for it. A failure is logged and changes nothing else.
pub fn notify(state: &str) {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(%error, state, "the service manager cannot be notified");
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address(socket)?)?;
    Ok(())
}

/// An absolute path, or `@` and a name in Linux's abstract namespace.
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    match socket.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(socket),
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a path nor an abstract name"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn received(socket: &UnixDatagram) -> String {
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut state = [0; 64];
        let len = socket.recv(&mut state).unwrap();
        String::from_utf8(state[..len].to_vec()).unwrap()
    }

    #[test]
    fn a_state_arrives_by_path_and_by_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), READY).unwrap();
        assert_eq!(received(&socket), "READY=1");
        let name = format!("terrace-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        send(OsStr::new(&format!("@{name}")), STOPPING).unwrap();
        assert_eq!(received(&socket), "STOPPING=1");
    }

    #[test]
    fn what_is_no_socket_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(send(folder.path().join("gone").as_os_str(), READY).is_err());
        for name in ["", "relative", "vsock:2:1"] {
            assert!(send(OsStr::new(name), READY).is_err(), "{name}");
        }
    }
}
