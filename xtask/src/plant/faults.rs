//! The faults that are planted: text of the project, and what takes its place. A test sees to it that each still fits.

/// A fault, as a change of one place in one file.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// By which it is asked for.
    pub name: &'static str,
    /// What is wrong with it.
    pub what: &'static str,
    /// The file, from the root of the project.
    pub path: &'static str,
    /// Stands there once.
    pub right: &'static str,
    /// Takes its place.
    pub wrong: &'static str,
}

/// All of them, in the order of `docs/reliability.md`.
pub static ALL: [Fault; 29] = [
    Fault {
        name: "wish-of-the-leader",
        what: "only the leader's wish for a sync counts",
        path: "crates/terrace/src/write/commit.rs",
        right: "        if pending.sync != SyncMode::Batch\n            && let Some(waiter) = waiter.take()\n        {",
        wrong: "        if let Some(waiter) = waiter.take() {",
    },
    Fault {
        name: "directory",
        what: "the directory is not synced when a change is installed",
        path: "crates/terrace/src/version/install.rs",
        right: "let synced = named.and_then(|()| versions.base.vfs.sync_dir(&versions.base.dir));",
        wrong: "let synced = named;",
    },
    Fault {
        name: "flush-snapshots",
        what: "a flush ignores snapshots",
        path: "crates/terrace/src/background/flush.rs",
        right: "write_l0(&parts, family, &state.immutables, &snapshots, stated, filter);",
        wrong: "write_l0(&parts, family, &state.immutables, &[], stated, filter);",
    },
    Fault {
        name: "early-visible",
        what: "a group is visible before it is inserted",
        path: "crates/terrace/src/write/commit.rs",
        right: "    let inserted = insert(env, &mut turn.state, families, group, first, placed);",
        wrong: "    env.read.visible_seqno.store(last, Ordering::Release);\n    sync::interleave();\n    let inserted = insert(env, &mut turn.state, families, group, first, placed);",
    },
    Fault {
        name: "segment-order",
        what: "older log segments are not synced before newer ones",
        path: "crates/terrace/src/write/log_segments.rs",
        right: "    sync_full_segments(env)?;\n    let synced",
        wrong: "    name_segments(env)?;\n    let synced",
    },
    Fault {
        name: "early-seqno",
        what: "a scan takes its sequence number before its read state",
        path: "crates/terrace/src/version/family.rs",
        right: "            let state = self.state.load_full();\n            // Segments that newer writes begin are in the map before the number is visible.\n            let seqno = seqno();\n",
        wrong: "            let seqno = seqno();\n            sync::interleave();\n            let state = self.state.load_full();\n",
    },
    Fault {
        name: "plain-rotation",
        what: "a rotation for the bound over all memtables forgets the group's size",
        path: "crates/terrace/src/write/room.rs",
        right: "rotate(env, log, largest, needed_bytes(largest, group))?;",
        wrong: "rotate(env, log, largest, 0)?;",
    },
    Fault {
        name: "iterator-segments",
        what: "an iterator takes its value segments without looking again",
        path: "crates/terrace/src/version/family.rs",
        right: "if Arc::ptr_eq(&state, &self.state.load()) {\n                let seqno",
        wrong: "if true {\n                let seqno",
    },
    Fault {
        name: "purge-once",
        what: "removing obsolete files does not look for a checkpoint a second time",
        path: "crates/terrace/src/version/install.rs",
        right: "if versions.deletions_held.load(Ordering::SeqCst) > 0 || versions.base.health.is_closed() {",
        wrong: "if versions.base.health.is_closed() {",
    },
    Fault {
        name: "last-key-below",
        what: "the last key of a file below does not count as below",
        path: "crates/terrace/src/background/retain.rs",
        right: "false => self.end.as_slice() < key,",
        wrong: "false => self.end.as_slice() <= key,",
    },
    Fault {
        name: "range-end",
        what: "a range tombstone in a memtable covers its end",
        path: "crates/terrace/src/memtable/range_set.rs",
        right: "} else if key < t.end() {",
        wrong: "} else if key <= t.end() {",
    },
    Fault {
        name: "zeroed",
        what: "sequence numbers are zeroed under a range tombstone",
        path: "crates/terrace/src/background/retain.rs",
        right: "Some(kind) if self.zero_seqnos && !self.covered => {",
        wrong: "Some(kind) if self.zero_seqnos => {",
    },
    Fault {
        name: "replay",
        what: "replay leaves out the first write after a flush",
        path: "crates/terrace/src/open/recover.rs",
        right: "let is_flushed = seqno <= self.flushed_seqno ||",
        wrong: "let is_flushed = seqno <= self.flushed_seqno + 1 ||",
    },
    Fault {
        name: "manifest-sync",
        what: "the manifest is not synced",
        path: "crates/manifest/src/manifest.rs",
        right: "let written = self.writer.append(&[&self.payload]).and_then(|_| self.writer.sync());",
        wrong: "let written = self.writer.append(&[&self.payload]).map(drop);",
    },
    Fault {
        name: "one-family",
        what: "log segments go when one family does not need them",
        path: "crates/terrace/src/write/log_segments.rs",
        right: "families.iter().filter(|f| !f.is_dropped()).filter_map(|f| f.first_segment()).min();",
        wrong: "families.iter().filter(|f| !f.is_dropped()).filter_map(|f| f.first_segment()).max();",
    },
    Fault {
        name: "evidence",
        what: "the evidence does not learn of syncs",
        path: "crates/terrace/src/write/log_segments.rs",
        right: "    env.versions.evidence.note_log(end, last);\n",
        wrong: "",
    },
    Fault {
        name: "checksums",
        what: "checksums of blocks are not compared",
        path: "crates/sst/src/block_handle.rs",
        right: "if expected != found {",
        wrong: "if false && expected != found {",
    },
    Fault {
        name: "cut-versions",
        what: "files are cut between versions of a key",
        path: "crates/terrace/src/background/output.rs",
        right: "self.full_at.as_ref().is_some_and(|last| last != user_key);",
        wrong: "self.full_at.is_some();",
    },
    Fault {
        name: "filter",
        what: "the filter misses every 64th key",
        path: "crates/sst/src/filter_partition.rs",
        right: "        self.hashes.push(hash_key(user_key));",
        wrong: "        if !hash_key(user_key).is_multiple_of(64) {\n            self.hashes.push(hash_key(user_key));\n        }",
    },
    Fault {
        name: "expired",
        what: "an expired value that hides an older one is dropped",
        path: "crates/terrace/src/background/retain.rs",
        right: "            true => Verdict::Tombstone { trailer: pack_trailer(seqno, ValueKind::Delete) },\n            false => Verdict::Keep",
        wrong: "            true => Verdict::Drop,\n            false => Verdict::Keep",
    },
    Fault {
        name: "readers-beside",
        what: "the writer does not mind readers beside it",
        path: "crates/terrace/src/version/reader_pins.rs",
        right: "let free_below = match regardless {",
        wrong: "let free_below = match regardless || self.is_writer {",
    },
    Fault {
        name: "close-sync",
        what: "`close` does not sync",
        path: "crates/terrace/src/write/log_segments.rs",
        right: "let synced = sync_under_lead(env, &mut lead.log());\n    env.base.health.close();",
        wrong: "let synced = Ok(());\n    env.base.health.close();",
    },
    Fault {
        name: "held-segments",
        what: "collected segments go while iterators hold them",
        path: "crates/terrace/src/values/value_log.rs",
        right: "pending_delete.segment.strong_count() == 0 && !is_kept(pending_delete.number)",
        wrong: "!is_kept(pending_delete.number)",
    },
    Fault {
        name: "overlapping-moves",
        what: "files that overlap are moved instead of merged",
        path: "crates/terrace/src/background/compaction/pick.rs",
        right: "            && are_disjoint(files)\n            && total_bytes(&grandparents)",
        wrong: "            && total_bytes(&grandparents)",
    },
    Fault {
        name: "damaged-again",
        what: "damaged files are picked again",
        path: "crates/terrace/src/jobs/background_errors.rs",
        right: "let waiting = state.files.iter().filter(|(_, failure)| failure.waits(now_us));",
        wrong: "let waiting = state.files.iter().take(0);",
    },
    Fault {
        name: "interval",
        what: "the sync of `SyncMode::Interval` does nothing",
        path: "crates/terrace/src/background/log_care.rs",
        right: "SyncMode::Interval(interval) if self.last_sync.elapsed() >= interval => {",
        wrong: "SyncMode::Interval(interval) if false && self.last_sync.elapsed() >= interval => {",
    },
    Fault {
        name: "flush-sync",
        what: "a flush does not sync the segments that other families need",
        path: "crates/terrace/src/background/flush.rs",
        right: "if let Err(error) = log_segments::sync_full_segments(&env.commit) {",
        wrong: "if let Err(error) = Ok::<(), Error>(()) {",
    },
    Fault {
        name: "held-ssts",
        what: "obsolete SSTs go while readers hold them",
        path: "crates/terrace/src/version/install.rs",
        right: "let unheld = |o: &&Obsolete| o.file.strong_count() == 0;",
        wrong: "let unheld = |_: &&Obsolete| true;",
    },
    Fault {
        name: "retire-name",
        what: "the manifest says that the log begins with a segment whose name is not durable",
        path: "crates/terrace/src/write/log_segments.rs",
        right: "            false => name_segments(env),\n",
        wrong: "            false => Ok(()),\n",
    },
];
