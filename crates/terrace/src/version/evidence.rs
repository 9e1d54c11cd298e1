//! Evidence of what was synced, as an open store keeps it: the claims, and the two files that say
//! them (`terrace_manifest::evidence`).
//!
//! A log sync costs one small append to the first file, without a sync of its own; the first sync in
//! a segment and every manifest edit are noted in both, and the second file is synced after an edit. A leader never
//! waits here for a sync: it leaves its claim to the thread that holds the files. Evidence that cannot be
//! written is no reason to fail what is durable already: the files go on saying what is true, an event
//! and a metric say that they are behind, and they are written anew at the next occasion. But a sync of the directory that
//! fails poisons the store, as everywhere: names of others may be lost with those of these files.

use crate::env::BaseEnv;
use crate::event;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_base::sync::{Mutex, MutexGuard};
use terrace_base::{Result, SegmentNumber, SeqNo};
use terrace_log::LogPosition;
use terrace_manifest::ManifestState;
use terrace_manifest::evidence::{Claims, EVIDENCE_FILES, EvidenceFile};
use terrace_vfs::Vfs;

/// A file of this length is replaced by one with a single record,
const MAX_BYTES: u64 = 1 << 20;
/// or one of one part in this many of the reserve, which tells how small the disk may be,
const RESERVE_PARTS: u64 = 4;
/// or of one in this many while the disk is full: each synced deletion makes it longer.
const RESERVE_PARTS_WHEN_FULL: u64 = 32;
/// But not a shorter one.
const LEAST_MAX_BYTES: u64 = 4 << 10;

/// The evidence of one store. Takes no other lock but that of the store's health; may be called under any other.
pub(crate) struct Evidence {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    claims: Mutex<Claims>,
    files: Mutex<[Option<EvidenceFile>; EVIDENCE_FILES]>,
    /// Per file, whether claims were made since it was written.
    behind: [AtomicBool; EVIDENCE_FILES],
    /// Length at which a file is replaced.
    max_bytes: AtomicU64,
    /// Whether the last attempt to write one failed.
    stale: AtomicBool,
    /// The store, once it is open: before that no log segment waits for its name.
    base: Option<Arc<BaseEnv>>,
}

impl Evidence {
    /// Evidence of which nothing is written before something is noted: for read-only stores, where
    /// nothing ever is, and for those that were opened on a full disk.
    pub fn unwritten(vfs: Arc<dyn Vfs>, dir: &Path, known: Claims) -> Self {
        Self {
            vfs,
            dir: dir.to_path_buf(),
            claims: Mutex::new(known),
            files: Mutex::new(Default::default()),
            behind: Default::default(),
            max_bytes: AtomicU64::new(MAX_BYTES),
            stale: AtomicBool::new(false),
            base: None,
        }
    }

    /// From here on the evidence of the open store `base`.
    pub fn of(self, base: &Arc<BaseEnv>) -> Self {
        Self { base: Some(base.clone()), ..self }
    }

    /// Writes both files anew, with what was known. The directory is the caller's to sync.
    pub fn start(vfs: Arc<dyn Vfs>, dir: &Path, known: Claims) -> Self {
        let evidence = Self::unwritten(vfs, dir, known);
        let mut files = evidence.files.lock();
        for (number, file) in (1..).zip(files.iter_mut()) {
            match EvidenceFile::create(&*evidence.vfs, dir, number, &known) {
                Ok(fresh) => *file = Some(fresh),
                Err(error) => evidence.fell_behind(&error),
            }
        }
        drop(files);
        evidence
    }

    /// What is claimed.
    pub fn claims(&self) -> Claims {
        *self.claims.lock()
    }

