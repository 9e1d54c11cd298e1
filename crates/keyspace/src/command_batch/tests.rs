//! What a batch keeps in memory for the next one.

use super::{Mode, Undo};
use crate::keyspace::Keyspace;
use crate::pending_writes::KEPT_BYTES;
use std::sync::Arc;

/// What is noted of this number of elements takes many times more than what is kept.
const COUNT: usize = 200_000;

#[test]
fn a_large_command_leaves_little_memory_with_its_batch() {
    let dir = tempfile::tempdir().unwrap();
    let space = Arc::new(Keyspace::open(dir.path(), terrace::Options::default()).unwrap());
    let members: Vec<Vec<u8>> = (0..COUNT).map(|at| at.to_string().into_bytes()).collect();
    let mut batch = space.command_batch(Mode::Device);
    for (key, is_committed) in [(&b"k"[..], true), (&b"l"[..], false)] {
        batch.lock(0, std::iter::once(key)).unwrap();
        let members = members.iter().map(|member| &member[..]);
        let count = batch.attempt(|turn| turn.set_add(0, key, members));
        assert_eq!(count.unwrap(), COUNT as u64);
        match is_committed {
            true => batch.commit().unwrap(),
            false => batch.abandon(),
        }
        assert!(batch.undo.capacity() * size_of::<Undo>() <= KEPT_BYTES);
    }
}
