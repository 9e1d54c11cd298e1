//! Commands that took long: a ring of the last ones, arguments cut as Redis cuts them.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Range;
use terrace_resp::Command;

/// Arguments that are kept of a command.
const MAX_ARGUMENTS: usize = 32;

/// Bytes that are kept of an argument.
const MAX_ARGUMENT_BYTES: usize = 128;

/// Entries that are copied at a time.
const COPIED_AT_ONCE: usize = 256;

/// One command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowCommand {
    /// Unique and growing.
    pub id: u64,
    /// When it was executed, in ms since 1970.
    pub at_ms: u64,
    /// How long it took.
    pub took_us: u64,
    /// Name and arguments, cut.
    pub arguments: Vec<Vec<u8>>,
    /// The client's address.
    pub peer: String,
    /// `CLIENT SETNAME`, cut.
    pub client_name: String,
}

/// The log.
#[derive(Default)]
pub struct SlowLog(Mutex<Ring>);

#[derive(Default)]
struct Ring {
    entries: VecDeque<SlowCommand>,
    next_id: u64,
}

impl SlowLog {
    /// Adds a command; of more than `most` the oldest ones go.
    pub fn add(&self, most: usize, make: impl FnOnce() -> SlowCommand) {
        let mut ring = self.0.lock();
        let id = ring.next_id;
        ring.next_id += 1;
        if most > 0 {
            ring.entries.push_front(SlowCommand { id, ..make() });
        }
        ring.entries.truncate(most);
    }

    /// The newest `count`, newest first.
    pub fn newest(&self, count: usize) -> Vec<SlowCommand> {
        self.0.lock().entries.iter().take(count).cloned().collect()
    }