    /// Whether the files say less than they could, since writing them failed.
    pub fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }

    /// The log has just been made durable up to `log`, writes up to `last_seqno` with it.
    pub fn note_log(&self, log: LogPosition, last_seqno: SeqNo) {
        let begins_segment = {
            let mut claims = self.claims.lock();
            let begins_segment = claims.log.segment != log.segment || claims.log.offset == 0;
            claims.log = claims.log.max(log);
            claims.last_seqno = claims.last_seqno.max(last_seqno);
            begins_segment
        };
        self.fall_behind(begins_segment);
        if let Some(files) = self.files.try_lock() {
            self.catch_up(files);
        }
    }

    /// An edit of the manifest has just been made durable; `segment` is the first of a new log, of which
    /// the name is durable.
    pub fn note_manifest(
        &self,
        manifest: LogPosition,
        state: &ManifestState,
        segment: Option<SegmentNumber>,
    ) {
        {
            let mut claims = self.claims.lock();
            let segment = segment.unwrap_or(claims.log.segment);
            claims.add(&Claims {
                store_id: state.store_id,
                manifest,
                log: LogPosition { segment, offset: 0 },
                last_seqno: SeqNo::ZERO,
                next_file_number: state.next_file_number,
            });
        }
        self.fall_behind(true);
        let mut files = self.files.lock();
        self.write(&mut files);
        if let Some(file) = &mut files[1]
            && let Err(error) = file.sync()
        {
            files[1] = None;
            self.fell_behind(&error);
        }
        self.catch_up(files);
    }

    /// The disk is full: long files are replaced now, and later ones stay short, so that they take little of the reserve.
    pub fn keep_short(&self, reserve_bytes: u64) {
        let max_bytes = (reserve_bytes / RESERVE_PARTS_WHEN_FULL).clamp(LEAST_MAX_BYTES, MAX_BYTES);
        self.max_bytes.store(max_bytes, Ordering::Relaxed);
        let files = self.files.lock();
        for (file, behind) in files.iter().zip(&self.behind) {
            if file.as_ref().is_some_and(|file| file.len_bytes() >= max_bytes) {
                behind.store(true, Ordering::SeqCst);
            }
        }
        self.catch_up(files);
    }

    /// The disk is not full: files may be longer.
    pub fn may_be_long(&self, reserve_bytes: u64) {
        let max_bytes = match reserve_bytes {
            0 => MAX_BYTES,
            _ => (reserve_bytes / RESERVE_PARTS).clamp(LEAST_MAX_BYTES, MAX_BYTES),
        };
        self.max_bytes.store(max_bytes, Ordering::Relaxed);
    }

    /// Makes both files durable: the last thing before a store is closed.
    pub fn settle(&self) {
        let mut files = self.files.lock();
        for file in files.iter_mut() {
            if let Some(Err(error)) = file.as_mut().map(EvidenceFile::sync) {
                *file = None;
                self.fell_behind(&error);
            }
        }
        self.catch_up(files);
    }

    fn fall_behind(&self, both: bool) {
        // SeqCst, as in `catch_up`: either the holder of the files sees this, or the caller gets them.
        self.behind[0].store(true, Ordering::SeqCst);
        if both {
            self.behind[1].store(true, Ordering::SeqCst);
        }
    }

    /// Writes what is claimed until nobody has claimed more.
    fn catch_up<'a>(&'a self, mut files: MutexGuard<'a, [Option<EvidenceFile>; EVIDENCE_FILES]>) {
        loop {
            self.write(&mut files);
            drop(files);
            if !self.behind.iter().any(|behind| behind.load(Ordering::SeqCst)) {
                return;
            }
            files = match self.files.try_lock() {
                Some(files) => files,
                None => return,
            };
        }
    }

    /// Writes what is claimed to the files that are behind.
    fn write(&self, files: &mut [Option<EvidenceFile>; EVIDENCE_FILES]) {
        // A segment that begins, or an edit: an occasion to write a file anew that failed.
        let occasion = self.behind[1].load(Ordering::SeqCst);
        let max_bytes = self.max_bytes.load(Ordering::Relaxed);
        for (at, file) in files.iter_mut().enumerate() {
            if !self.behind[at].swap(false, Ordering::SeqCst) {
                continue;
            }
            let claims = self.claims();
            let written = match file {
                Some(open) if open.len_bytes() < max_bytes => open.note(&claims),
                None if !occasion => continue,
                _ => self.replacement(at, &claims).map(|fresh| *file = Some(fresh)),
            };
            if let Err(error) = written {
                *file = None;
                self.fell_behind(&error);
                if let Some(base) = &self.base {
                    base.poison_if_of_dir("name evidence in the directory", error);
                }
            }
        }
        if files.iter().all(Option::is_some) {
            self.stale.store(false, Ordering::Relaxed);
        }
    }

    #[cold]
    fn replacement(&self, at: usize, claims: &Claims) -> Result<EvidenceFile> {
        let fresh = EvidenceFile::create(&*self.vfs, &self.dir, at as u64 + 1, claims)?;
        self.vfs.sync_dir(&self.dir)?;
        Ok(fresh)
    }

    fn fell_behind(&self, error: &terrace_base::Error) {
        if !self.stale.swap(true, Ordering::Relaxed) {
            event::evidence_stale(error);
        }
    }
}

#[cfg(test)]
mod tests;
