//! Bounds of messages and queues between nodes.

/// The largest message that is taken: as large as the largest reply of the Redis protocol, and room.
pub const MAX_MESSAGE_BYTES: usize = (512 << 20) + (1 << 20);

/// The requests of the largest call that is sent: what is longer would end the stream, and with it the calls of others.
pub(super) const MAX_CALL_BYTES: usize = MAX_MESSAGE_BYTES - (1 << 20);

/// Requests that wait for one node, or are executed for it, in bytes. One request of any size may
/// always wait.
pub const MAX_QUEUED_BYTES: usize = 64 << 20;

/// Calls go into one message up to this size.
pub(super) const BATCH_BYTES: usize = 1 << 20;

/// Calls go into one message up to this number.
pub(super) const BATCH_CALLS: usize = 4096;

/// A stream keeps buffers, at both ends, as large as the largest message that it has had. After a larger one than this it
/// is ended when nothing is under way on it.
pub(super) const KEPT_MESSAGE_BYTES: usize = 4 << 20;

/// Messages that are ready for a stream which does not take them.
pub(super) const STREAM_QUEUE: usize = 4;
