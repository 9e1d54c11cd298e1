//! What the repaired store will consist of.

use super::Repair;
use super::base::{Base, Proof, is_loss};
use super::log::LogSurvey;
use super::misplaced::MISPLACED;
use super::ssts::{Sst, Ssts, describe};
use crate::error::Result;
use crate::memory::table_cache::ANOTHER_FILE;
use crate::version::file_numbers::FileNumbers;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use terrace_base::{FileNumber, SeqNo};
use terrace_log::SegmentFile;
use terrace_manifest::evidence::Claims;
use terrace_manifest::names::{self, FileName};
use terrace_manifest::{FamilyState, HOT_LEVEL, ManifestState};

/// The family of SSTs that do not say whose they are.
const UNKNOWN_FAMILY: &str = "unknown";

/// What is to be done.
pub(super) struct Plan {
    /// Families, counters and value segments; its versions come from `families`.
    pub state: ManifestState,
    pub claims: Claims,
    /// Number of the new manifest.
    pub number: u64,
    pub numbers: FileNumbers,
    pub families: BTreeMap<u32, Files>,
    /// Files to set aside once the new manifest is in force, and what is added to their names.
    pub aside: Vec<(String, &'static str)>,
    /// Segments that another file takes the place of.
    pub mended: Vec<SegmentFile>,
    pub log: LogSurvey,
    /// Whether a plain open reads the store, with nothing missing.
    sound: bool,
}

/// The SSTs of a family.
#[derive(Default)]
pub(super) struct Files {
    /// With their level; `None` if nobody knows it.
    pub ssts: Vec<(Option<u8>, Sst)>,
}

impl Files {
    /// Whether they have to be merged.
    pub fn merge(&self) -> bool {
        self.ssts.iter().any(|(level, _)| level.is_none())
    }

    /// Every write of the family up to here is in the SSTs, or was merged away: the log has nothing to add there. A
    /// checkpoint of the hot table does not tell.
    fn flushed_seqno(&self) -> SeqNo {
        let ssts = self.ssts.iter().filter(|(_, sst)| !sst.is_hot_checkpoint);
        ssts.map(|(_, sst)| sst.flushed_seqno).max().unwrap_or_default()
    }

