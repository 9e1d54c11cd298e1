//! One client: its socket, and what it has said so far.

use super::event_loop::LoopHandle;
use super::transport::{Received, Transport};
use super::visit::{Berth, Visit};
use crate::dispatch::{self, Executed};
use crate::server::Server;
use crate::session::{ClientInfo, Origin, Session};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_keyspace::{CommandBatch, Wait};
use terrace_resp::{Command, OwnedCommand, ReplyWriter, RequestParser, Step};

/// A client whose replies of so many bytes are not sent yet is not served: it has to read first.
const MAX_UNSENT_BYTES: usize = 1 << 20;

/// Commands of one client that are executed before others have their turn.
const MAX_COMMANDS: usize = 512;

/// Buffers of more bytes than this are given back when they are empty.
const KEPT_BYTES: usize = 16 << 10;

/// The part of a client that executes commands: goes to the pool as a whole.
pub(crate) struct Talk {
    pub session: Session,
    parser: RequestParser,
    /// What has arrived and was not executed.
    input: Vec<u8>,
    /// Parsed, and to be executed later, or by a thread that may wait.
    pending: Option<OwnedCommand>,
    /// How often it was tried.
    tries: u32,
    /// Replies that were not given to the connection.
    pub output: Vec<u8>,
    /// Where in `output` the replies of the current turn begin, and how many there are.
    turn_mark: usize,
    turn_replies: usize,
}

/// How far a client was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Everything it said was executed.
    Idle,
    /// There is more, when others had their turn.
    More,
    /// The next command has to wait; it was tried so often.
    Elsewhere(Wait, u32),
    /// Nothing more is to be executed: the connection ends when its replies are sent.
    Close,
}

impl Talk {
    /// A client connects; until it has logged in, if it has to, its requests are small.
    pub fn begin(server: &Server, origin: Origin) -> Self {
        let info = server.clients.join(origin, server.space.now_ms());
        let session = Session::of(info, server.acl.default_login());
        let limits = server.limits();
        let parser = match session.user.is_some() {
            true => RequestParser::new(limits),
            false => RequestParser::for_guest(limits),
        };
        Self {
            session,
            parser,
            input: Vec::new(),
            pending: None,
            tries: 0,
            output: Vec::new(),
            turn_mark: 0,
            turn_replies: 0,
        }
    }

    /// Whether something that was read waits to be executed.
    pub fn has_input(&self) -> bool {
        !self.input.is_empty() || self.pending.is_some()
    }

    /// Executes what is in `fresh`, which has just been read.
    pub fn feed(&mut self, fresh: &mut [u8], turn: &mut CommandBatch, server: &Server) -> Progress {
        if self.has_input() {
            self.input.extend_from_slice(fresh);
            return self.go_on(turn, server, MAX_COMMANDS);
        }
        let (used, progress) = self.execute(fresh, turn, server, MAX_COMMANDS);
        self.input.extend_from_slice(&fresh[used..]);
        progress
    }

    /// Executes at most `most` of the commands that were read before.
    pub fn go_on(&mut self, turn: &mut CommandBatch, server: &Server, most: usize) -> Progress {
        let mut most = most;
        if let Some(pending) = self.pending.take() {
            let Self { session, output, turn_replies, .. } = self;
            let call = (session, output, turn_replies);
            match run(pending.as_command(), turn, server, call, &mut Instant::now()) {
                Executed::Replied => {}
                Executed::Elsewhere(wait) => {
                    self.pending = Some(pending);
                    self.tries += 1;
                    return Progress::Elsewhere(wait, self.tries);
                }
                Executed::Close => return Progress::Close,
            }
            most -= 1;
        }
        if self.input.is_empty() {
            return Progress::Idle;
        }
        let mut input = std::mem::take(&mut self.input);
        let (used, progress) = self.execute(&mut input, turn, server, most);
        input.drain(..used);
        if input.is_empty() && input.capacity() > KEPT_BYTES {
            input = Vec::new();
        }
        self.input = input;
        progress
    }

    /// How many bytes of `buf` were executed, and why not more.
    fn execute(
        &mut self,
        buf: &mut [u8],
        turn: &mut CommandBatch,
        server: &Server,
        most: usize,
    ) -> (usize, Progress) {
        let Self { session, parser, pending, tries, output, turn_replies, .. } = self;
        turn.look_at_the_clock();
        let mut clock = Instant::now();
        let mut at = 0;
        for _ in 0..most {
            if output.len() > MAX_UNSENT_BYTES {
                return (at, Progress::More);
            }
            match parser.next(&mut buf[at..]) {
                Ok(Step::Command(command)) => {
                    at += command.bytes();
                    let call = (&mut *session, &mut *output, &mut *turn_replies);
                    match run(command, turn, server, call, &mut clock) {
                        Executed::Replied => {}
                        Executed::Elsewhere(wait) => {
                            *pending = Some(command.to_owned());
                            *tries = 1;
                            return (at, Progress::Elsewhere(wait, 1));
                        }
                        Executed::Close => return (at, Progress::Close),
                    }
                    if std::mem::take(&mut session.was_admitted) {
                        parser.admit();
                    }
                }
                Ok(Step::Blank { bytes }) => at += bytes,
                Ok(Step::Incomplete { .. }) => return (at, Progress::Idle),
                Err(malformed) => {
                    ReplyWriter::new(output, session.protocol).error(format!("ERR {malformed}"));
                    *turn_replies += 1;
                    server.stats.protocol_errors.add(1);
                    tracing::debug!(client = session.id, %malformed, "not a request");
                    return (at, Progress::Close);
                }
            }
        }
        (at, if at < buf.len() { Progress::More } else { Progress::Idle })
    }

