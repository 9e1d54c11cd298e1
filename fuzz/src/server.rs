//! The target for the server: the bytes are what one client says, and go through the parser, the
//! dispatch and the turns of a real connection into a store in memory. Only the sockets are missing.
//!
//! Whatever the bytes are, every complete request gets exactly one reply that a client takes for
//! sound, the connection ends only for a reason, and the server goes on serving others: a key that
//! nobody can name keeps its value, unless everything was removed.

use std::sync::{Arc, Mutex};
use terrace::vfs::{SimVfs, Vfs};
use terrace_keyspace::Keyspace;
use terrace_resp::{Limits, Reply, ReplyParser, ReplyStep, RequestParser, Step, write_request};
use terrace_server::Server;
use terrace_server::config::{Config, Settings};
use terrace_server::net::Conversation;

/// Below a file of the real file system: nothing can be made there by accident, as checkpoints are.
const DIR: &str = "/dev/null/store";

/// No seed has it, and no mutation makes it.
const KNOWN_KEY: &str = "d41d8cd98f00b204:the known key";

/// A store serves this many inputs, then another one is made: what was removed takes room.
const INPUTS: u32 = 500;

/// A store in memory, and a server with the default options over it.
struct Bench {
    space: Arc<Keyspace>,
    admin: Conversation,
    inputs: u32,
}

static BENCH: Mutex<Option<Bench>> = Mutex::new(None);

fn config() -> Config {
    let small = ("maxmemory".into(), terrace::MIN_MEMORY_BUDGET.to_string());
    Config::load(None, [], [small]).expect("an option of the server")
}

fn server_over(space: &Arc<Keyspace>) -> Arc<Server> {
    Arc::new(Server::new(space.clone(), config()).expect("there are no users to be wrong"))
}

impl Bench {
    fn new() -> Self {
        let mut options = config().settings().engine_options();
        options.background_jobs = 1;
        options.advanced.vfs = Arc::new(SimVfs::new(0)) as Arc<dyn Vfs>;
        options.advanced.reserve_bytes = 0;
        options.advanced.memtable_bytes = 256 << 10;
        let space = Keyspace::open(DIR, options).expect("an empty directory in memory");
        let admin = Conversation::begin(&server_over(&space));
        Self { space, admin, inputs: 0 }
    }

    /// The reply to one request of somebody who may do everything.
    fn ask(&mut self, words: &[&str]) -> Vec<u8> {
        let mut request = Vec::new();
        write_request(&mut request, words);
        self.admin.say(&request)
    }
}

/// Says the bytes to a server, in pieces whose lengths they say themselves.
pub fn commands(data: &[u8]) -> bool {
    // An earlier input may have panicked: what it left is not used.
    let bench = BENCH.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    let mut bench = bench.unwrap_or_else(Bench::new);
    assert_eq!(bench.ask(&["FLUSHALL"]), b"+OK\r\n");
    assert_eq!(bench.ask(&["SET", KNOWN_KEY, "its value"]), b"+OK\r\n");
    let server = server_over(&bench.space);
    let before = server.config.settings();
    let mut client = Conversation::begin(&server);
    let mut said = Vec::new();
    let mut rest = data;
    while let Some(first) = rest.first() {
        let piece =
            if first % 4 == 0 { rest.len().min(1 + usize::from(*first)) } else { rest.len() };
        said.extend(client.say(&rest[..piece]));
        rest = &rest[piece..];
    }
    let asked = Asked::of(data);
    let replies = replies(&said);
    asked.check(&replies, client.is_over());
    check_others(&server, &mut bench, &asked);
    bench.inputs += 1;
    let is_spent =
        server.stop.is_requested() || changes_the_engine(&before, &server.config.settings());
    drop(client);
    if bench.inputs >= INPUTS || is_spent {
        // A checkpoint in the background may still hold it.
        let _ = bench.space.close();
    } else {
        *BENCH.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(bench);
    }
    asked.is_whole && replies.iter().any(|reply| !matches!(reply, Reply::Error(_)))
}

/// Options that the store keeps when the server over it is gone.
fn changes_the_engine(before: &Settings, after: &Settings) -> bool {
    let of = |s: &Settings| {
        (
            (s.maxmemory, s.rate_limit_bytes, s.value_separation_threshold),
            (s.appendfsync, s.gc_garbage_ratio.to_bits()),
        )
    };
    of(before) != of(after)
}

