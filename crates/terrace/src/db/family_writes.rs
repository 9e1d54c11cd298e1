//! The operations of a [`WriteBatch`] that name their column family by its handle. The batch notes of
//! which open store that is, so that it cannot be written to another one.

use super::ColumnFamily;
use crate::batch::WriteBatch;
use std::time::Duration;
use terrace_base::ValueKind;

impl WriteBatch {
    /// As [`WriteBatch::put`], in a column family.
    pub fn put_cf(&mut self, cf: &ColumnFamily, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.note_store(cf.inner().base.open_id);
        let separation = cf.family.separation();
        self.put_value(cf.id(), key.as_ref(), None, value.as_ref(), separation);
    }

    /// As [`WriteBatch::put_with_ttl`], in a column family.
    pub fn put_with_ttl_cf(
        &mut self,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) {
        self.note_store(cf.inner().base.open_id);
        let separation = cf.family.separation();
        self.put_value(cf.id(), key.as_ref(), Some(ttl), value.as_ref(), separation);
    }

    /// As [`WriteBatch::put_until`], in a column family.
    pub fn put_until_cf(
        &mut self,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_at_ms: u64,
    ) {
        self.note_store(cf.inner().base.open_id);
        let (key, value, separation) = (key.as_ref(), value.as_ref(), cf.family.separation());
        self.put_value_until(cf.id(), key, expires_at_ms, value, separation);
    }

    /// As [`WriteBatch::delete`], in a column family.
    pub fn delete_cf(&mut self, cf: &ColumnFamily, key: impl AsRef<[u8]>) {
        self.note_store(cf.inner().base.open_id);
        self.push(cf.id(), ValueKind::Delete, key.as_ref(), &[]);
    }

    /// As [`WriteBatch::merge`], in a column family.
    pub fn merge_cf(
        &mut self,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) {
        self.note_store(cf.inner().base.open_id);
        self.push(cf.id(), ValueKind::Merge, key.as_ref(), operand.as_ref());
    }

    /// As [`WriteBatch::delete_range`], in a column family.
    pub fn delete_range_cf(
        &mut self,
        cf: &ColumnFamily,
        start: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) {
        self.note_store(cf.inner().base.open_id);
        self.push(cf.id(), ValueKind::RangeDelete, start.as_ref(), end.as_ref());
    }
}
