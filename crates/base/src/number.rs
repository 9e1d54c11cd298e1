//! Numbers that must not be mixed up: of writes, of files, of segments of the log. Each is a `u64` (or
//! a `u32` on disk where the format says so) with a type of its own; they cost nothing, print as plain
//! numbers, and are turned into one and back with `new` and `get` where bytes are read or written.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::sync::atomic::{AtomicU64, Ordering};

/// Defines a counter's type. What is added to one is a plain count, and so is the distance of two.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Below every number that is given out.
            pub const ZERO: Self = Self(0);

            /// The number `value`.
            #[inline]
            pub const fn new(value: u64) -> Self {
                Self(value)
            }

            /// The plain number.
            #[inline]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// Where a codec reads the plain number to.
            #[inline]
            pub const fn raw_mut(&mut self) -> &mut u64 {
                &mut self.0
            }

            /// The number after this one; the largest is followed by itself.
            #[inline]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }

            /// The number before this one; that before the first is the first.
            #[inline]
            pub const fn previous(self) -> Self {
                Self(self.0.saturating_sub(1))
            }

            /// This number and those after it, in order.
            #[inline]
            pub fn onward(self) -> impl Iterator<Item = Self> {
                (self.0..).map(Self)
            }

            /// The number `count` after this one, unless that overflows.
            #[inline]
            pub fn checked_add(self, count: u64) -> Option<Self> {
                self.0.checked_add(count).map(Self)
            }

            /// The number `count` after this one, or the largest `u64`.
            #[inline]
            pub const fn saturating_add(self, count: u64) -> Self {
                Self(self.0.saturating_add(count))
            }
        }

        impl std::str::FromStr for $name {
            type Err = std::num::ParseIntError;

            fn from_str(digits: &str) -> Result<Self, Self::Err> {
                digits.parse().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl Add<u64> for $name {
            type Output = Self;

            #[inline]
            fn add(self, count: u64) -> Self {
                Self(self.0 + count)
            }
        }

        impl AddAssign<u64> for $name {
            #[inline]
            fn add_assign(&mut self, count: u64) {
                self.0 += count;
            }
        }

        impl Sub for $name {
            type Output = u64;

            #[inline]
            fn sub(self, before: Self) -> u64 {
                self.0 - before.0
            }
        }
    };
}

number! {
    /// A 56-bit counter; every write gets one, a snapshot is one.
    SeqNo
}

number! {
    /// The number in the name of a file. SSTs, segments and temporary files share one number space;
    /// manifests and what readers lock have spaces of their own.
    FileNumber
}

number! {
    /// The file number of a segment: of the commit log, or of values that left it. A value handle has room
    /// for those up to [`MAX_VALUE_SEGMENT`].
    SegmentNumber
}

/// The largest number of a segment that a value handle can name: 4 bytes.
pub const MAX_VALUE_SEGMENT: SegmentNumber = SegmentNumber::new(u32::MAX as u64);

impl SegmentNumber {
    /// Whether a value handle can name the segment.
    #[inline]
    pub fn fits_handles(self) -> bool {
        self <= MAX_VALUE_SEGMENT
    }

    /// The number of its file.
    #[inline]
    pub const fn file(self) -> FileNumber {
        FileNumber(self.0)
    }
}

impl FileNumber {
    /// The number of the segment that this file is.
    #[inline]
    pub const fn segment(self) -> SegmentNumber {
        SegmentNumber(self.0)
    }
}

/// The largest sequence number (2^56 - 1). A read at this number sees everything.
pub const MAX_SEQNO: SeqNo = SeqNo::new((1 << 56) - 1);

/// A sequence number that several threads read and write.
#[derive(Debug, Default)]
pub struct AtomicSeqNo(AtomicU64);

impl AtomicSeqNo {
    /// Starts at `seqno`.
    pub const fn new(seqno: SeqNo) -> Self {
        Self(AtomicU64::new(seqno.0))
    }

    /// As [`AtomicU64::load`].
    #[inline]
    pub fn load(&self, order: Ordering) -> SeqNo {
        SeqNo(self.0.load(order))
    }

    /// As [`AtomicU64::store`].
    #[inline]
    pub fn store(&self, seqno: SeqNo, order: Ordering) {
        self.0.store(seqno.0, order);
    }

    /// As [`AtomicU64::fetch_max`].
    #[inline]
    pub fn fetch_max(&self, seqno: SeqNo, order: Ordering) -> SeqNo {
        SeqNo(self.0.fetch_max(seqno.0, order))
    }
}
