//! The part of a client that executes commands: its session, what it has sent, and its replies. It goes as a
//! whole to a thread that may wait.

use super::open_call::OpenCall;
use super::remote::RemoteReplies;
use super::turn_clock::{Pace, TurnClock};
use crate::dispatch::{self, Executed};
use crate::place::{Await, HELD, ON_SHARD, PATIENT, TRY_AGAIN};
use crate::server::Server;
use crate::session::{Caller, Origin, Replies, Session, SessionMark};
use std::time::Instant;
use terrace_cluster::ShardId;
use terrace_keyspace::{CommandBatch, Mode, Wait};
use terrace_resp::{
    Command, Limits, OwnedCommand, ReplyWriter, RequestParser, Step, parse_integer,
};

/// Nothing more is executed of a client with more unsent reply bytes than this until it reads (back-pressure).
pub(super) const MAX_UNSENT_BYTES: usize = 1 << 20;

/// A batch of this many bytes is committed before more is executed.
pub(super) const MAX_BATCH_BYTES: usize = 1 << 20;

/// Commands of one client that are executed at a time; then the other clients are served.
const MAX_COMMANDS: usize = 512;

/// A command of more bytes than this is not copied when it is left to a thread that may wait, but parsed again there.
const MAX_COPIED_BYTES: usize = 64 << 10;

/// How often a command waits for the cluster, until it is refused.
const MAX_AWAITS: u32 = 256;

/// Buffers of more bytes than this are given back when they are empty.
pub(super) const KEPT_BYTES: usize = 16 << 10;

/// The part of a client that executes commands: is offloaded as a whole.
pub(crate) struct ClientState {
    pub session: Session,
    parser: RequestParser,
    /// Of the limits that the parser has; `None` if they never change.
    limits_version: Option<u64>,
    /// Bytes that were received; those before `input_at` are executed.
    input: Vec<u8>,
    input_at: usize,
    /// Parsed, to be executed later or by a thread that may wait.
    pending: Option<OwnedCommand>,
    /// How often it was tried.
    tries: u32,
    /// Replies that were not given to the connection.
    pub output: Vec<u8>,
    /// Where in `output` the replies of the current batch begin, and how many there are.
    pub(super) batch_mark: usize,
    pub(super) batch_replies: usize,
    /// How the session was then.
    batch_session: SessionMark,
    /// Replies of other nodes, which have their places in `output`.
    pub(super) remote: RemoteReplies,
}

/// How far a client was served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All its complete commands were executed.
    Idle,
    /// There are more commands, to be executed after those of other clients.
    More,
    /// The next command may block; the number of tries so far.
    Elsewhere(Wait, u32),
    /// The next command waits for the cluster.
    Await(Await),
    /// The next command waits for the commit of the batch that it is in.
    AfterCommit,
    /// The next command waits for the end of a `CLIENT PAUSE`.
    Paused,
    /// Nothing more is to be executed: the connection ends when its replies are sent.
    Close,
    /// What became of its last commands is not known: the connection ends, and nothing of a call is answered.
    Unsure,
}

impl ClientState {
    /// A client connects; until it has logged in, if it has to, its requests are small.
    pub fn begin(server: &Server, origin: Origin) -> Self {
        let info = server.clients.join(origin, server.space.now_ms());
        Self::of(server, Session::of(info, server.acl.default_login()))
    }

    /// Who executes calls: no client, and asked for no password.
    pub fn begin_call(server: &Server, origin: Origin) -> Self {
        let info = server.clients.describe(origin, server.space.now_ms());
        let mut state = Self::of(server, Session::of(info, None));
        state.limits_version = None;
        state.end_input();
        state
    }

    fn of(server: &Server, session: Session) -> Self {
        let limits_version = Some(server.limits_version());
        let limits = server.limits();
        let parser = match session.user.is_some() {
            true => RequestParser::new(limits),
            false => RequestParser::for_guest(limits),
        };
        Self {
            batch_session: session.mark(),
            session,
            parser,
            limits_version,
            input: Vec::new(),
            input_at: 0,
            pending: None,
            tries: 0,
            output: Vec::new(),
            batch_mark: 0,
            batch_replies: 0,
            remote: RemoteReplies::default(),
        }
    }

    /// A call begins; its requests are to be executed by [`Self::go_on`].
    pub fn begin_call_of(&mut self, call: &mut OpenCall) {
        self.begin_session_of(call);
        (self.input, self.input_at) = (std::mem::take(&mut call.requests), 0);
    }