/// What the bytes ask for, as a parser of its own understands them.
struct Asked {
    /// Requests, and the error of the one that is none.
    replies: usize,
    is_whole: bool,
    /// There is a request that may end the connection.
    may_end: bool,
    /// There is one after which some are not answered.
    may_be_silent: bool,
    /// There is one that removes all keys.
    may_remove_all: bool,
}

impl Asked {
    fn of(data: &[u8]) -> Self {
        let mut asked = Self {
            replies: 0,
            is_whole: true,
            may_end: false,
            may_be_silent: false,
            may_remove_all: false,
        };
        let mut parser = RequestParser::new(Limits::default());
        let mut buf = data.to_vec();
        let mut at = 0;
        loop {
            match parser.next(&mut buf[at..]) {
                Ok(Step::Command(command)) => {
                    at += command.bytes();
                    asked.replies += 1;
                    let name = command.name().to_ascii_lowercase();
                    let word = command.get(1).unwrap_or_default().to_ascii_lowercase();
                    match &name[..] {
                        b"quit" | b"shutdown" | b"acl" => asked.may_end = true,
                        b"client" if word == b"kill" => asked.may_end = true,
                        b"client" if word == b"reply" => asked.may_be_silent = true,
                        b"flushall" | b"flushdb" => asked.may_remove_all = true,
                        _ => {}
                    }
                }
                Ok(Step::Blank { bytes }) => at += bytes,
                Ok(Step::Incomplete { .. }) => return asked,
                Err(_) => {
                    (asked.is_whole, asked.may_end) = (false, true);
                    asked.replies += 1;
                    return asked;
                }
            }
        }
    }

    fn check(&self, replies: &[Reply<'_>], is_over: bool) {
        assert!(replies.len() <= self.replies, "{} to {}", replies.len(), self.replies);
        assert!(self.may_end || !is_over, "ended without a reason");
        assert!(self.is_whole || is_over, "goes on after a request that is none");
        if !is_over && !self.may_be_silent {
            assert_eq!(replies.len(), self.replies, "some requests have no reply");
        }
    }
}

/// The replies, each taken for sound.
fn replies(bytes: &[u8]) -> Vec<Reply<'_>> {
    let mut parser = ReplyParser::new(Limits::default());
    let (mut at, mut replies) = (0, Vec::new());
    while at < bytes.len() {
        let step = parser.next(&bytes[at..]).expect("no reply");
        assert!(matches!(step, ReplyStep::Frame(_)), "half a reply: {}", bytes.escape_ascii());
        let ReplyStep::Frame(frame) = step else { break };
        at += frame.bytes().len();
        replies.push(frame.decode().expect("a frame that is none"));
    }
    replies
}

/// Others are served as if nothing had happened.
fn check_others(server: &Arc<Server>, bench: &mut Bench, asked: &Asked) {
    let answer = Conversation::begin(server).say(b"PING\r\n");
    match server.acl.default_login().is_some_and(|user| user.may_do_everything()) {
        true => assert_eq!(answer, b"+PONG\r\n"),
        // A password, or rules that do not allow it.
        false => assert!(answer == b"+PONG\r\n" || answer.starts_with(b"-NO"), "{answer:?}"),
    }
    let value = bench.ask(&["GET", KNOWN_KEY]);
    let is_kept = value == b"$9\r\nits value\r\n";
    assert!(is_kept || asked.may_remove_all, "{}", value.escape_ascii());
    assert_eq!(bench.ask(&["ECHO", "here"]), b"$4\r\nhere\r\n");
}

/// Pipelines of every group of commands, of both protocols, and of both ways to write a request.
const PIPELINES: &str = include_str!("pipelines.txt");

/// `PIPELINES` as requests of bulk strings, and as lines, which are harder to break: their mutants
/// get further.
pub fn command_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    // The first paragraph is about the file.
    for paragraph in PIPELINES.split("\n\n").skip(1) {
        let mut requests = Vec::new();
        for line in paragraph.lines() {
            write_request(&mut requests, &line.split(' ').collect::<Vec<_>>());
        }
        seeds.push(requests);
        seeds.push(
            paragraph.lines().flat_map(|line| [line, "\r\n"].concat().into_bytes()).collect(),
        );
    }
    seeds
}
