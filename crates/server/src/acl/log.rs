//! ACL LOG: what was refused of late. Alike refusals within a minute are one entry.

use std::collections::VecDeque;
use std::sync::Arc;

/// Refusals that are alike count as one if they are no further apart, in ms.
const SAME_WITHIN_MS: u64 = 60_000;

/// Objects and names are kept up to this length.
const MAX_TEXT_BYTES: usize = 256;

/// Descriptions of clients are kept up to this length.
const MAX_CLIENT_BYTES: usize = 1024;

/// Entries that are looked at to find one that is alike.
const LOOKED_AT: usize = 10;

/// What was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A login.
    Auth,
    /// A command.
    Command,
    /// A key.
    Key,
    /// A channel.
    Channel,
}

impl Reason {
    /// As ACL LOG writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
        }
    }
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Grows with every entry.
    pub id: u64,
    /// How often it happened.
    pub count: u64,
    /// What was refused.
    pub reason: Reason,
    /// `toplevel` or `multi`.
    pub context: &'static str,
    /// The command, key, channel, or name of the user who could not log in.
    pub object: Vec<u8>,
    /// Who asked.
    pub user: String,
    /// As CLIENT LIST describes the last client.
    pub client: String,
    /// Of the first time, in ms since 1970.
    pub created_ms: u64,
    /// Of the last time, in ms since 1970.
    pub updated_ms: u64,
}

/// The newest refusals, newest first.
#[derive(Debug, Default)]
pub struct AclLog {
    entries: VecDeque<Arc<LogEntry>>,
    next_id: u64,
}

impl AclLog {
    /// Adds a refusal at `now_ms`, and drops what is more than `max_len` entries.
    #[allow(clippy::too_many_arguments)]
    pub fn note(
        &mut self,
        now_ms: u64,
        max_len: usize,
        reason: Reason,
        context: &'static str,
        object: &[u8],
        user: &str,
        client: &str,
    ) {
        let object = &object[..object.len().min(MAX_TEXT_BYTES)];
        let clipped = |text: &str, most: usize| text.chars().take(most).collect::<String>();
        let (user, client) = (clipped(user, MAX_TEXT_BYTES), clipped(client, MAX_CLIENT_BYTES));
        let alike = |entry: &Arc<LogEntry>| {
            entry.reason == reason
                && entry.context == context
                && entry.object == object
                && entry.user == user
                && now_ms.saturating_sub(entry.updated_ms) <= SAME_WITHIN_MS
        };
        let seen = self.entries.iter().take(LOOKED_AT).position(alike);
        let known = seen.and_then(|at| self.entries.remove(at)).map(Arc::unwrap_or_clone);
        let entry = match known {
            Some(entry) => LogEntry { count: entry.count + 1, client, updated_ms: now_ms, ..entry },
            None => {
                self.next_id += 1;
                LogEntry {
                    id: self.next_id - 1,
                    count: 1,
                    reason,
                    context,
                    object: object.to_vec(),
                    user,
                    client,
                    created_ms: now_ms,
                    updated_ms: now_ms,
                }
            }
        };
        self.entries.push_front(Arc::new(entry));
        self.entries.truncate(max_len);
    }

    /// The newest `count` entries, newest first.
    pub fn newest(&self, count: usize) -> Vec<LogEntry> {
        self.shared(count).into_iter().map(Arc::unwrap_or_clone).collect()
    }

    /// As [`Self::newest`], without copies of them.
    pub(crate) fn shared(&self, count: usize) -> Vec<Arc<LogEntry>> {
        self.entries.iter().take(count).cloned().collect()
    }

    /// Forgets all.
    pub fn reset(&mut self) {
        drop(self.take_all());
    }

    /// Forgets all, and gives them: to drop many takes its time.
    pub(crate) fn take_all(&mut self) -> VecDeque<Arc<LogEntry>> {
        std::mem::take(&mut self.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alike_refusals_are_one_entry() {
        let mut log = AclLog::default();
        for now in [1000, 2000, 62_000, 200_000] {
            log.note(now, 128, Reason::Key, "toplevel", b"k", "u", &now.to_string());
        }
        log.note(200_000, 128, Reason::Key, "multi", b"k", "u", "c");
        let entries = log.newest(10);
        let told: Vec<_> = entries.iter().map(|e| (e.id, e.count, e.client.as_str())).collect();
        assert_eq!(told, [(2, 1, "c"), (1, 1, "200000"), (0, 3, "62000")]);
        assert_eq!((entries[2].created_ms, entries[2].updated_ms), (1000, 62_000));
        assert_eq!(log.newest(1).len(), 1);
        log.reset();
        assert!(log.newest(10).is_empty());
    }

    #[test]
    fn the_log_is_bounded_in_both_directions() {
        let mut log = AclLog::default();
        for at in 0..1000u32 {
            let object = [at.to_be_bytes().as_slice(), &[b'x'; 100_000]].concat();
            log.note(0, 5, Reason::Auth, "toplevel", &object, &"u".repeat(9999), "c");
        }
        let entries = log.newest(100);
        assert_eq!(entries.len(), 5);
        assert!(entries.iter().all(|e| e.object.len() <= 256 && e.user.len() <= 256));
        assert_eq!(entries[0].id, 999);
        let shared = log.shared(2);
        assert_eq!(shared.iter().map(|entry| entry.id).collect::<Vec<_>>(), [999, 998]);
        // One that is alike is counted in an entry of its own: what was shown stays.
        let object = [999_u32.to_be_bytes().as_slice(), &[b'x'; 100_000]].concat();
        log.note(1, 5, Reason::Auth, "toplevel", &object, &"u".repeat(9999), "c");
        assert_eq!((log.newest(1)[0].count, shared[0].count), (2, 1));
        assert_eq!(log.shared(9).len(), 5, "none was copied or lost");
        log.note(0, 0, Reason::Auth, "toplevel", b"", "", "");
        assert!(log.newest(1).is_empty());
    }
}
