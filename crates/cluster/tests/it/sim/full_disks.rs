//! Full disks: an instance refuses a message of a move, or does it in part, as its store would.

use super::world::*;
use crate::instance::*;
use terrace_cluster::*;

impl World {
    /// Whether a message of a move finds a full disk.
    pub(super) fn is_full(&mut self, request: &Request) -> bool {
        let Request::Move(_, head, call) = request else { return false };
        let needs_room = match call {
            MoveCall::Begin | MoveCall::Export | MoveCall::Import(_) | MoveCall::Commit(_) => true,
            MoveCall::Undo => head.keys.len() > 1,
            _ => false,
        };
        let may_be = needs_room && !self.is_calm && !self.planted.has_room;
        let is_full = may_be && self.rng.per_mille(15);
        if is_full {
            self.counts.add("disk full");
        }
        is_full
    }
}

/// A message of a move at an instance without room for it: refused, but for an undo, which is done in part.
pub fn refuse(
    instance: &mut Instance,
    sender: Sender,
    mut head: MoveHead,
    call: &MoveCall<Value>,
) -> MoveAnswer<Value> {
    if *call == MoveCall::Undo {
        head.keys.truncate(1);
        return match instance.on_move(sender, &head, call) {
            MoveAnswer::Done => MoveAnswer::Unknown,
            refused => refused,
        };
    }
    match instance.fence(sender) {
        true => MoveAnswer::Refused(Refusal::Full),
        false => MoveAnswer::Deposed,
    }
}