    /// Takes in `found`, checkpoints of the hot table that no manifest names. One is in force, the newest: it is followed by
    /// another, or by a flush of all that was hot, before its file is removed. Gives the others.
    fn take_checkpoints(&mut self, found: Vec<Sst>) -> Vec<Sst> {
        let flushed = self.flushed_seqno();
        let named = self.ssts.extract_if(.., |(_, sst)| sst.is_hot_checkpoint);
        let mut all: Vec<(bool, Sst)> = named.map(|(_, sst)| (true, sst)).collect();
        all.extend(found.into_iter().map(|sst| (false, sst)));
        all.sort_by_key(|(_, sst)| (sst.flushed_seqno, sst.meta.number));
        // What a manifest says is in force was, and is if no flush has followed that it does not know.
        let newer = self.ssts.iter().filter(|(level, _)| level.is_none());
        let newer = newer.map(|(_, sst)| sst.flushed_seqno).max().unwrap_or_default();
        let is_in_force =
            |(named, sst): &(bool, Sst)| sst.flushed_seqno >= if *named { newer } else { flushed };
        if let Some(at) = all.iter().rposition(is_in_force) {
            self.ssts.push((Some(HOT_LEVEL), all.remove(at).1));
        }
        all.into_iter().map(|(_, sst)| sst).collect()
    }
}

impl Plan {
    /// Whether there is nothing to repair.
    pub fn is_sound(&self) -> bool {
        self.sound
    }
}

impl Repair<'_> {
    /// Looks at everything and decides.
    pub(super) fn plan(&mut self, take_all: bool) -> Result<Plan> {
        let Base { mut state, proof, claims, newest, opens } = self.base()?;
        self.stated = state.segments.values().map(|meta| (meta.number, meta.kind)).collect();
        let (mut listing, others) = (self.vfs.list(self.dir)?, self.vfs.list_others(self.dir)?);
        listing.sort();
        let mut ssts = self.ssts(&listing)?;
        let known = proof != Proof::Short || state.next_file_number > FileNumber::new(1);
        self.raise_counters(&mut state, &claims, (!known).then_some((&ssts, &listing)))?;
        // Numbers under which something stands are not given to files.
        let numbers =
            FileNumbers::new(&[&listing[..], &others[..]].concat(), state.next_file_number);
        self.find_misplaced((&listing, &others), (&state, proof), &numbers);
        listing.retain(|name| !self.misplaced.absent.contains(name));
        let is_merged = |number: &FileNumber| self.merged_before.left.contains(number);
        ssts.readable.retain(|number, _| !numbers.is_foreign(*number) && !is_merged(number));
        ssts.unreadable.retain(|number, _| !numbers.is_foreign(*number) && !is_merged(number));
        let mut families = self.named(&state, &mut ssts, proof);
        let absent = self.misplaced.absent.iter();
        let mut aside: Vec<(String, &'static str)> =
            absent.map(|name| (name.clone(), MISPLACED)).collect();
        self.set_renamed_aside((&state, &claims), &listing, &mut aside);
        for (number, why) in &ssts.unreadable {
            aside.push((file_name(*number), ".damaged"));
            // Of a whole manifest what it names is reported already, and nothing else is needed.
            if proof != Proof::Whole && !state.retired.contains(number) {
                self.lost(format!("SST {number}, of which nothing can be read: {why}"));
            }
        }
        let log = self.read_log(&listing, &state, &claims, &numbers)?;
        if proof != Proof::Whole || take_all {
            self.take_in(&mut state, &mut families, &log, ssts.readable, take_all, proof);
        }
        self.name_families_of_log(&mut state, &log, proof);
        for files in families.values() {
            for (_, sst) in &files.ssts {
                if sst.damage.is_some() {
                    aside.push((file_name(sst.meta.number), ".damaged"));
                } else if files.merge() && !sst.is_hot_checkpoint {
                    aside.push((file_name(sst.meta.number), ".merged"));
                }
            }
        }
        let may_lack = proof != Proof::Whole || take_all;
        let named = may_lack && self.name_operators(&mut state, &families, &log);
        flushed_seqnos(&mut state, &families);
        let segments = state.segments.clone();
        let files = families.values().flat_map(|files| &files.ssts);
        let refs = files.flat_map(|(_, sst)| &sst.meta.value_refs);
        let referred = refs.map(|reference| reference.segment).collect();
        let mended = self.segments(&mut state, &referred, (&listing, &numbers), &mut aside)?;
        let told = self.report.lost.is_empty() && aside.is_empty() && mended.is_empty();
        let merges = families.values().any(Files::merge);
        let sound = opens && told && !log.salvages && !merges && !take_all;
        let sound = sound && !named && segments == state.segments;
        let number = newest.saturating_add(1);
        Ok(Plan { state, claims, number, numbers, families, aside, mended, log, sound })
    }

    /// Numbers past everything that is known to have been used. If no manifest tells (`files`), those of files
    /// that prove their numbers count.
    fn raise_counters(
        &self,
        state: &mut ManifestState,
        claims: &Claims,
        files: Option<(&Ssts, &[String])>,
    ) -> Result<()> {
        state.keeps_evidence = true;
        state.last_seqno = state.last_seqno.max(claims.last_seqno);
        // A segment that is known to have been there is not there again under its number, with less in it.
        let after_log = claims.log.segment.next().file();
        let mut next = state.next_file_number.max(claims.next_file_number).max(after_log);
        if let Some((ssts, listing)) = files {
            let newest = ssts.readable.keys().next_back();
            next = next.max(newest.map_or(FileNumber::ZERO, |number| number.next()));
            for name in listing {
                let number = match names::parse(name) {
                    FileName::Log(number) | FileName::ValueLog(number) => number,
                    _ => continue,
                };
                let header = terrace_log::read_header_around_loss(&*self.vfs, &self.dir.join(name));
                let header = match header {
                    Err(error) if !is_loss(&error) => return Err(error.into()),
                    header => header.ok().and_then(std::result::Result::ok),
                };
                if header.is_some_and(|header| header.segment == number) {
                    next = next.max(number.next().file());
                }
            }
        }
        state.next_file_number = next;
        Ok(())
    }

    /// The files that the manifest names, as far as they can be read; they leave `ssts`.
    fn named(
        &mut self,
        state: &ManifestState,
        ssts: &mut Ssts,
        proof: Proof,
    ) -> BTreeMap<u32, Files> {
        let mut families: BTreeMap<u32, Files> = BTreeMap::new();
        for family in state.families.values() {
            let files = families.entry(family.id).or_default();
            let owner = format!("family `{}`", family.name);
            for (level, file) in family.version.all_files() {
                let is_named = |sst: &Sst| {
                    sst.meta.marks() == file.marks() && sst.meta.size_bytes == file.size_bytes
                };
                if ssts.readable.get(&file.number).is_some_and(|sst| !is_named(sst)) {
                    ssts.readable.remove(&file.number);
                    ssts.unreadable.insert(file.number, ANOTHER_FILE.to_string());
                }
                let Some(mut sst) = ssts.readable.remove(&file.number) else {
                    let why = match (ssts.unreadable.get(&file.number), proof) {
                        (Some(why), _) => format!("nothing of it can be read ({why})"),
                        (None, Proof::Whole) => "it is missing".into(),
                        (None, _) => {
                            "it is missing, or an edit that is lost took it out".to_string()
                        }
                    };
                    self.lost(format!("{}: {why}", describe(&owner, level, file)));
                    continue;
                };
                sst.meta = (**file).clone();
                // Those of earlier builds do not say it.
                sst.is_hot_checkpoint = level == HOT_LEVEL;
                self.tell_damage(&owner, &sst);
                files.ssts.push((Some(level), sst));
            }
            let count = files.ssts.len();
            let bytes: u64 = files.ssts.iter().map(|(_, sst)| sst.meta.size_bytes).sum();
            self.saved(format!("{owner}: {count} SSTs that the manifest names, {bytes} bytes"));
        }
        families
    }

    /// Gives the SSTs that no manifest names to their families.
    fn take_in(
        &mut self,
        state: &mut ManifestState,
        families: &mut BTreeMap<u32, Files>,
        log: &LogSurvey,
        readable: BTreeMap<FileNumber, Sst>,
        take_all: bool,
        proof: Proof,
    ) {
        // Of families with the same name the one made last keeps it.
        let mut owned: BTreeMap<std::cmp::Reverse<u32>, Vec<Sst>> = BTreeMap::new();
        let mut unowned = Vec::new();
        // What names the last number that there is names no family.
        let mut owners: BTreeSet<u32> =
            state.families.keys().chain(log.families.range(..u32::MAX)).copied().collect();
        for (number, mut sst) in readable {
            if !take_all && state.retired.contains(&number) {
                continue;
            }
            let was_taken_back = [number, sst.age].iter().any(|n| self.taken_back.contains(n));
            sst.is_found = proof == Proof::Whole || was_taken_back;
            match &sst.family {
                Some((id, _)) => {
                    owners.insert(*id);
                    owned.entry(std::cmp::Reverse(*id)).or_default().push(sst);
                }
                None => unowned.push(sst),
            }
        }
        let first_unknown = state.next_family_id;
        for (std::cmp::Reverse(id), ssts) in owned {
            let name =
                ssts.last().and_then(|sst| sst.family.as_ref()).map(|(_, name)| name.clone());
            if !state.families.contains_key(&id) && id < first_unknown {
                let name = name.unwrap_or_default();
                self.note(format!(
                    "{} SSTs of family `{name}`, which was dropped, move to lost/",
                    ssts.len()
                ));
                continue;
            }
            let name = add_family(state, id, &name.unwrap_or_default());
            self.add_unnamed(&name, families.entry(id).or_default(), ssts);
        }
        if unowned.is_empty() {
            return;
        }
        let is_of_default = owners.iter().all(|id| *id == 0) && first_unknown <= 1;
        let next = owners.last().map_or(1, |last| last + 1).max(state.next_family_id);
        let id = match is_of_default || next == u32::MAX {
            true => 0,
            false => next,
        };
        let name = match id {
            0 => "default".to_string(),
            id => add_family(state, id, UNKNOWN_FAMILY),
        };
        let list: Vec<String> = unowned.iter().map(|sst| sst.meta.number.to_string()).collect();
        let list = list.join(", ");
        if !is_of_default {
            self.lost(format!(
                "whose the SSTs {list} are: an earlier build wrote them, and they do not say. They are merged into \
                 the family `{name}`, where of equal keys only the newest shows; the files are kept in lost/"
            ));
        }
        self.add_unnamed(&name, families.entry(id).or_default(), unowned);
    }

    fn add_unnamed(&mut self, family: &str, files: &mut Files, ssts: Vec<Sst>) {
        self.tell_merged_unknown();
        if ssts.iter().any(|sst| !sst.is_found) {
            self.tell_taken_back_unknown();
        }
        let owner = format!("family `{family}`");
        let bytes: u64 = ssts.iter().map(|sst| sst.meta.size_bytes).sum();
        self.saved(format!("{owner}: {} SSTs that no manifest names, {bytes} bytes", ssts.len()));
        let (hot, ssts): (Vec<Sst>, Vec<Sst>) =
            ssts.into_iter().partition(|sst| sst.is_hot_checkpoint);
        for sst in ssts {
            self.tell_damage(&owner, &sst);
            files.ssts.push((None, sst));
        }
        hot.iter().for_each(|sst| self.tell_damage(&owner, sst));
        for sst in files.take_checkpoints(hot) {
            let number = sst.meta.number;
            self.note(format!("SST {number} of {owner}, what was hot earlier, moves to lost/"));
        }
    }

    /// Families of which nothing but writes in the log is left get a name: the one that their keys tell, if they do of
    /// all of them. Else it is not the store that the signs are of, or lacks what else it has.
    fn name_families_of_log(&mut self, state: &mut ManifestState, log: &LogSurvey, proof: Proof) {
        let first_unknown = state.next_family_id;
        let is_nameless = |id: &u32| {
            let may_be = (first_unknown..u32::MAX).contains(id);
            proof != Proof::Whole && !state.families.contains_key(id) && may_be
        };
        let nameless: Vec<u32> = log.families.iter().copied().filter(is_nameless).collect();
        let is_told = nameless.iter().all(|id| log.names.contains_key(id));
        for id in nameless {
            if let Some(known) = log.names.get(&id).filter(|_| is_told) {
                let name = add_family(state, id, known);
                self.note(format!(
                    "family {id}, which has writes in the log only, is called `{name}`: its keys tell"
                ));
                continue;
            }
            let name = add_family(state, id, &format!("family-{id}"));
            self.lost(format!(
                "the name of family {id}, which has writes in the log only; it is `{name}` now"
            ));
        }
    }
}

fn file_name(number: FileNumber) -> String {
    format!("{number:06}.sst")
}

/// Adds family `id` if it is not there; gives its name, which is another if a family has that already.
fn add_family(state: &mut ManifestState, id: u32, name: &str) -> String {
    if let Some(family) = state.families.get(&id) {
        return family.name.clone();
    }
    let mut name = match name.is_empty() {
        true => format!("family-{id}"),
        false => name.to_string(),
    };
    while state.family_named(&name).is_some() {
        name = format!("{name}-{id}");
    }
    let min_log_segment = state.oldest_log_segment();
    let version = Arc::default();
    let family = FamilyState {
        id,
        name: name.clone(),
        version,
        min_log_segment,
        flushed_seqno: SeqNo::ZERO,
        merge_operator: None,
        options: None,
    };
    state.families.insert(id, family);
    state.next_family_id = state.next_family_id.max(id.saturating_add(1));
    name
}

/// What the log has nothing to add to.
fn flushed_seqnos(state: &mut ManifestState, families: &BTreeMap<u32, Files>) {
    for family in state.families.values_mut() {
        let Some(files) = families.get(&family.id) else { continue };
        family.flushed_seqno = family.flushed_seqno.max(files.flushed_seqno());
        let written = files.ssts.iter().map(|(_, sst)| sst.flushed_seqno).max();
        state.last_seqno = state.last_seqno.max(written.unwrap_or_default());
    }
}
