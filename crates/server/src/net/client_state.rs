//! The part of a client that executes commands: its session, what it has sent, and its replies. It goes as a
//! whole to a thread that may wait.

use crate::dispatch::{self, Executed};
use crate::server::Server;
use crate::session::{Origin, Session};
use std::time::Instant;
use terrace_keyspace::{CommandBatch, Wait};
use terrace_resp::{Command, OwnedCommand, ReplyWriter, RequestParser, Step};

/// A client with more unsent reply bytes than this is not served until it reads (back-pressure).
pub(super) const MAX_UNSENT_BYTES: usize = 1 << 20;

/// Commands of one client that are executed at a time; then the other clients are served.
const MAX_COMMANDS: usize = 512;

/// Buffers of more bytes than this are given back when they are empty.
pub(super) const KEPT_BYTES: usize = 16 << 10;

/// The part of a client that executes commands: is offloaded as a whole.
pub(crate) struct ClientState {
    pub session: Session,
    parser: RequestParser,
    /// Bytes that were received and not executed.
    input: Vec<u8>,
    /// Parsed, to be executed later or by a thread that may wait.
    pending: Option<OwnedCommand>,
    /// How often it was tried.
    tries: u32,
    /// Replies that were not given to the connection.
    pub output: Vec<u8>,
    /// Where in `output` the replies of the current batch begin, and how many there are.
    batch_mark: usize,
    pub(super) batch_replies: usize,
}

/// How far a client was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All its complete commands were executed.
    Idle,
    /// There are more commands, to be executed after those of other clients.
    More,
    /// The next command may block; the number of tries so far.
    Elsewhere(Wait, u32),
    /// Nothing more is to be executed: the connection ends when its replies are sent.
    Close,
}

impl ClientState {
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
            batch_mark: 0,
            batch_replies: 0,
        }
    }

    /// Whether something that was read waits to be executed.
    pub fn has_input(&self) -> bool {
        !self.input.is_empty() || self.pending.is_some()
    }

    /// Executes what is in `fresh`, which has just been read.
    pub fn feed(
        &mut self,
        fresh: &mut [u8],
        batch: &mut CommandBatch,
        server: &Server,
    ) -> Progress {
        if self.has_input() {
            self.input.extend_from_slice(fresh);
            return self.go_on(batch, server, MAX_COMMANDS);
        }
        let (used, progress) = self.execute(fresh, batch, server, MAX_COMMANDS);
        self.input.extend_from_slice(&fresh[used..]);
        progress
    }

    /// Executes at most `most` of the commands that were read before.
    pub fn go_on(&mut self, batch: &mut CommandBatch, server: &Server, most: usize) -> Progress {
        let mut most = most;
        if let Some(pending) = self.pending.take() {
            let Self { session, output, batch_replies, .. } = self;
            let call = (session, output, batch_replies);
            match run(pending.as_command(), batch, server, call, &mut Instant::now()) {
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
        let (used, progress) = self.execute(&mut input, batch, server, most);
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
        batch: &mut CommandBatch,
        server: &Server,
        most: usize,
    ) -> (usize, Progress) {
        let Self { session, parser, pending, tries, output, batch_replies, .. } = self;
        batch.look_at_the_clock();
        let mut clock = Instant::now();
        let mut at = 0;
        for _ in 0..most {
            if output.len() > MAX_UNSENT_BYTES {
                return (at, Progress::More);
            }
            match parser.next(&mut buf[at..]) {
                Ok(Step::Command(command)) => {
                    at += command.bytes();
                    let call = (&mut *session, &mut *output, &mut *batch_replies);
                    match run(command, batch, server, call, &mut clock) {
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
                    *batch_replies += 1;
                    server.stats.protocol_errors.add(1);
                    tracing::debug!(client = session.id, %malformed, "not a request");
                    return (at, Progress::Close);
                }
            }
        }
        (at, if at < buf.len() { Progress::More } else { Progress::Idle })
    }

    /// A batch begins: its replies stand behind what is in the output now.
    pub fn begin_batch(&mut self) {
        self.batch_mark = self.output.len();
        self.batch_replies = 0;
    }

    /// The batch was not committed: every reply of it becomes this error.
    pub fn fail_batch(&mut self, error: &str) {
        self.output.truncate(self.batch_mark);
        let mut reply = ReplyWriter::new(&mut self.output, self.session.protocol);
        for _ in 0..self.batch_replies {
            reply.error(error);
        }
    }

    /// This many bytes of the output have left.
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
    batch: &mut CommandBatch,
    server: &Server,
    (session, output, replies): (&mut Session, &mut Vec<u8>, &mut usize),
    clock: &mut Instant,
) -> Executed {
    let before = output.len();
    let done = dispatch::execute(command, batch, session, server, output, clock);
    *replies += usize::from(output.len() > before);
    done
}
