//! How far a read of a file that grows has come: frames are taken as they come, and what lies between two of them is
//! damage, or lost with a block that the device does not give.

use super::format::Frame;
use std::ops::Range;
use std::path::Path;
use terrace_base::{Error, Result};
use terrace_vfs::add_damage;

/// What a read does where the content is not what was written.
pub(super) enum Damage<'a> {
    /// It fails.
    Fails,
    /// It goes on, unless it is the device that fails: [`terrace_vfs::RandomFile::read_around_damage`].
    IsPassed(&'a mut Vec<Range<u64>>),
    /// It goes on: [`terrace_vfs::RandomFile::read_around_loss`].
    AndLossArePassed(&'a mut Vec<Range<u64>>),
}

/// A read.
pub(super) struct Progress<'a, 'b> {
    /// What is before is read.
    pub at: u64,
    pub end: u64,
    buf: &'a mut [u8],
    damage: Damage<'b>,
    /// What the device said of a block behind the last frame that was seen.
    lost: Option<Error>,
}

impl<'a, 'b> Progress<'a, 'b> {
    /// A read of what `buf` has room for, from `at` on; `None` if no file is so long.
    pub fn new(at: u64, buf: &'a mut [u8], damage: Damage<'b>) -> Option<Self> {
        let end = at.checked_add(buf.len() as u64)?;
        Some(Self { at, end, buf, damage, lost: None })
    }

    /// Bytes that are not read.
    pub fn rest(&self) -> u64 {
        self.end - self.at
    }

    /// Whether lost blocks count as damage.
    pub fn passes_loss(&self) -> bool {
        matches!(self.damage, Damage::AndLossArePassed(_))
    }

    /// Begins to read on at a block in which, or behind which, the next byte is.
    pub fn begin(&mut self) {
        self.lost = None;
    }

    /// The device does not give a block, which may have what is wanted.
    pub fn lose(&mut self, why: Error) {
        self.lost = Some(why);
    }

    /// Whether what has not been read may be in a block that the device does not give.
    pub fn has_lost(&self) -> bool {
        self.lost.is_some()
    }

    fn target(&mut self, to: u64) -> &mut [u8] {
        let start = self.buf.len() - self.rest() as usize;
        self.buf.get_mut(start..start + (to - self.at) as usize).unwrap_or_default()
    }

    /// Takes what `frame` has, if the read has not passed it.
    pub fn take(&mut self, frame: &Frame<'_>, path: &Path) -> Result<()> {
        if frame.end() <= self.at {
            // Places ascend: what blocks before it had is not wanted.
            self.lost = None;
            return Ok(());
        }
        if frame.place > self.at {
            self.pass(frame.place.min(self.end), path)?;
        }
        self.lost = None;
        let to = frame.end().min(self.end);
        if self.at < to {
            let from = (self.at - frame.place) as usize;
            let source = frame.content.get(from..from + (to - self.at) as usize);
            self.target(to).copy_from_slice(source.unwrap_or_default());
            self.at = to;
        }
        Ok(())
    }

    /// Passes over what no frame has.
    ///
    /// # Errors
    /// What the device said of a lost block, and `Corruption`, unless they are to be passed.
    pub fn pass(&mut self, to: u64, path: &Path) -> Result<()> {
        let range = self.at..to;
        let lost = self.lost.take();
        match (&mut self.damage, lost) {
            (Damage::AndLossArePassed(damaged), _) | (Damage::IsPassed(damaged), None) => {
                add_damage(damaged, range);
            }
            (_, Some(lost)) => return Err(lost),
            (Damage::Fails, None) => {
                let why = "what is stored here of an encrypted file is not what was written there";
                return Err(Error::corruption(path, range.start, why));
            }
        }
        self.target(to).fill(0);
        self.at = to;
        Ok(())
    }
}
