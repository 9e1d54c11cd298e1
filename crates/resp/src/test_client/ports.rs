//! Ports for the servers of tests. Between the choice of a port and the moment when the server listens, nobody
//! else may take it: neither another test, nor another test program, nor the system for a connection that some
//! program opens. So they lie below the range from which systems take ports for connections (Linux: 32,768 on),
//! and each test program has blocks of its own.

use std::io::ErrorKind;
use std::net::{TcpStream, UdpSocket};
use std::sync::{Mutex, PoisonError};

/// The first port of the first block.
const FIRST: u16 = 10_000;

/// How far above a node's port the one is that nodes use among themselves.
const BUS: u16 = 10_000;

/// Ports of a block.
const BLOCK: u16 = 100;

/// Blocks there are.
const BLOCKS: u16 = 100;

/// Blocks that one program has at most; then it begins again with its first.
const MOST: usize = 8;

/// A block that this program has, as long as it holds the socket: the first port of the block, as a port of
/// UDP, which nothing else here uses.
struct Block {
    first: u16,
    _claim: UdpSocket,
}

/// The blocks of this program.
struct Claimed {
    blocks: Vec<Block>,
    /// The block and the port in it that come next.
    next: (usize, u16),
}

static CLAIMED: Mutex<Claimed> = Mutex::new(Claimed { blocks: Vec::new(), next: (0, 0) });

impl Claimed {
    /// The next ports of a block that has this many left.
    fn take(&mut self, count: u16) -> u16 {
        assert!(count <= BLOCK, "{count} ports in a row");
        if self.next.1 + count > BLOCK {
            self.next = ((self.next.0 + 1) % MOST, 0);
        }
        if self.next.0 >= self.blocks.len() {
            self.claim();
        }
        let port = self.blocks[self.next.0].first + self.next.1;
        self.next.1 += count;
        port
    }

    fn claim(&mut self) {
        let claim = |block: u16| {
            let first = FIRST + block * BLOCK;
            let claim = UdpSocket::bind(("127.0.0.1", first)).ok()?;
            Some(Block { first, _claim: claim })
        };
        let block = (0..BLOCKS).find_map(claim);
        self.blocks.push(block.expect("other programs have all ports for tests"));
    }
}

/// A port that nobody listens on.
pub fn free_port() -> u16 {
    free_ports(1)
}

/// The first of `count` ports in a row that nobody listens on, and nobody on those 10,000 above them.
///
/// Found out by connecting, never by listening: a process that another test starts at this moment has all open
/// sockets of this one until it executes its program, and a listener among them would be taken for the server
/// that is to come.
pub fn free_ports(count: u16) -> u16 {
    let is_free = |port: u16| {
        let refused = |error: std::io::Error| error.kind() == ErrorKind::ConnectionRefused;
        TcpStream::connect(("127.0.0.1", port)).is_err_and(refused)
    };
    let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..MOST * usize::from(BLOCK) {
        let first = claimed.take(count);
        if (first..first + count).all(|port| is_free(port) && is_free(port + BUS)) {
            return first;
        }
    }
    panic!("servers have all ports of this program");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn nobody_listens_on_a_free_port_while_programs_are_started() {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        assert!(Command::new("true").status().unwrap().success());
                    }
                });
            }
            for _ in 0..4000 {
                let port = free_port();
                let connected = TcpStream::connect(("127.0.0.1", port));
                if connected.is_ok() {
                    is_over.store(true, Ordering::Relaxed);
                    panic!("somebody listens on {port}");
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
