//! Options that are one of a few words.

use super::refuse::unreadable;
use crate::error::Result;

/// An option that is one of a few words.
pub(super) trait Words: Copy + 'static {
    /// All that it can be.
    const ALL: &'static [Self];

    /// The word for it.
    fn word(self) -> &'static str;
}

/// What `text`, the value of option `name`, is the word for.
///
/// # Errors
/// `InvalidArgument`: it is the word for nothing.
pub(super) fn from_word<T: Words>(name: &str, text: &str) -> Result<T> {
    let found = T::ALL.iter().copied().find(|value| value.word() == text);
    found.ok_or_else(|| {
        let words: Vec<&str> = T::ALL.iter().map(|value| value.word()).collect();
        unreadable(name, text, &words.join(" or "))
    })
}

/// Says how an option of the type is spelled: its name, and a word for each of its values. Gives it `Display` and
/// `FromStr`.
macro_rules! spelled {
    ($type:ident, $name:literal, $($variant:ident = $word:literal),+) => {
        impl $crate::options::words::Words for $type {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad($crate::options::words::Words::word(*self))
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::error::Error;

            fn from_str(text: &str) -> $crate::error::Result<Self> {
                $crate::options::words::from_word($name, text)
            }
        }
    };
}
pub(super) use spelled;