    /// A call begins of one command, which is to be executed by [`Self::execute_one`].
    pub fn begin_session_of(&mut self, call: &OpenCall) {
        let session = &mut self.session;
        (session.caller, session.protocol, session.db) = (call.caller, call.protocol, call.db);
        (session.shard, session.has_moved, session.queued) = (None, false, None);
        (session.closes, session.replies, session.watched) = (false, Replies::On, None);
        (session.is_patient, session.at_copy) = (call.is_patient, call.at_copy);
        session.call_bytes = call.requests.len();
        session.held_keys.clear();
    }

    /// Executes a command that is parsed already. Whether that was all: if not, nothing has happened, and what this
    /// holds of the command and its reply is to be thrown away.
    pub fn execute_one(
        &mut self,
        command: Command<'_>,
        batch: &mut CommandBatch,
        server: &Server,
    ) -> bool {
        let Self { session, output, batch_replies, remote, .. } = self;
        batch.look_at_the_clock();
        let call = (&mut *session, &mut *output, &mut *batch_replies);
        match run(command, batch, server, call, &mut Instant::now()) {
            Executed::Replied => {}
            Executed::Away(away) => {
                let (place, cluster) = ((&output[..], *batch_replies), server.cluster.as_ref());
                match remote.take(away, &command, place, session, cluster) {
                    Some(_) if !session.may_wait() => {
                        give_up(&command, (session, output, batch_replies));
                    }
                    Some(_) | None => return false,
                }
            }
            Executed::Elsewhere(_)
            | Executed::Back
            | Executed::AfterCommit
            | Executed::Paused
            | Executed::Close => {
                return false;
            }
        }
        !output.is_empty()
    }

    /// Forgets what was not executed of a call.
    pub fn end_input(&mut self) {
        (self.input, self.input_at) = (Vec::new(), 0);
        self.pending = None;
        self.parser = RequestParser::new(merge_limits());
    }

    /// Whether something that was read waits to be executed.
    pub fn has_input(&self) -> bool {
        !self.input.is_empty() || self.pending.is_some()
    }

    /// Whether a command of it has been looked at that is still to be executed.
    pub fn has_command(&self) -> bool {
        self.pending.is_some()
    }

    /// Whether the next command neither writes nor uses a key. False if it was not looked at yet.
    pub fn next_uses_no_key(&self) -> bool {
        let next = self.pending.as_ref().map(OwnedCommand::as_command);
        next.is_some_and(|next| dispatch::uses_no_key(&next, &self.session))
    }

    /// Whether that is so, and nothing more was received.
    pub fn ends_without_key(&self) -> bool {
        self.input.is_empty() && self.next_uses_no_key()
    }

    /// Executes what is in `fresh`, which has just been read.
    pub fn feed(
        &mut self,
        fresh: &mut [u8],
        batch: &mut CommandBatch,
        server: &Server,
    ) -> Progress {
        if self.has_input() {
            self.lay_by(fresh);
            return self.go_on(batch, server, MAX_COMMANDS);
        }
        let (used, progress) = self.execute(fresh, batch, server, MAX_COMMANDS);
        self.lay_by(&fresh[used..]);
        progress
    }

    /// Keeps what has just been read, to be executed later.
    pub fn lay_by(&mut self, fresh: &[u8]) {
        self.input.extend_from_slice(fresh);
    }

    /// Bytes that were received and not executed.
    pub fn input_bytes(&self) -> usize {
        self.input.len() - self.input_at
    }

    /// Bytes up to here of the input are executed. They are dropped when they are most of it, so that what is behind
    /// them is moved rarely.
    fn advance(&mut self, to: usize) {
        self.input_at = to;
        if self.input_at == self.input.len() {
            self.input_at = 0;
            match self.input.capacity() > KEPT_BYTES {
                true => self.input = Vec::new(),
                false => self.input.clear(),
            }
        } else if self.input_at > KEPT_BYTES && self.input_at > self.input.len() / 2 {
            self.input.drain(..self.input_at);
            self.input_at = 0;
            if self.input.capacity() / 4 > self.input.len() {
                self.input.shrink_to(2 * self.input.len().max(KEPT_BYTES));
            }
        }
    }

