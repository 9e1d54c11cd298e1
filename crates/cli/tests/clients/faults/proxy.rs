//! A way between two processes that can be cut, whole or in one direction: what is sent meanwhile is held back, as by
//! a network that loses packets, and comes late when the way is open again, if anybody still waits for it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

/// How often a thread looks whether the way is open, or the proxy gone.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Default)]
struct State {
    /// From who connects, and to them. Read as long as a piece is passed on.
    is_cut: [RwLock<bool>; 2],
    /// Pieces of a stream that were held back.
    held: AtomicU64,
    is_over: AtomicBool,
}

/// See the module. Ends when it is dropped.
pub struct Proxy {
    pub port: u16,
    state: Arc<State>,
}

impl Proxy {
    /// A way to a port of the loopback interface.
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        let state = Arc::new(State::default());
        let accepts = state.clone();
        std::thread::spawn(move || {
            while !accepts.is_over.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok((from, _)) => join(from, target, &accepts),
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        });
        Self { port, state }
    }

    /// Cuts the way from who connects, and the way back, or opens them. What is passed on at the moment is through when
    /// this returns.
    pub fn cut(&self, there: bool, back: bool) {
        for (way, is_cut) in self.state.is_cut.iter().zip([there, back]) {
            *way.write().unwrap() = is_cut;
        }
    }

    /// How many pieces were held back: the proof that a cut happened.
    pub fn held(&self) -> u64 {
        self.state.held.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
    }
}

/// Joins a connection with one to the target; ends it if that does not listen.
fn join(from: TcpStream, target: u16, state: &Arc<State>) {
    from.set_nonblocking(false).unwrap();
    let Ok(to) = TcpStream::connect(("127.0.0.1", target)) else { return };
    for stream in [&from, &to] {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LOOK)).unwrap();
    }
    let ways = [(from.try_clone().unwrap(), to.try_clone().unwrap()), (to, from)];
    for (way, (source, sink)) in ways.into_iter().enumerate() {
        let state = state.clone();
        std::thread::spawn(move || {
            pump(&source, &sink, &state, way);
            let _ = source.shutdown(Shutdown::Both);
            let _ = sink.shutdown(Shutdown::Both);
        });
    }
}

/// Copies until either side ends.
fn pump(mut source: &TcpStream, mut sink: &TcpStream, state: &State, way: usize) {
    let mut piece = vec![0; 64 << 10];
    loop {
        if state.is_over.load(Ordering::SeqCst) {
            return;
        }
        let read = match source.read(&mut piece) {
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) => return,
        };
        let mut is_cut = state.is_cut[way].read().unwrap();
        if *is_cut {
            state.held.fetch_add(1, Ordering::SeqCst);
        }
        while *is_cut && !state.is_over.load(Ordering::SeqCst) {
            drop(is_cut);
            std::thread::sleep(LOOK);
            is_cut = state.is_cut[way].read().unwrap();
        }
        if sink.write_all(&piece[..read]).is_err() {
            return;
        }
    }
}
