//! What is left of a simulated device: after a power cut (synced data and a random part of the
//! rest) and after a killed process (everything).
//!
//! Of a file, the synced prefix always survives. What was appended since is lost, kept, cut at a
//! byte or a sector, or torn: full length, each 512-byte sector kept, zero, or stale garbage.
//! Of a directory, either an ordered prefix of the operations since its last sync survives, or
//! each survives by itself, except that an operation brings along the earlier ones on its names.

use super::content::Content;
use super::state::{DirNode, FileNode, Name, Node, NodeId, ROOT, State};
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_base::{Rng, SplitMix64};

const SECTOR_BYTES: u64 = 512;

/// The device after a power cut; the same seed leaves the same.
pub(super) fn power_cut(state: &State, seed: u64) -> State {
    let mut rng = SplitMix64::new(seed);
    let mut image = fresh(state, rng.next_u64());
    // Depth first from the root, in order of name: the order of random draws is part of the
    // promise that a seed reproduces.
    let mut unseen = vec![ROOT];
    while let Some(id) = unseen.pop() {
        let Some(Node::Dir(dir)) = state.nodes.get(&id) else { continue };
        let entries = surviving_entries(dir, &mut rng);
        for child in entries.values() {
            match state.nodes.get(child) {
                Some(Node::Dir(_)) => unseen.push(*child),
                Some(Node::File(file)) => {
                    keep_file(&mut image, *child, || surviving_file(file, &mut rng));
                }
                None => {}
            }
        }
        image.nodes.insert(id, Node::Dir(Arc::new(durable_dir(entries))));
    }
    image
}

/// The device after a killed process: what the kernel holds stays, and stays unsynced.
pub(super) fn kill(state: &State) -> State {
    let mut image = fresh(state, state.op_count);
    image.nodes = state.nodes.clone();
    image.unlinked = state.unlinked.clone();
    for (id, node) in &mut image.nodes {
        if let Node::File(file) = node
            && file.open > 0
        {
            Arc::make_mut(file).open = 0;
            image.unlinked.push(*id);
        }
    }
    image.collect();
    image
}

/// An empty device with the settings of `state`: no locks, no faults, no operation counted.
fn fresh(state: &State, seed: u64) -> State {
    State {
        nodes: BTreeMap::new(),
        next_node: state.next_node,
        absolute: state.absolute,
        capacity_bytes: state.capacity_bytes,
        hides_room: state.hides_room,
        sets_aside: state.sets_aside,
        zeros_step_bytes: state.zeros_step_bytes,
        ..State::new(seed)
    }
}

fn keep_file(image: &mut State, id: NodeId, survive: impl FnOnce() -> Arc<FileNode>) {
    let kept = image.nodes.entry(id).or_insert_with(|| Node::File(survive()));
    if let Node::File(file) = kept {
        Arc::make_mut(file).links += 1;
    }
}

fn durable_dir(entries: BTreeMap<Name, NodeId>) -> DirNode {
    DirNode { durable: Arc::new(entries.clone()), live: entries, pending: Vec::new() }
}

fn surviving_entries(dir: &DirNode, rng: &mut SplitMix64) -> BTreeMap<Name, NodeId> {
    if dir.pending.is_empty() {
        return dir.live.clone();
    }
    let count = dir.pending.len();
    let mut kept = vec![false; count];
    if rng.one_in(2) {
        let prefix = rng.below(count as u64 + 1) as usize;
        kept[..prefix].fill(true);
    } else {
        for at in (0..count).rev() {
            kept[at] |= rng.one_in(2);
            if kept[at] {
                for (kept, earlier) in kept.iter_mut().zip(&dir.pending).take(at) {
                    *kept |= earlier.touches(&dir.pending[at]);
                }
            }
        }
    }
    let mut entries = (*dir.durable).clone();
    for (op, _) in dir.pending.iter().zip(&kept).filter(|(_, kept)| **kept) {
        op.apply(&mut entries);
    }
    entries
}

fn surviving_file(file: &FileNode, rng: &mut SplitMix64) -> Arc<FileNode> {
    let len = file.content.len();
    let synced = file.synced_bytes;
    let allocated = match rng.below(3) {
        0 => file.synced_allocated_bytes,
        1 => file.allocated_bytes,
        _ => file.allocated_bytes.min(file.synced_allocated_bytes),
    };
    let mut content = file.content.clone();
    if synced < len {
        let tail = len - synced;
        match rng.below(6) {
            0 => content.truncate(synced),
            1 => {}
            2 => content.truncate(synced + rng.below(tail)),
            3 => {
                let sector = (synced + rng.below(tail)) / SECTOR_BYTES * SECTOR_BYTES;
                content.truncate(sector.max(synced));
            }
            4 => tear(&mut content, synced, false, rng),
            _ => tear(&mut content, synced, true, rng),
        }
    }
    Arc::new(FileNode {
        known_damage: file.known_damage.clone(),
        unreadable: file.unreadable.clone(),
        synced_bytes: content.len(),
        content,
        allocated_bytes: allocated,
        synced_allocated_bytes: allocated,
        links: 0,
        open: 0,
    })
}

/// Replaces random sectors past `synced` by zeros or garbage; sometimes cuts the length as well.
fn tear(content: &mut Content, synced: u64, garbage: bool, rng: &mut SplitMix64) {
    if rng.one_in(3) {
        content.truncate(synced + rng.below(content.len() - synced));
    }
    let mut tail = vec![0; (content.len() - synced) as usize];
    content.read(synced, &mut tail);
    content.truncate(synced);
    // One sector in `rarity` is lost: from "nearly all there" to "every other".
    let rarity = 2 + rng.below(14);
    let mut start = 0;
    while start < tail.len() {
        let in_sector = SECTOR_BYTES - (synced + start as u64) % SECTOR_BYTES;
        let end = tail.len().min(start + in_sector as usize);
        if rng.one_in(rarity) {
            for byte in &mut tail[start..end] {
                *byte = if garbage { rng.next_u64() as u8 } else { 0 };
            }
        }
        start = end;
    }
    content.append(&tail);
}
