//! What the other side of a connection may declare. Both parsers compare before they believe.

/// Upper bounds of one message. A parser refuses what is over them before any memory is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Arguments of a request; elements of one aggregate of a reply (pairs, for a map).
    pub elements: usize,
    /// Bytes of one argument, or of one bulk string of a reply.
    pub bulk_bytes: usize,
    /// Bytes of a whole message as sent. More than `u32::MAX` counts as `u32::MAX`.
    pub message_bytes: usize,
    /// Bytes of an inline request, or of a reply that is one line, without the line's end.
    pub line_bytes: usize,
    /// Aggregates within each other in a reply.
    pub depth: usize,
}

impl Limits {
    /// What holds for a connection before it has authenticated, where that is required: 10
    /// arguments of 16 KiB, as in Redis, and 32 KiB for all of them.
    pub const GUEST: Self = Self {
        elements: 10,
        bulk_bytes: 16 << 10,
        message_bytes: 32 << 10,
        line_bytes: 16 << 10,
        depth: 1,
    };

    /// These limits, and nothing above [`Self::GUEST`].
    pub fn for_guests(self) -> Self {
        let guest = Self::GUEST;
        Self {
            elements: self.elements.min(guest.elements),
            bulk_bytes: self.bulk_bytes.min(guest.bulk_bytes),
            message_bytes: self.message_bytes.min(guest.message_bytes),
            line_bytes: self.line_bytes.min(guest.line_bytes),
            depth: self.depth.min(guest.depth),
        }
    }

    /// These limits with `message_bytes` such that every offset into a message is a `u32`.
    pub(crate) fn addressable(self) -> Self {
        Self { message_bytes: self.message_bytes.min(u32::MAX as usize), ..self }
    }
}

impl Default for Limits {
    /// 1,048,576 elements, 512 MiB a bulk string (`proto-max-bulk-len`), 1 GiB a message
    /// (`client-query-buffer-limit`), lines of 64 KiB, 32 aggregates deep.
    fn default() -> Self {
        Self {
            elements: 1 << 20,
            bulk_bytes: 512 << 20,
            message_bytes: 1 << 30,
            line_bytes: 64 << 10,
            depth: 32,
        }
    }
}
