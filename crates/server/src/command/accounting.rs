//! What is noted of a command that was executed: latency, hot keys, the slow log; and who sees it.

use super::command_table::table;
use super::spec::{CommandSpec, Flags};
use crate::command_observer::ObservedCommand;
use crate::server::Server;
use crate::session::Session;
use crate::slowlog::{self, SlowCommand};
use std::sync::atomic::Ordering;
use std::time::Duration;
use terrace_keyspace::CommandBatch;
use terrace_resp::Command;

impl Server {
    /// A command was executed, in this database.
    #[inline]
    pub(crate) fn note(
        &self,
        number: u16,
        spec: &CommandSpec,
        args: &Command<'_>,
        (session, db): (&Session, u8),
        took: Duration,
        failed: bool,
    ) {
        let took_us = took.as_micros() as i64;
        self.latency.note(table().counted_as(number, spec, args), took.as_nanos() as u64, failed);
        let is_write = spec.flags.has(Flags::WRITE);
        self.hot_keys.note(is_write, db, || spec.keys.of(args));
        let slower_than = self.slower_than_us.load(Ordering::Relaxed);
        // As in Redis: the commands that EXEC executed are in the log by themselves.
        let is_slow = slower_than >= 0 && took_us >= slower_than && spec.name != "exec";
        if is_slow {
            self.note_slow(args, session, took);
        }
        if let Some(observer) = self.observation.observer(is_slow) {
            observer.observe(&ObservedCommand {
                name: spec.name,
                took,
                failed,
                is_slow,
                database: db,
                client: session.id,
                peer: session.info.origin.peer,
            });
        }
        let spike_ms = self.spike_ms.load(Ordering::Relaxed);
        if spike_ms > 0 && took.as_millis() as u64 >= spike_ms {
            let name = if spec.flags.has(Flags::FAST) { "fast-command" } else { "command" };
            self.latency.note_event(name, self.space.now_ms() / 1000, took.as_millis() as u64);
        }
    }

    /// Counts the lookups of keys of the command that was executed, if it only reads.
    #[inline]
    pub(crate) fn note_lookups(&self, spec: &CommandSpec, batch: &CommandBatch) {
        if spec.counts_lookups() {
            self.stats.note_lookups(batch.take_lookups());
        }
    }

    #[cold]
    fn note_slow(&self, args: &Command<'_>, session: &Session, took: Duration) {
        let most = self.config.settings().slowlog_max_len;
        self.slow_log.add(most, || SlowCommand {
            id: 0,
            at_ms: self.space.now_ms(),
            took_us: took.as_micros() as u64,
            arguments: slowlog::cut(args),
            peer: session.info.origin.peer.to_string(),
            client_name: slowlog::cut_name(&session.info.name.lock()),
        });
    }
}
