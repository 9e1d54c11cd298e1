//! A cheap owned slice of bytes: a range of a [`Buf`] that it keeps alive. Values leave the
//! engine in this form, pinned to the block they were read from.

#![allow(unsafe_code, reason = "the range is checked once, when the slice is made")]

use crate::Buf;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::ptr::NonNull;

/// Immutable bytes, shared by counting. Invariant: `data..data + len` lies in `owner`, or `len`
/// is 0.
#[derive(Clone)]
pub struct Slice {
    data: NonNull<u8>,
    len: usize,
    owner: Option<Buf>,
}

// SAFETY: the bytes are immutable and kept alive by `owner`, which is Send and Sync.
unsafe impl Send for Slice {}
// SAFETY: as above.
unsafe impl Sync for Slice {}

impl Slice {
    /// `len` bytes of `buf` from `start` on.
    ///
    /// # Panics
    /// If the range is not inside `buf`, as indexing does.
    #[inline]
    pub fn of(buf: Buf, start: usize, len: usize) -> Self {
        assert!(
            start <= buf.len() && len <= buf.len() - start,
            "a slice must lie inside its buffer"
        );
        // SAFETY: `start` is at most the length of the buffer.
        let data = unsafe { buf.data().add(start) };
        Self { data, len, owner: Some(buf) }
    }

    /// No bytes; allocates nothing.
    #[inline]
    pub const fn empty() -> Self {
        Self { data: NonNull::dangling(), len: 0, owner: None }
    }

    /// The part `start..start + len` of this slice, sharing the memory.
    ///
    /// # Panics
    /// If the range is not inside the slice.
    pub fn part(&self, start: usize, len: usize) -> Self {
        assert!(start <= self.len && len <= self.len - start, "a part must lie inside its slice");
        // SAFETY: `start` is at most the length of the slice.
        let data = unsafe { self.data.add(start) };
        Self { data, len, owner: self.owner.clone() }
    }

    /// The same bytes of a copy of the buffer, if there is one that takes less memory ([`Buf::packed`]).
    pub fn packed(&self) -> Option<Self> {
        let owner = self.owner.as_ref()?;
        let start = self.data.as_ptr() as usize - owner.data().as_ptr() as usize;
        Some(Self::of(owner.packed()?, start, self.len))
    }

    /// The bytes of memory that this slice keeps alive.
    pub fn pinned_bytes(&self) -> usize {
        self.owner.as_ref().map_or(0, Buf::charge_bytes)
    }
}

impl Default for Slice {
    fn default() -> Self {
        Self::empty()
    }
}

impl Deref for Slice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: by the invariant the range is inside a live buffer, or empty and aligned.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Slice {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl From<Buf> for Slice {
    fn from(buf: Buf) -> Self {
        Self { data: buf.data(), len: buf.len(), owner: Some(buf) }
    }
}

impl From<&[u8]> for Slice {
    fn from(bytes: &[u8]) -> Self {
        if bytes.is_empty() { Self::empty() } else { Buf::from(bytes).into() }
    }
}

impl<const N: usize> From<&[u8; N]> for Slice {
    fn from(bytes: &[u8; N]) -> Self {
        bytes.as_slice().into()
    }
}

impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Self {
        bytes.as_slice().into()
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

impl PartialEq for Slice {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Slice {}

impl PartialOrd for Slice {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slice {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Slice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // As `[u8]` does: `Borrow<[u8]>` requires it.
        (**self).hash(state);
    }
}

macro_rules! equal_to {
    ($($other:ty),*) => {$(
        impl PartialEq<$other> for Slice {
            fn eq(&self, other: &$other) -> bool {
                let other: &[u8] = other.as_ref();
                **self == *other
            }
        }

        impl PartialEq<Slice> for $other {
            fn eq(&self, other: &Slice) -> bool {
                let this: &[u8] = self.as_ref();
                *this == **other
            }
        }
    )*};
}

equal_to!([u8], &[u8], Vec<u8>);

impl<const N: usize> PartialEq<[u8; N]> for Slice {
    fn eq(&self, other: &[u8; N]) -> bool {
        **self == *other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Slice {
    fn eq(&self, other: &&[u8; N]) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, HashMap};

    #[test]
    fn a_slice_keeps_its_buffer() {
        let slice = {
            let buf = Buf::from(&b"one two three"[..]);
            Slice::of(buf, 4, 3)
        };
        assert_eq!(slice, b"two");
        assert_eq!(slice.part(1, 2), b"wo");
        assert!(slice.part(3, 0).is_empty() && slice.pinned_bytes() >= 64 + 13);
        assert_eq!(Slice::empty().pinned_bytes(), 0);
        assert_eq!(size_of::<Option<Slice>>(), 3 * size_of::<usize>());
        let moved = std::thread::spawn(move || slice.to_vec()).join().unwrap();
        assert_eq!(moved, b"two");
    }

    #[test]
    #[should_panic(expected = "inside its buffer")]
    fn a_slice_past_its_buffer_is_refused() {
        Slice::of(Buf::from(&b"abc"[..]), 2, usize::MAX);
    }

    #[test]
    fn slices_compare_and_hash_as_bytes() {
        let slice = Slice::from(b"key".to_vec());
        assert_eq!(slice, b"key"[..]);
        assert_eq!(slice, b"key".to_vec());
        assert_eq!(b"key".to_vec(), slice);
        assert_eq!(slice, &b"key"[..]);
        assert_ne!(slice, Slice::empty());
        let (earlier, none) = (Slice::from(b"kex"), Slice::from(&[][..]));
        assert!(slice > earlier && none == Slice::empty());
        let map = HashMap::from([(slice.clone(), 1)]);
        assert_eq!(map.get(&b"key"[..]), Some(&1));
        let map = BTreeMap::from([(slice, 2)]);
        assert_eq!(map.get(&b"key"[..]), Some(&2));
        assert_eq!(format!("{:?}", Slice::from(b"a\0\"")), r#"b"a\x00\"""#);
    }
}
