//! The categories of commands that ACL rules name, as in Redis 7.2. The table of commands gives
//! every command its set; [`super::Catalog`] and `ACL CAT` read them.

use std::ops::{BitOr, BitOrAssign};

/// A set of categories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Categories(u32);

macro_rules! categories {
    ($($(#[doc = $doc:literal])* $constant:ident $name:literal)*) => {
        /// Names in the order in which `ACL CAT` gives them; the place is the bit.
        const NAMES: &[&str] = &[$($name),*];

        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Place { $($constant),* }

        $($(#[doc = $doc])* pub const $constant: Categories = Categories(1 << Place::$constant as u32);)*
    };
}

categories! {
    /// Keys of any type: DEL, EXPIRE, SCAN.
    KEYSPACE "keyspace"
    /// Reads values of keys.
    READ "read"
    /// Writes values of keys.
    WRITE "write"
    /// Sets.
    SET "set"
    /// Sorted sets.
    SORTEDSET "sortedset"
    /// Lists.
    LIST "list"
    /// Hashes.
    HASH "hash"
    /// Strings.
    STRING "string"
    /// Bitmaps.
    BITMAP "bitmap"
    /// HyperLogLogs.
    HYPERLOGLOG "hyperloglog"
    /// Geospatial indexes.
    GEO "geo"
    /// Streams.
    STREAM "stream"
    /// Messages between clients.
    PUBSUB "pubsub"
    /// Only for those who run the server.
    ADMIN "admin"
    /// Constant or logarithmic time.
    FAST "fast"
    /// Whatever is not [`FAST`].
    SLOW "slow"
    /// May wait for another client.
    BLOCKING "blocking"
    /// Can do harm: removes everything, stops or slows the server, shows what others do.
    DANGEROUS "dangerous"
    /// About the connection itself.
    CONNECTION "connection"
    /// MULTI and its relatives.
    TRANSACTION "transaction"
    /// Scripts.
    SCRIPTING "scripting"
}

impl Categories {
    /// No category.
    pub const NONE: Self = Self(0);

    /// Every category.
    pub const ALL: Self = Self((1 << NAMES.len()) - 1);

    /// Both sets together. The operator `|` does the same outside of constants.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether some category is in both sets.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether every category of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The category of this name (without `@`, any case); `all` is no category.
    pub fn named(name: &str) -> Option<Self> {
        let at = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        Some(Self(1 << at))
    }

    /// The names in this set, without `@`.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES
            .iter()
            .enumerate()
            .filter(move |(at, _)| self.0 & (1 << at) != 0)
            .map(|(_, name)| *name)
    }
}

impl BitOr for Categories {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl BitOrAssign for Categories {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.with(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_bits_belong_together() {
        assert_eq!(NAMES.len(), 21);
        for (at, name) in NAMES.iter().enumerate() {
            let category = Categories::named(name).unwrap();
            assert_eq!(category.0, 1 << at);
            assert_eq!(category.names().collect::<Vec<_>>(), [*name]);
            assert!(Categories::ALL.contains(category));
            assert!(!Categories::NONE.intersects(category));
        }
        assert_eq!(Categories::named("SortedSet"), Some(SORTEDSET));
        assert_eq!(Categories::named("all"), None);
        assert_eq!(Categories::named("@read"), None);
        assert_eq!((READ | FAST).names().collect::<Vec<_>>(), ["read", "fast"]);
        assert_eq!(SCRIPTING.0, 1 << 20);
    }
}
