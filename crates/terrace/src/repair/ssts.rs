//! Every SST of the directory: read whole, with the values it refers to; and written anew without what cannot
//! be read.

use super::base::is_loss;
use super::values::Values;
use super::{Repair, shown};
use crate::background::output::{Output, OutputContext};
use crate::env::rate_limit::RateLimiter;
use crate::error::Result;
use crate::jobs::job_list::JobProgress;
use crate::metrics::training::TrainingTally;
use crate::options::FamilyOptions;
use crate::version::unpublished;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use terrace_base::key::trailer_kind;
use terrace_base::{FileNumber, RangeTombstones, SegmentNumber, SeqNo, ValueHandle, ValueKind};
use terrace_manifest::names::{self, FileName};
use terrace_manifest::{FileMeta, Version};
use terrace_sst::{
    BlockCache, FilterMemory, Properties, ReadCounters, ReaderOptions, SstReader, TakeEntry,
    Unreadable, is_damage,
};

/// Entries, and bytes of them, whose values are read together.
const ENTRIES_TOGETHER: usize = 256;
const BYTES_TOGETHER: u64 = 1 << 20;

/// Blocks and partitions that are read one by one; nearly nothing is read twice.
const CACHE_BYTES: usize = 1 << 20;

/// Stretches of one file that are reported one by one.
const TOLD_STRETCHES: usize = 20;

/// An SST of which something can be read.
pub(super) struct Sst {
    pub meta: FileMeta,
    /// The number of the file that it is as old as: of one that a repair has written, that which it was made of.
    pub age: FileNumber,
    pub family: Option<(u32, String)>,
    /// Every write of the family up to here was in SSTs when it was made. Of a checkpoint of the hot table: every one of what
    /// was hot.
    pub flushed_seqno: SeqNo,
    pub is_hot_checkpoint: bool,
    /// The operator that its operands are for, if it says so.
    pub merge_operator: Option<String>,
    /// Whether operands are among the entries that can be read.
    pub has_operands: bool,
    /// Whether the store went on without it: it comes from `lost/`, or no manifest names it although the one in force is whole.
    pub is_found: bool,
    /// None: it is sound. Else it has to be written anew.
    pub damage: Option<Damage>,
}

/// Whether an entry, given by key and trailer, is left out of an SST that is written anew. Keys do not descend.
pub(super) type IsLeftOut<'a> = dyn FnMut(&[u8], u64) -> terrace_base::Result<bool> + 'a;

/// What an SST that is written anew has besides what is damaged in it.
pub(super) struct Rest<'a> {
    /// Its range tombstones.
    pub tombstones: RangeTombstones,
    pub is_left_out: &'a mut IsLeftOut<'a>,
}

/// What is wrong with an SST.
#[derive(Default)]
pub(super) struct Damage {
    /// The first thing that is wrong, if no entry is lost by it.
    pub why: Option<String>,
    pub unreadable: Vec<Unreadable>,
    /// Entries whose value is lost, and of the first: key, and why. Keys come in their order.
    pub values: u64,
    pub first_value: Option<(Vec<u8>, String)>,
    /// The key of the last.
    pub last_value: Vec<u8>,
    /// Where the lost values stand.
    pub value_segments: BTreeSet<SegmentNumber>,
    /// Entries that can be read.
    pub entries: u64,
    /// Operands among them.
    pub operands: u64,
}

impl Damage {
    fn is_none(&self) -> bool {
        self.why.is_none() && self.unreadable.is_empty() && self.values == 0
    }
}

/// The SSTs of a directory.
#[derive(Default)]
pub(super) struct Ssts {
    pub readable: BTreeMap<FileNumber, Sst>,
    /// Of those of which nothing can be read: why.
    pub unreadable: BTreeMap<FileNumber, String>,
}

/// Entries that wait for their values to be checked.
#[derive(Default)]
struct Pending {
    entries: Vec<Waiting>,
    bytes: u64,
}

struct Waiting {
    key: Vec<u8>,
    trailer: u64,
    value: Vec<u8>,
    handle: Option<ValueHandle>,
}