    /// Executes at most `most` of the commands that were read before.
    pub fn go_on(&mut self, batch: &mut CommandBatch, server: &Server, most: usize) -> Progress {
        let mut most = most;
        if let Some(pending) = self.pending.take() {
            // It has waited, and the batch may be one that was laid aside.
            batch.look_at_the_clock();
            let Self { session, output, batch_replies, remote, .. } = self;
            let call = (&mut *session, &mut *output, &mut *batch_replies);
            let command = pending.as_command();
            match run(command, batch, server, call, &mut Instant::now()) {
                Executed::Replied => {}
                Executed::Elsewhere(wait) => {
                    self.pending = Some(pending);
                    self.tries += 1;
                    return Progress::Elsewhere(wait, self.tries);
                }
                Executed::Away(away) => {
                    let place = (&output[..], *batch_replies);
                    let cluster = server.cluster.as_ref();
                    if let Some(until) = remote.take(away, &command, place, session, cluster) {
                        self.tries += 1;
                        if self.tries <= MAX_AWAITS && session.may_wait() {
                            self.pending = Some(pending);
                            return Progress::Await(until);
                        }
                        give_up(&command, (session, output, batch_replies));
                    }
                }
                Executed::Back => {
                    self.pending = Some(pending);
                    return Progress::More;
                }
                Executed::AfterCommit => {
                    self.pending = Some(pending);
                    return Progress::AfterCommit;
                }
                Executed::Paused => {
                    self.pending = Some(pending);
                    return Progress::Paused;
                }
                Executed::Close => return Progress::Close,
            }
            follow_login(&mut self.session, &mut self.parser);
            self.session.shard = None;
            // Also if its reply is to come from another node.
            if self.session.closes {
                return Progress::Close;
            }
            most -= 1;
        }
        if self.input.is_empty() {
            return Progress::Idle;
        }
        let mut input = std::mem::take(&mut self.input);
        let from = self.input_at;
        let (used, progress) = self.execute(&mut input[from..], batch, server, most);
        self.input = input;
        self.advance(from + used);
        progress
    }

    /// The options that bound requests may have changed.
    fn follow_limits(&mut self, server: &Server) {
        let Some(known) = &mut self.limits_version else { return };
        let version = server.limits_version();
        if version != *known {
            *known = version;
            self.parser.set_limits(server.limits());
        }
    }

