//! Keys taken out whole, and put in as they were.

use crate::command_batch::CommandBatch;
use crate::encode::{self, Kind, Meta};
use crate::error::{Error, Result};
use crate::exported_key::{DamagedExport, ExportedKey, ExportedKind, Exporter};
use crate::keys::Content;
use crate::sorted_sets::{Order, Range};
use terrace_cluster::Refusal;

/// Most bytes of an exported key: it is sent in one message.
pub const MAX_EXPORT_BYTES: usize = 32 << 20;

impl From<DamagedExport> for Error {
    fn from(damaged: DamagedExport) -> Self {
        Self::Engine(terrace::Error::InvalidArgument(damaged.to_string()))
    }
}

impl CommandBatch {
    /// Everything under a key, as it is at one moment; a key that does not exist is exported, too. Costs
    /// O(elements), in memory too.
    ///
    /// # Errors
    /// The engine's.
    pub fn export_key(
        &mut self,
        db: u8,
        key: &[u8],
        max_bytes: usize,
    ) -> Result<std::result::Result<ExportedKey, Refusal>> {
        self.pin_view(db, key);
        let content = self.content(db, key)?;
        let expires_at_ms = content.expires_at_ms().unwrap_or(0);
        let kind = match &content {
            Content::Nothing => ExportedKind::Nothing,
            Content::Text(_) => ExportedKind::Text,
            Content::Collection(meta) => ExportedKind::Collection(meta.kind),
        };
        let mut exporter = Exporter::new(db, key, kind, expires_at_ms);
        match content {
            Content::Nothing => {}
            Content::Text(text) => exporter.element(&[&text.value]),
            Content::Collection(meta) => {
                self.export_elements(db, &meta, &mut exporter, max_bytes)?;
            }
        }
        Ok(match exporter.size_bytes() <= max_bytes {
            true => Ok(exporter.finish()),
            false => Err(Refusal::TooLarge),
        })
    }

    fn export_elements(
        &mut self,
        db: u8,
        meta: &Meta,
        exporter: &mut Exporter,
        max_bytes: usize,
    ) -> Result<()> {
        match meta.kind {
            Kind::Hash => self.hash_each(db, meta, |field, value| {
                exporter.element(&[field, value]);
                Ok(exporter.size_bytes() <= max_bytes)
            }),
            Kind::Set => self.set_each(db, meta, |member| {
                exporter.element(&[member]);
                Ok(exporter.size_bytes() <= max_bytes)
            }),
            Kind::SortedSet => {
                let all = Range::Ranks(0..=u64::MAX);
                self.sorted_set_each(db, meta, &all, Order::Up, |member, score| {
                    exporter.scored(score, member);
                    Ok(exporter.size_bytes() <= max_bytes)
                })
            }
            Kind::List => self.list_each(db, meta, 0, u64::MAX, |value| {
                exporter.element(&[value]);
                Ok(exporter.size_bytes() <= max_bytes)
            }),
        }
    }

    /// Puts what was exported in the place of whatever is under its key; nothing, if it has expired since. The
    /// lock is held.
    ///
    /// # Errors
    /// The bytes are no exported key, and the engine's: then the batch is to be abandoned.
    pub(crate) fn put_exported(&mut self, exported: &ExportedKey) -> Result<()> {
        let parts = exported.parts()?;
        let (db, key) = (parts.db, parts.key);
        self.clear_key(db, key)?;
        let has_expired = parts.expires_at_ms != 0 && parts.expires_at_ms <= self.now_ms();
        let ExportedKind::Collection(kind) = parts.kind else {
            let expires_at_ms = (parts.expires_at_ms != 0).then_some(parts.expires_at_ms);
            return parts.each_element(|value, _| {
                self.put_text(db, key, value, expires_at_ms);
                Ok(())
            });
        };
        if has_expired {
            return Ok(());
        }
        let mut meta = self.fresh_collection(key, kind)?;
        parts.each_element(|first, second| {
            match kind {
                Kind::Hash => self.put_element(encode::member_key(db, meta.id, first), second),
                Kind::Set => self.put_element(encode::member_key(db, meta.id, first), b""),
                Kind::SortedSet => {
                    let score = first.try_into().map_err(|_| DamagedExport)?;
                    let score = f64::from_bits(u64::from_le_bytes(score));
                    self.put_score(db, &meta, second, None, score);
                }
                Kind::List => {
                    let place = encode::index_key(db, meta.id, meta.count as i64);
                    self.put_element(place, first);
                }
            }
            meta.count += 1;
            Ok::<_, Error>(())
        })?;
        let expires_at_ms = parts.expires_at_ms;
        if expires_at_ms != 0 {
            self.set_expiry(db, key, &mut meta, expires_at_ms);
        }
        self.put_meta(db, key, &meta);
        Ok(())
    }
}