    /// A turn begins: its replies stand behind what is in the output now.
    pub fn begin_turn(&mut self) {
        self.turn_mark = self.output.len();
        self.turn_replies = 0;
    }

    /// The turn was not committed: every reply of it becomes this error.
    pub fn fail_turn(&mut self, error: &str) {
        self.output.truncate(self.turn_mark);
        let mut reply = ReplyWriter::new(&mut self.output, self.session.protocol);
        for _ in 0..self.turn_replies {
            reply.error(error);
        }
    }

    /// So many bytes of the output have left.
    pub fn has_sent(&mut self, bytes: usize) {
        self.output.drain(..bytes);
        if self.output.is_empty() {
            self.output.shrink_to(KEPT_BYTES);
        }
    }

    /// Gives back memory that an idle client does not need.
    pub fn release(&mut self) {
        self.parser.release();
        self.input.shrink_to_fit();
        self.output.shrink_to_fit();
    }
}

/// Executes one command and counts its reply.
fn run(
    command: Command<'_>,
    turn: &mut CommandBatch,
    server: &Server,
    (session, output, replies): (&mut Session, &mut Vec<u8>, &mut usize),
    clock: &mut Instant,
) -> Executed {
    let before = output.len();
    let done = dispatch::execute(command, turn, session, server, output, clock);
    *replies += usize::from(output.len() > before);
    done
}

/// A client as its loop sees it.
pub(crate) struct Connection {
    pub transport: Transport,
    /// `None` while it is on a visit.
    pub talk: Option<Box<Talk>>,
    /// Where it lies when it is back. `None` before its first visit.
    berth: Option<Arc<Berth>>,
    pub id: u64,
    pub info: Arc<ClientInfo>,
    /// Replies that the socket has not taken, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    /// How many waiting bytes were too many for long, and since when (monotonic, us).
    over_soft: Option<(u64, u64)>,
    /// There may be something to read.
    pub is_readable: bool,
    /// The client sends nothing more after what can be read now.
    pub was_left: bool,
    /// It is served in a turn that is not committed.
    pub in_turn: bool,
    /// It wrote in that turn, or read what was written in it: its replies wait for the commit.
    pub is_bound: bool,
    /// That turn is being committed by another thread.
    pub awaits_commit: bool,
    /// Its next command is to be executed by the pool, once that turn is over, and why.
    pub leaves_for: Option<Wait>,
    /// It stands in the queue of those with more to do.
    pub is_queued: bool,
    /// It ends when everything is sent.
    pub closes: bool,
}

impl Connection {
    pub fn new(transport: Transport, talk: Box<Talk>) -> Self {
        Self {
            id: talk.session.id,
            info: talk.session.info.clone(),
            transport,
            talk: Some(talk),
            berth: None,
            unsent: Vec::new(),
            sent: 0,
            over_soft: None,
            is_readable: false,
            was_left: false,
            in_turn: false,
            is_bound: false,
            awaits_commit: false,
            leaves_for: None,
            is_queued: false,
            closes: false,
        }
    }

    /// Begins a visit, if it has to.
    pub fn depart(&mut self, home: &Arc<LoopHandle>, token: usize) -> Option<Visit> {
        let wait = self.leaves_for.take()?;
        let talk = self.talk.take()?;
        let berth = self.berth.get_or_insert_default().clone();
        berth.leave(self.is_readable);
        let is_flushed = !self.waits_to_send() && talk.output.is_empty();
        let socket = self.transport.shared_socket().filter(|_| is_flushed);
        Some(Visit { talk, wait, home: home.clone(), token, socket, berth })
    }

    /// Looks whether it is back from its visit. If not, the loop will be told when it is.
    pub fn look(&mut self) {
        if self.talk.is_none()
            && let Some(berth) = &self.berth
        {
            self.talk = berth.look();
        }
    }