    /// Shows the newest `count`, newest first, until `seen` says no more. Some of them are copied at a time: who adds one
    /// waits for no more than that, and there is memory for no more.
    pub(crate) fn each(&self, count: usize, mut seen: impl FnMut(&SlowCommand) -> bool) {
        let (mut left, mut before) = (count, u64::MAX);
        loop {
            let some: Vec<SlowCommand> = {
                let ring = self.0.lock();
                let first = ring.entries.partition_point(|entry| entry.id >= before);
                let rest = ring.entries.iter().skip(first);
                rest.take(left.min(COPIED_AT_ONCE)).cloned().collect()
            };
            let Some(last) = some.last() else { return };
            (left, before) = (left - some.len(), last.id);
            if !some.iter().all(&mut seen) {
                return;
            }
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.lock().entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all of them; ids go on.
    pub fn clear(&self) {
        let gone = std::mem::take(&mut self.0.lock().entries);
        // Who adds one does not wait for that.
        drop(gone);
    }
}

/// What stands in the log for a password.
const REDACTED: &[u8] = b"(redacted)";

/// The arguments of a command as they are kept: at most 32 of at most 128 bytes, with a word about
/// what was cut, and without passwords.
pub fn cut(command: &Command<'_>) -> Vec<Vec<u8>> {
    let count = command.count();
    let kept = if count > MAX_ARGUMENTS { MAX_ARGUMENTS - 1 } else { count };
    let secrets = secrets(command);
    let numbered = command.iter().enumerate().take(kept);
    let keep = |(at, argument): (usize, &[u8])| match secrets.contains(&at) {
        true => REDACTED.to_vec(),
        false => cut_argument(argument),
    };
    let mut arguments: Vec<Vec<u8>> = numbered.map(keep).collect();
    if kept < count {
        arguments.push(format!("... ({} more arguments)", count - kept).into_bytes());
    }
    arguments
}

/// Where passwords may stand: all that follows AUTH, whether it is the command or a part of HELLO,
/// all that follows ACL SETUSER, the arguments of what ACL DRYRUN tries, and the values of CONFIG SET if
/// a secret is among them. As in Redis, the names of users behind ACL GETUSER and ACL DELUSER as well.
fn secrets(command: &Command<'_>) -> Range<usize> {
    let is = |at: usize, word: &str| {
        command.get(at).is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    };
    let end = command.count();
    if is(0, "auth") {
        return 1..end;
    }
    if is(0, "hello") {
        return (2..end).find(|at| is(*at, "auth")).map_or(0..0, |at| at + 1..end);
    }
    if is(0, "acl") && ["setuser", "getuser", "deluser"].iter().any(|word| is(1, word)) {
        return 2..end;
    }
    // The command that is tried may be one of these.
    if is(0, "acl") && is(1, "dryrun") {
        return 4.min(end)..end;
    }
    let named = || (2..end).step_by(2).find(|at| is_secret_option(command, *at));
    match is(0, "config") && is(1, "set") {
        true => named().map_or(0..0, |at| at + 1..end),
        false => 0..0,
    }
}

fn is_secret_option(command: &Command<'_>, at: usize) -> bool {
    let name = command.get(at).and_then(|name| std::str::from_utf8(name).ok());
    name.and_then(crate::config::option).is_some_and(crate::config::OptionSpec::is_secret)
}

/// The name of a client as it is kept: its first 128 bytes.
pub fn cut_name(name: &str) -> String {
    // Names are ASCII.
    name.chars().take(MAX_ARGUMENT_BYTES).collect()
}

fn cut_argument(argument: &[u8]) -> Vec<u8> {
    if argument.len() <= MAX_ARGUMENT_BYTES {
        return argument.to_vec();
    }
    let more = argument.len() - MAX_ARGUMENT_BYTES;
    let mut kept = argument[..MAX_ARGUMENT_BYTES].to_vec();
    kept.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_resp::OwnedCommand;

    fn entry(took_us: u64) -> SlowCommand {
        let (peer, client_name) = (String::new(), String::new());
        SlowCommand { id: 0, at_ms: 0, took_us, arguments: Vec::new(), peer, client_name }
    }

    #[test]
    fn the_newest_ones_are_kept_and_ids_go_on() {
        let log = SlowLog::default();
        for took_us in 0..10 {
            log.add(3, || entry(took_us));
        }
        let seen: Vec<_> = log.newest(10).iter().map(|e| (e.id, e.took_us)).collect();
        assert_eq!(seen, [(9, 9), (8, 8), (7, 7)]);
        assert_eq!(log.newest(1).len(), 1);
        log.clear();
        assert!(log.is_empty());
        log.add(3, || entry(1));
        assert_eq!(log.newest(1)[0].id, 10);
        log.add(0, || panic!("nothing is kept"));
        assert!(log.is_empty());
    }

    #[test]
    fn entries_are_shown_in_portions_beside_those_that_come_and_go() {
        let log = SlowLog::default();
        for took_us in 0..1000 {
            log.add(1000, || entry(took_us));
        }
        let shown = |count, most| {
            let mut ids = Vec::new();
            log.each(count, |entry| {
                ids.push(entry.id);
                ids.len() < most
            });
            ids
        };
        assert_eq!(shown(usize::MAX, usize::MAX), (0..1000).rev().collect::<Vec<_>>());
        assert_eq!(shown(600, usize::MAX), (400..1000).rev().collect::<Vec<_>>());
        assert_eq!(shown(usize::MAX, 300), (700..1000).rev().collect::<Vec<_>>());
        assert!(shown(0, usize::MAX).is_empty());
        // None of them twice, and not those that have come meanwhile; the lock is free.
        let mut ids = Vec::new();
        log.each(usize::MAX, |seen| {
            ids.push(seen.id);
            log.add(1000, || entry(0));
            true
        });
        assert!(ids.iter().rev().zip(1000 - ids.len() as u64..).all(|(id, at)| *id == at));
        assert!(ids.len() >= COPIED_AT_ONCE, "{}", ids.len());
        log.each(usize::MAX, |_| {
            log.clear();
            true
        });
        assert!(log.is_empty());
    }

    #[test]
    fn many_and_long_arguments_are_cut() {
        let long = [b'x'; 200];
        let arguments: Vec<&[u8]> = std::iter::repeat_n(&long[..], 40).collect();
        let command = OwnedCommand::of(&arguments);
        let cut = cut(&command.as_command());
        assert_eq!(cut.len(), 32);
        assert!(cut[0].ends_with(b"xx... (72 more bytes)"));
        assert_eq!(cut[31], b"... (9 more arguments)");
        let short = OwnedCommand::of(&["GET", "k"]);
        assert_eq!(super::cut(&short.as_command()), [b"GET".to_vec(), b"k".to_vec()]);
    }

    #[test]
    fn passwords_are_not_kept() {
        for (words, kept) in [
            (&["AUTH", "hunter2"][..], 1),
            (&["auth", "user", "hunter2"], 1),
            (&["HELLO", "3", "SETNAME", "x", "auth", "user", "hunter2"], 5),
            (&["ACL", "SetUser", "bob", "on", ">hunter2"], 2),
            (&["ACL", "GETUSER", "bob"], 2),
            (&["acl", "DelUser", "bob", "eve"], 2),
            (&["CONFIG", "SET", "timeout", "5", "RequirePass", "hunter2", "maxclients", "9"], 5),
            (&["AUTH", "a", "b", "hunter2"], 1),
        ] {
            let command = OwnedCommand::of(words);
            let cut = super::cut(&command.as_command());
            assert_eq!(cut.len(), words.len());
            for (at, (word, argument)) in words.iter().zip(&cut).enumerate() {
                let expected = if at < kept { word.as_bytes() } else { REDACTED };
                assert_eq!(argument, expected, "{words:?}");
            }
        }
        for words in
            [&["SET", "auth", "x"][..], &["CONFIG", "SET", "timeout", "5"], &["HELLO", "3"]]
        {
            let command = OwnedCommand::of(words);
            let bytes: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            assert_eq!(super::cut(&command.as_command()), bytes);
        }
    }
}
