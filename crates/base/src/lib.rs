//! The vocabulary that every Terrace crate shares: keys, sequence numbers, varints, checksums,
//! errors, the internal iterator trait, the traits for time and randomness, locks and threads.
//!
//! Floor 0: uses no other crate of the workspace, does no I/O, and holds no global state.

pub mod caught;
pub mod checksum;
pub mod clock;
pub mod codec;
pub mod error;
pub mod hex;
pub mod iter;
pub mod key;
pub mod number;
pub mod range_tombstone;
pub mod rng;
pub mod sync;
pub mod value_handle;

pub use clock::{Clock, ManualClock, SystemClock};
pub use codec::Decoder;
pub use error::{Error, Result};
pub use iter::InternalIter;
pub use key::ValueKind;
pub use number::{AtomicSeqNo, FileNumber, MAX_SEQNO, MAX_VALUE_SEGMENT, SegmentNumber, SeqNo};
pub use range_tombstone::{RangeTombstone, RangeTombstoneRef, RangeTombstones};
pub use rng::{Rng, SplitMix64};
pub use value_handle::{HANDLE_BYTES, ValueHandle, ValueRef};
