//! Commands that took long: a ring of the last ones, arguments cut as Redis cuts them.

use parking_lot::Mutex;
use std::collections::VecDeque;
use terrace_resp::Command;

/// Arguments that are kept of a command.
const MOST_ARGUMENTS: usize = 32;

/// Bytes that are kept of an argument.
const MOST_ARGUMENT_BYTES: usize = 128;

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
    /// `CLIENT SETNAME`.
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
        self.0.lock().entries.clear();
    }
}

/// The arguments of a command as they are kept: at most 32 of at most 128 bytes, with a word about
/// what was cut.
pub fn cut(command: &Command<'_>) -> Vec<Vec<u8>> {
    let count = command.count();
    let kept = if count > MOST_ARGUMENTS { MOST_ARGUMENTS - 1 } else { count };
    let mut arguments: Vec<Vec<u8>> = command.iter().take(kept).map(cut_argument).collect();
    if kept < count {
        arguments.push(format!("... ({} more arguments)", count - kept).into_bytes());
    }
    arguments
}

fn cut_argument(argument: &[u8]) -> Vec<u8> {
    if argument.len() <= MOST_ARGUMENT_BYTES {
        return argument.to_vec();
    }
    let more = argument.len() - MOST_ARGUMENT_BYTES;
    let mut kept = argument[..MOST_ARGUMENT_BYTES].to_vec();
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
    fn many_and_long_arguments_are_cut() {
        let long = vec![b'x'; 200];
        let arguments: Vec<&[u8]> = std::iter::repeat_n(&long[..], 40).collect();
        let command = OwnedCommand::of(&arguments);
        let cut = cut(&command.as_command());
        assert_eq!(cut.len(), 32);
        assert!(cut[0].ends_with(b"xx... (72 more bytes)"));
        assert_eq!(cut[31], b"... (9 more arguments)");
        let short = OwnedCommand::of(&["GET", "k"]);
        assert_eq!(super::cut(&short.as_command()), [b"GET".to_vec(), b"k".to_vec()]);
    }
}