impl Repair<'_> {
    /// Reads every SST in `listing`.
    pub(super) fn ssts(&self, listing: &[String]) -> Result<Ssts> {
        let mut ssts = Ssts::default();
        let mut values = self.values();
        for name in listing {
            let FileName::Sst(number) = names::parse(name) else { continue };
            match self.read_sst(number, &mut values) {
                Ok(sst) => drop(ssts.readable.insert(number, sst)),
                Err(error) if is_loss(&error) => {
                    ssts.unreadable.insert(number, error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(ssts)
    }

    pub(super) fn open_sst(&self, number: FileNumber) -> terrace_base::Result<Arc<SstReader>> {
        let options = ReaderOptions {
            cache: Arc::new(BlockCache::new(CACHE_BYTES)),
            filter_memory: FilterMemory::Cached,
            models: false,
            direct: false,
            counters: Arc::new(ReadCounters::new()),
        };
        let path = names::sst_path(self.dir, number);
        let size_bytes = self.vfs.len(&path)?;
        SstReader::open(&self.vfs, &path, number, size_bytes, &options)
    }

    fn read_sst(&self, number: FileNumber, values: &mut Values) -> terrace_base::Result<Sst> {
        let reader = self.open_sst(number)?;
        let properties = reader.properties();
        let (mut operands, why) = match reader.verify() {
            Ok(report) => (report.operands, None),
            Err(error) if is_damage(&error) => (0, Some(error.to_string())),
            Err(error) => return Err(error),
        };
        let mut damage = Damage::default();
        if why.is_some() || !properties.value_refs.is_empty() {
            damage = self.pass(&reader, values, None)?;
            operands = operands.max(damage.operands);
            damage.why = why;
        }
        let meta = file_meta(number, reader.size_bytes(), properties.clone());
        Ok(Sst {
            age: properties.as_old_as.unwrap_or(number),
            // No family has the last number that there is: the manifest is to name the one after it.
            family: properties.family.clone().filter(|(id, _)| *id < u32::MAX),
            // Where a hot table is, less is flushed than the entries say.
            flushed_seqno: match properties.flushed_seqno {
                SeqNo::ZERO => properties.largest_seqno,
                stated => stated,
            },
            is_hot_checkpoint: properties.is_hot_checkpoint,
            merge_operator: properties.merge_operator.clone(),
            has_operands: operands > 0,
            is_found: false,
            damage: (!damage.is_none()).then_some(damage),
            meta,
        })
    }

    /// Reads what can be read of an SST, and gives it to `output` if there is one.
    fn pass(
        &self,
        reader: &Arc<SstReader>,
        values: &mut Values,
        mut output: Option<&mut TakeEntry<'_>>,
    ) -> terrace_base::Result<Damage> {
        let mut damage = Damage::default();
        let mut pending = Pending::default();
        let unreadable = reader.salvage(&mut |key, trailer, value| {
            let kind = trailer_kind(trailer);
            let handle = kind.and_then(|kind| ValueHandle::of_entry(kind, value));
            pending.bytes += (key.len() + value.len()) as u64;
            pending.bytes += handle.map_or(0, |handle| u64::from(handle.len));
            let (key, value) = (key.to_vec(), value.to_vec());
            pending.entries.push(Waiting { key, trailer, value, handle });
            match pending.entries.len() == ENTRIES_TOGETHER || pending.bytes >= BYTES_TOGETHER {
                true => settle(&mut pending, values, &mut damage, &mut output),
                false => Ok(()),
            }
        })?;
        settle(&mut pending, values, &mut damage, &mut output)?;
        damage.unreadable = unreadable;
        Ok(damage)
    }

    /// Writes what can be read of `sst` to new files, which have their names when this returns; without a `rest` all of it.
    pub(super) fn rewrite(
        &self,
        sst: &Sst,
        options: &FamilyOptions,
        next_file_number: &(dyn Fn() -> FileNumber + Sync),
        rest: Option<Rest<'_>>,
    ) -> Result<Vec<FileMeta>> {
        let reader = self.open_sst(sst.meta.number)?;
        let mut values = self.values();
        let mut sst_options = options.sst(0, self.options.advanced.clock.wall_ms());
        sst_options.flushed_seqno = sst.flushed_seqno;
        sst_options.is_hot_checkpoint = sst.is_hot_checkpoint;
        sst_options.as_old_as = Some(sst.age);
        let (limiter, trainings) = (RateLimiter::new(0), TrainingTally::default());
        let progress = JobProgress::default();
        let context = OutputContext {
            vfs: &self.vfs,
            dir: self.dir,
            next_file_number,
            sst_options,
            target_file_bytes: u64::MAX,
            max_writer_bytes: usize::MAX,
            limiter: &limiter,
            trainings: &trainings,
            progress: &progress,
        };
        let (tombstones, mut is_left_out) = match rest {
            Some(rest) => (rest.tombstones, Some(rest.is_left_out)),
            None => (reader.range_tombstones().clone(), None),
        };
        let mut output = Output::new(context, tombstones);
        let mut add = |key: &[u8], trailer: u64, value: &[u8]| -> terrace_base::Result<()> {
            if let Some(is_left_out) = &mut is_left_out
                && is_left_out(key, trailer)?
            {
                return Ok(());
            }
            output.add(key, trailer, value)
        };
        self.pass(&reader, &mut values, Some(&mut add))?;
        let files = output.finish()?;
        unpublished::publish(&*self.vfs, self.dir, files.iter().map(|file| file.number))?;
        Ok(files)
    }

    /// Tells what is lost of an SST.
    pub(super) fn tell_damage(&mut self, owner: &str, sst: &Sst) {
        let Some(damage) = &sst.damage else { return };
        let number = sst.meta.number;
        if damage.unreadable.is_empty() && damage.values == 0 {
            let why = damage.why.as_deref().unwrap_or("it is damaged");
            self.saved(format!("SST {number} of {owner}: all entries of a damaged file ({why})"));
            return;
        }
        let lost = sst.meta.entry_count.saturating_sub(damage.entries);
        let mut told = vec![format!(
            "SST {number} of {owner}: {lost} of {} entries; the others are saved",
            sst.meta.entry_count
        )];
        for stretch in damage.unreadable.iter().take(TOLD_STRETCHES) {
            let after = stretch.after.as_deref().map_or("the first".into(), shown);
            let upto = shown(&stretch.upto);
            told.push(format!("SST {number}: keys after {after} up to {upto}: {}", stretch.error));
        }
        if let [.., last] = damage.unreadable.get(TOLD_STRETCHES..).unwrap_or_default() {
            let (more, upto) = (damage.unreadable.len() - TOLD_STRETCHES, shown(&last.upto));
            told.push(format!(
                "SST {number}: {more} more stretches of keys behind those, up to {upto}"
            ));
        }
        if let Some((first, why)) = &damage.first_value {
            let (count, first, last) = (damage.values, shown(first), shown(&damage.last_value));
            told.push(match count {
                1 => format!("SST {number}: the value of key {first}: {why}"),
                _ => format!(
                    "SST {number}: the values of {count} entries, keys {first} to {last}; of the first: {why}"
                ),
            });
        }
        self.report.lost.extend(told);
    }
}

/// Checks the values of what waits and writes what is sound.
fn settle(
    pending: &mut Pending,
    values: &mut Values,
    damage: &mut Damage,
    output: &mut Option<&mut TakeEntry<'_>>,
) -> terrace_base::Result<()> {
    let Pending { entries, .. } = std::mem::take(pending);
    let wanted: Vec<(&[u8], ValueHandle)> =
        entries.iter().filter_map(|e| e.handle.map(|at| (e.key.as_slice(), at))).collect();
    let mut faults = values.check(&wanted)?.into_iter();
    for Waiting { key, trailer, value, handle } in &entries {
        if let Some((at, why)) = handle.and_then(|at| Some((at, faults.next().flatten()?))) {
            damage.values += 1;
            damage.value_segments.insert(at.segment);
            damage.first_value.get_or_insert_with(|| (key.clone(), why));
            damage.last_value.clone_from(key);
            continue;
        }
        damage.entries += 1;
        damage.operands += u64::from(trailer_kind(*trailer).is_some_and(ValueKind::is_operand));
        if let Some(output) = output {
            output(key, *trailer, value)?;
        }
    }
    Ok(())
}

/// What the manifest says of a file with these properties.
fn file_meta(number: FileNumber, size_bytes: u64, properties: Properties) -> FileMeta {
    FileMeta {
        number,
        size_bytes,
        smallest: properties.smallest,
        largest: properties.largest,
        largest_exclusive: properties.largest_exclusive,
        smallest_seqno: properties.smallest_seqno,
        largest_seqno: properties.largest_seqno,
        entry_count: properties.entry_count,
        tombstone_count: properties.tombstone_count,
        range_tombstone_count: properties.range_tombstone_count,
        raw_bytes: properties.raw_key_bytes.saturating_add(properties.raw_value_bytes),
        created_ms: properties.created_ms,
        ttl_due_ms: properties.ttl_due_ms,
        value_refs: properties.value_refs,
    }
}

/// A file that the manifest names, in a sentence.
pub(super) fn describe(owner: &str, level: u8, file: &FileMeta) -> String {
    format!(
        "SST {} of {owner}, L{level}, {} entries, {} bytes: keys {} to {}, sequence numbers {} to {}",
        file.number,
        file.entry_count,
        file.size_bytes,
        shown(&file.smallest),
        shown(&file.largest),
        file.smallest_seqno,
        file.largest_seqno
    )
}

/// The files of a family in their levels; `None` if they do not fit.
pub(super) fn version_of(id: u32, files: Vec<(u8, FileMeta)>) -> Option<Arc<Version>> {
    let edit = terrace_manifest::FamilyEdit { id, added: files, ..Default::default() };
    Version::empty().apply(&edit).ok().map(Arc::new)
}