    /// How many bytes of `buf` were executed, and why not more.
    fn execute(
        &mut self,
        buf: &mut [u8],
        batch: &mut CommandBatch,
        server: &Server,
        most: usize,
    ) -> (usize, Progress) {
        self.follow_limits(server);
        let Self { session, parser, pending, tries, output, batch_replies, remote, .. } = self;
        let cluster = server.cluster.as_ref();
        batch.look_at_the_clock();
        let mut clock = Instant::now();
        let mut turn = TurnClock::begin(clock);
        let mut at = 0;
        for _ in 0..most {
            if is_full(session, output) || remote.is_full(cluster) {
                server.stats.held_turns.add(u64::from(at == 0));
                return (at, Progress::More);
            }
            if session.is_settling() {
                return (at, Progress::More);
            }
            match parser.next(&mut buf[at..]) {
                Ok(Step::Command(command)) => {
                    at += command.bytes();
                    if session.caller != Caller::Client && command.name() == PATIENT {
                        session.is_patient = true;
                        continue;
                    }
                    if session.caller != Caller::Client
                        && let Some((shard, inner)) = for_shard(&command)
                    {
                        session.shard = Some(shard);
                        (*pending, *tries) = (Some(inner), 0);
                        return (at, Progress::More);
                    }
                    let call = (&mut *session, &mut *output, &mut *batch_replies);
                    match run(command, batch, server, call, &mut clock) {
                        Executed::Replied => {}
                        // A line of words is not to be parsed twice. A loop counts how often a command was refused a key.
                        Executed::Elsewhere(wait)
                            if command.bytes() > MAX_COPIED_BYTES
                                && !command.is_line()
                                && (wait != Wait::Key || batch.mode() == Mode::Device) =>
                        {
                            return (at - command.bytes(), Progress::Elsewhere(wait, 1));
                        }
                        Executed::Elsewhere(wait) => {
                            (*pending, *tries) = (Some(command.to_owned()), 1);
                            return (at, Progress::Elsewhere(wait, 1));
                        }
                        Executed::Away(away) => {
                            let place = (&output[..], *batch_replies);
                            if let Some(until) =
                                remote.take(away, &command, place, session, cluster)
                            {
                                if session.may_wait() {
                                    (*pending, *tries) = (Some(command.to_owned()), 1);
                                    return (at, Progress::Await(until));
                                }
                                give_up(&command, (session, output, batch_replies));
                            }
                        }
                        Executed::Back => {
                            (*pending, *tries) = (Some(command.to_owned()), 0);
                            return (at, Progress::More);
                        }
                        Executed::AfterCommit => {
                            (*pending, *tries) = (Some(command.to_owned()), 0);
                            return (at, Progress::AfterCommit);
                        }
                        Executed::Paused => {
                            (*pending, *tries) = (Some(command.to_owned()), 0);
                            return (at, Progress::Paused);
                        }
                        Executed::Close => return (at, Progress::Close),
                    }
                    follow_login(session, parser);
                    if session.closes || batch.size_bytes() > MAX_BATCH_BYTES {
                        return (at, if session.closes { Progress::Close } else { Progress::More });
                    }
                    match turn.end_command(clock) {
                        Pace::Go => {}
                        Pace::Look => batch.look_at_the_clock(),
                        // What another node sends is executed in one batch.
                        Pace::Rest if session.caller != Caller::Client => batch.look_at_the_clock(),
                        Pace::Rest => break,
                    }
                }
                Ok(Step::Blank { bytes }) => at += bytes,
                Ok(Step::Incomplete { .. }) => return (at, Progress::Idle),
                Err(malformed) => {
                    *batch_replies += 1;
                    refuse_malformed(&malformed, session, server, output);
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
        (self.session.is_guarded, self.session.is_bound) = (false, false);
        self.batch_session = self.session.mark();
    }

    /// The batch was not committed: every reply of it that is of this node becomes this error. Gives whether the
    /// connection has to end: the error says that a command like `SELECT` did nothing, and it did, so that what the client
    /// sends next would be executed in another session than it was meant for.
    #[must_use]
    pub fn fail_batch(&mut self, error: &str) -> bool {
        let Self { remote, output, batch_mark, batch_replies, session, .. } = self;
        remote.fail_batch(output, (*batch_mark, *batch_replies), |output| {
            ReplyWriter::new(output, session.protocol).error(error);
        });
        session.caller == Caller::Client && session.has_left(self.batch_session)
    }

    /// Puts the replies of other nodes, which have all come, into the output.
    pub fn weave(&mut self) {
        self.remote.weave(&mut self.output);
        self.session.round.end();
    }

    /// Leaves out what was not executed of a call, if nothing behind that was: the replies of what is before it are the
    /// output. False if something was; then nothing is changed.
    pub fn cut_short(&mut self) -> bool {
        if !self.remote.cut_short(&mut self.output) {
            return false;
        }
        self.session.round.end();
        self.end_input();
        true
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

/// Whether nothing more is executed until replies have left. Those of a call leave at its end, which is never in a
/// transaction.
fn is_full(session: &Session, output: &[u8]) -> bool {
    let may_end = session.caller == Caller::Client || session.queued.is_none();
    may_end && output.len() > MAX_UNSENT_BYTES
}

/// A client that has authenticated, or has to once more, may send requests as long as others like it.
fn follow_login(session: &mut Session, parser: &mut RequestParser) {
    if std::mem::take(&mut session.login_changed) && session.caller == Caller::Client {
        match session.user.is_some() {
            true => parser.admit(),
            false => parser.dismiss(),
        }
    }
}

fn refuse_malformed(
    malformed: &impl std::fmt::Display,
    session: &Session,
    server: &Server,
    output: &mut Vec<u8>,
) {
    let text = format!("ERR {malformed}");
    server.errors.note(&text);
    ReplyWriter::new(output, session.protocol).error(text);
    server.stats.protocol_errors.add(1);
    tracing::debug!(client = session.id, %malformed, "not a request");
}

/// A command that would have to wait is not executed: a client is refused, and another node sends it again.
fn give_up(
    command: &Command<'_>,
    (session, output, replies): (&mut Session, &mut Vec<u8>, &mut usize),
) {
    let is_client = session.may_wait();
    if !is_client {
        dispatch::hold_back(command, session);
    }
    // What any other command would have changed is as it was.
    if command.name().eq_ignore_ascii_case(b"exec") {
        session.end_transaction();
    }
    dispatch::refuse(session, output, if is_client { TRY_AGAIN } else { HELD });
    *replies += 1;
}

/// The limits of what nodes send each other: those of any client.
fn merge_limits() -> Limits {
    Limits { elements: u32::MAX as usize, bulk_bytes: u32::MAX as usize, ..Limits::default() }
}

/// The shard that a command is for as a whole, and the command.
fn for_shard(command: &Command<'_>) -> Option<(ShardId, OwnedCommand)> {
    if command.name() != ON_SHARD || command.count() < 3 {
        return None;
    }
    let shard = command.get(1).and_then(parse_integer).and_then(|id| u32::try_from(id).ok())?;
    let words: Vec<&[u8]> = command.iter().skip(2).collect();
    Some((ShardId(shard), OwnedCommand::of(&words)))
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
