//! Sockets that clients connect to.

use crate::config::listen_address;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

/// The addresses of a list, and which of them may be left out, by [`listen_address`].
///
/// # Errors
/// One of them is no address.
pub fn addresses(words: &[String]) -> io::Result<Vec<(IpAddr, bool)>> {
    let address = |word: &String| {
        listen_address(word).ok_or_else(|| {
            let what = format!("`{word}` is no address to listen on");
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })
    };
    words.iter().map(address).collect()
}

/// Where to listen.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The address.
    pub ip: IpAddr,
    /// The first port to try; 0 takes any.
    pub port: u16,
    /// How many further ports may be tried if that one is taken.
    pub further_ports: u16,
    /// Connections that the kernel keeps until they are accepted.
    pub backlog: i32,
}

/// A socket on which an event loop accepts clients of the Redis protocol.
pub struct Bound {
    /// It.
    pub listener: mio::net::TcpListener,
    /// Where.
    pub address: SocketAddr,
    /// Whether what comes through it is encrypted.
    pub is_tls: bool,
}

impl Endpoint {
    /// Listens there; to accept does not block.
    ///
    /// # Errors
    /// No port was free, or the machine has no such address.
    pub fn bind(&self) -> io::Result<TcpListener> {
        let mut port = self.port;
        loop {
            let address = SocketAddr::new(self.ip, port);
            match listen(address, self.backlog) {
                Ok(listener) => return Ok(listener),
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse
                        && port < self.port.saturating_add(self.further_ports) =>
                {
                    port += 1;
                }
                Err(error) => {
                    let what = format!("cannot listen on {address}: {error}");
                    return Err(io::Error::new(error.kind(), what));
                }
            }
        }
    }
}

impl Bound {
    /// Over a listener that does not block.
    ///
    /// # Errors
    /// Those of asking a socket for its address.
    pub fn of(listener: TcpListener, is_tls: bool) -> io::Result<Self> {
        let address = listener.local_addr()?;
        Ok(Self { listener: mio::net::TcpListener::from_std(listener), address, is_tls })
    }
}

/// `std` and `mio` listen with a backlog of their own choice.
fn listen(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, backlog)?;
    Ok(TcpListener::from(socket))
}