    pub fn unsent_bytes(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// Whether there is something that the socket has not taken.
    pub fn waits_to_send(&self) -> bool {
        self.unsent_bytes() > 0 || !self.transport.is_flushed()
    }

    /// Bytes of replies that have not left.
    pub fn held_output(&self) -> u64 {
        let output = self.talk.as_ref().map_or(0, |talk| talk.output.len());
        (self.unsent_bytes() + output) as u64
    }

    /// Notes that `held` bytes wait at `now_us`, where `soft_bytes` are many: for how long there
    /// have been that many without a break.
    pub fn note_held(&mut self, held: u64, soft_bytes: u64, now_us: u64) -> Duration {
        if held < soft_bytes {
            self.over_soft = None;
            return Duration::ZERO;
        }
        let (_, since) = *self.over_soft.get_or_insert((soft_bytes, now_us));
        Duration::from_micros(now_us.saturating_sub(since))
    }

    /// Whether it is to be served: it is here, and takes its replies.
    pub fn can_be_served(&self) -> bool {
        self.talk.is_some()
            && !self.closes
            && !self.awaits_commit
            && self.leaves_for.is_none()
            && self.unsent_bytes() <= MAX_UNSENT_BYTES
    }

    /// Its turn is over: its replies may leave, or are all `error`.
    pub fn leave_turn(&mut self, error: Option<&str>) {
        (self.in_turn, self.is_bound, self.awaits_commit) = (false, false, false);
        if let (Some(error), Some(talk)) = (error, &mut self.talk) {
            talk.fail_turn(error);
        }
    }

    /// Whether all replies have left.
    pub fn is_flushed(&self) -> bool {
        self.unsent_bytes() == 0
            && self.transport.is_flushed()
            && self.talk.as_ref().is_some_and(|talk| talk.output.is_empty())
    }

    pub fn receive(&mut self, buf: &mut [u8]) -> io::Result<Received> {
        let received = self.transport.receive(buf)?;
        self.is_readable = match received {
            // The end is not told a second time.
            Received::All(bytes) => self.was_left && bytes > 0,
            Received::More(_) => true,
            Received::Closed => false,
        };
        Ok(received)
    }

    /// Sends what there is to send, as far as the socket takes it; replies of a turn only when it
    /// is over. How many bytes went out.
    pub fn flush(&mut self) -> io::Result<usize> {
        let out = self.send()?;
        if self.over_soft.is_some_and(|(soft_bytes, _)| self.held_output() < soft_bytes) {
            self.over_soft = None;
        }
        Ok(out)
    }

    fn send(&mut self) -> io::Result<usize> {
        let mut out = 0;
        if self.waits_to_send() {
            let sent = self.transport.send(&self.unsent[self.sent..])?;
            out += sent;
            self.sent += sent;
            if self.sent == self.unsent.len() {
                self.unsent.clear();
                self.unsent.shrink_to(KEPT_BYTES);
                self.sent = 0;
            }
        }
        let may_leave = |talk: &&mut Box<Talk>| !self.in_turn && !talk.output.is_empty();
        let Some(talk) = self.talk.as_mut().filter(may_leave) else { return Ok(out) };
        let sent = match self.unsent.is_empty() {
            true => self.transport.send(&talk.output)?,
            false => 0,
        };
        self.unsent.extend_from_slice(&talk.output[sent..]);
        talk.output.clear();
        talk.output.shrink_to(KEPT_BYTES);
        Ok(out + sent)
    }

    /// Gives back memory that an idle client does not need.
    pub fn release(&mut self) {
        if self.unsent.is_empty() {
            self.unsent = Vec::new();
        }
        if let Some(talk) = &mut self.talk {
            talk.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::session::Home;
    use std::io::Read;
    use terrace_keyspace::Keyspace;

    struct Nobody;

    impl Home for Nobody {
        fn end(&self, _token: usize, _id: u64) {}
    }

    #[test]
    fn replies_of_a_turn_leave_when_it_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::load(None, [], []).unwrap();
        let space = Keyspace::open(dir.path(), config.settings().engine_options()).unwrap();
        let server = Server::new(space, config).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut theirs = std::net::TcpStream::connect(address).unwrap();
        let (ours, peer) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        let home = Arc::new(Nobody);
        let origin = Origin { peer, local: address, is_tls: false, home, token: 0 };
        let talk = Talk::begin(&server, origin);
        let transport = Transport::new(mio::net::TcpStream::from_std(ours), None).unwrap();
        let mut client = Connection::new(transport, Box::new(talk));
        let say = |client: &mut Connection, text: &[u8]| {
            let talk = client.talk.as_mut().unwrap();
            talk.begin_turn();
            talk.output.extend_from_slice(text);
            talk.turn_replies = 1;
            client.in_turn = true;
        };
        say(&mut client, b"+one\r\n");
        assert_eq!(client.flush().unwrap(), 0, "it is not committed");
        assert!(!client.is_flushed());
        client.leave_turn(None);
        assert_eq!(client.flush().unwrap(), 6);
        say(&mut client, b"+two\r\n");
        client.leave_turn(Some("ERR three"));
        client.flush().unwrap();
        assert!(client.is_flushed());
        drop(client);
        let mut heard = String::new();
        theirs.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "+one\r\n-ERR three\r\n");
    }
}
