//! Kinds of values: what text each takes, how it is shown, what else it must be.

use super::addresses::listen_address;
use super::output_limits::OutputLimits;
use super::units::bytes;
use std::fmt;
use terrace::{CompactionStyle, Compression, FilterPolicy, HotTableMode, Learning, MemorySplit};

/// What text an option takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// `yes` or `no` (`true` and `false` are understood).
    YesNo,
    /// A whole number.
    Whole {
        /// The smallest.
        min: i64,
        /// The largest.
        max: i64,
    },
    /// A number of bytes as Redis writes it: `100`, `1k` (1000), `1kb` (1024), `64mb`, `2g`.
    Bytes {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// As [`Kind::Bytes`], where 0 is the default, as Redis's clients may set it.
    Budget {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
        /// What 0 is.
        default: u64,
    },
    /// As [`Kind::Bytes`], or `off`.
    BytesOrOff,
    /// As [`Kind::Bytes`], or a share such as `5%`.
    BytesOrPercent,
    /// Numbers from 0 to 100, separated by spaces.
    Percentiles,
    /// One value and no other.
    Only {
        /// The value.
        value: &'static str,
        /// Why it is no other.
        why: &'static str,
    },
    /// A fraction.
    Ratio {
        /// The smallest.
        min: f64,
        /// The largest.
        max: f64,
    },
    /// Any text without control characters.
    Text,
    /// Any text; it is never shown in logs and pages.
    Secret,
    /// A file or folder of the server.
    Path,
    /// Addresses to listen on, separated by spaces.
    Addresses,
    /// Names of hosts, separated by spaces.
    HostNames,
    /// One of these.
    Choice(&'static [&'static str]),
    /// `class hard soft seconds`, for one or more classes.
    OutputLimits,
    /// Compression by level, separated by commas; the last serves all deeper levels.
    Compressions,
    /// Filters by level, separated by commas; the last serves all deeper levels.
    Filters,
}

impl Kind {
    /// What a value may be, for errors and documentation.
    pub fn allowed(&self) -> String {
        match self {
            Self::YesNo => "yes or no".into(),
            Self::Whole { min, max } => format!("a whole number from {min} to {max}"),
            Self::Bytes { min, max: u64::MAX } => {
                format!("a memory value of at least {}", Size(*min))
            }
            Self::Bytes { min, max } => {
                format!("a memory value from {} to {}", Size(*min), Size(*max))
            }
            Self::Budget { min, max, .. } => {
                format!(
                    "a memory value from {} to {}, or 0 for the default",
                    Size(*min),
                    Size(*max)
                )
            }
            Self::BytesOrOff => "a memory value, or off".into(),
            Self::BytesOrPercent => "a memory value or a share such as 5%".into(),
            Self::Percentiles => "numbers from 0 to 100, separated by spaces".into(),
            Self::Only { value: "", why } => format!("empty: {why}"),
            Self::Only { value, why } => format!("{value}: {why}"),
            Self::Ratio { min, max } => format!("a number from {min} to {max}"),
            Self::Text => "a text without control characters".into(),
            Self::Secret => "a text".into(),
            Self::Path => "a path".into(),
            Self::Addresses => "IP addresses, localhost, * or ::*, separated by spaces; - before \
                                one makes it optional"
                .into(),
            Self::HostNames => "names of hosts, separated by spaces".into(),
            Self::Choice(names) => match names {
                [only] => (*only).into(),
                [first @ .., last] => format!("{} or {last}", first.join(", ")),
                [] => "nothing".into(),
            },
            Self::OutputLimits => "<class> <hard limit> <soft limit> <soft seconds>, for the \
                                   classes normal, replica and pubsub"
                .into(),
            Self::Compressions => "none, lz4 or zstd by level, separated by commas".into(),
            Self::Filters => "filters such as ribbon:16, bloom:10 or none by level, separated by \
                              commas"
                .into(),
        }
    }

    /// What is wrong with a text that is refused, as CONFIG SET says it.
    pub(super) fn complaint(&self, text: &str) -> String {
        let between = |min: &dyn fmt::Display, max: &dyn fmt::Display| {
            format!("argument must be between {min} and {max} inclusive")
        };
        match self {
            Self::YesNo => "argument must be 'yes' or 'no'".into(),
            Self::Whole { min, max } => match text.parse::<i64>() {
                Ok(_) => between(min, max),
                Err(_) => "argument couldn't be parsed into an integer".into(),
            },
            Self::Bytes { min, max } | Self::Budget { min, max, .. } => match bytes(text) {
                Some(_) => between(min, max),
                None => "argument must be a memory value".into(),
            },
            Self::Choice(names) => {
                format!("argument(s) must be one of the following: {}", names.join(", "))
            }
            Self::Only { why, .. } => (*why).into(),
            _ => format!("argument must be {}", self.allowed()),
        }
    }

    /// A text of this kind as CONFIG GET shows it; `None` if it is none. Not for lists and secrets.
    pub(super) fn canonical(&self, text: &str) -> Option<String> {
        Some(match *self {
            Self::YesNo => {
                let mut flag = false;
                flag.assign(text, self)?;
                flag.show()
            }
            Self::Whole { .. } | Self::Bytes { .. } => {
                let mut number = 0_i64;
                number.assign(text, self)?;
                number.to_string()
            }
            Self::BytesOrPercent => match text.strip_suffix('%') {
                Some(share) => format!("{}%", share.parse::<u8>().ok().filter(|n| *n <= 100)?),
                None => bytes(text)?.to_string(),
            },
            Self::Percentiles => {
                let number =
                    |word: &str| word.parse::<f64>().ok().filter(|n| (0.0..=100.0).contains(n));
                let numbers = text.split_ascii_whitespace().take(65).map(number);
                let numbers: Vec<_> = numbers.collect::<Option<_>>()?;
                (numbers.len() <= 64).then_some(())?;
                numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(" ")
            }
            Self::Choice(names) => {
                (*names.iter().find(|name| name.eq_ignore_ascii_case(text))?).into()
            }
            Self::Only { value, .. } => text.eq_ignore_ascii_case(value).then(|| value.into())?,
            Self::Text => {
                let mut same = String::new();
                same.assign(text, self)?;
                same
            }
            _ => return None,
        })
    }
}

/// Bytes in the largest unit that divides them.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")];
        match units.iter().find(|(size, _)| self.0 > 0 && self.0.is_multiple_of(*size)) {
            Some((size, name)) => write!(f, "{}{name}", self.0 / size),
            None => write!(f, "{}", self.0),
        }
    }
}

/// What a field of [`super::Settings`] can be.
pub(super) trait Value: Clone + PartialEq {
    /// Takes over what `text` says; `None` if it is not of this kind, then nothing has changed.
    fn assign(&mut self, text: &str, kind: &Kind) -> Option<()>;

    /// The value as CONFIG GET gives it; [`Self::assign`] takes it back.
    fn show(&self) -> String;
}

impl Value for bool {
    fn assign(&mut self, text: &str, _: &Kind) -> Option<()> {
        *self = match text.to_ascii_lowercase().as_str() {
            "yes" | "true" => true,
            "no" | "false" => false,
            _ => return None,
        };
        Some(())
    }

    fn show(&self) -> String {
        if *self { "yes" } else { "no" }.into()
    }
}

macro_rules! whole_numbers {
    ($($number:ty),*) => {$(
        impl Value for $number {
            fn assign(&mut self, text: &str, kind: &Kind) -> Option<()> {
                *self = match *kind {
                    Kind::Whole { min, max } => {
                        let number = text.parse::<i64>().ok()?;
                        <$number>::try_from((min..=max).contains(&number).then_some(number)?).ok()?
                    }
                    Kind::Bytes { min, max } => {
                        let number = bytes(text)?;
                        <$number>::try_from((min..=max).contains(&number).then_some(number)?).ok()?
                    }
                    Kind::Budget { min, max, default } => {
                        let number = Some(bytes(text)?).filter(|number| *number > 0).unwrap_or(default);
                        <$number>::try_from((min..=max).contains(&number).then_some(number)?).ok()?
                    }
                    _ => return None,
                };
                Some(())
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

whole_numbers!(u16, u32, u64, i64, usize);

impl Value for Option<u64> {
    fn assign(&mut self, text: &str, _: &Kind) -> Option<()> {
        *self = if text.eq_ignore_ascii_case("off") { None } else { Some(bytes(text)?) };
        Some(())
    }

    fn show(&self) -> String {
        self.map_or("off".into(), |bytes| bytes.to_string())
    }
}

impl Value for f64 {
    fn assign(&mut self, text: &str, kind: &Kind) -> Option<()> {
        let Kind::Ratio { min, max } = *kind else { return None };
        let number = text.parse::<f64>().ok()?;
        *self = (min..=max).contains(&number).then_some(number)?;
        Some(())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for String {
    fn assign(&mut self, text: &str, kind: &Kind) -> Option<()> {
        let empty_path = *kind == Kind::Path && text.is_empty();
        (!empty_path && !text.contains(char::is_control)).then(|| *self = text.into())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

/// A file that need not be given; the empty text is none.
impl Value for Option<std::path::PathBuf> {
    fn assign(&mut self, text: &str, _: &Kind) -> Option<()> {
        (!text.contains(char::is_control)).then(|| *self = (!text.is_empty()).then(|| text.into()))
    }

    fn show(&self) -> String {
        self.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
    }
}

impl Value for Vec<String> {
    fn assign(&mut self, text: &str, kind: &Kind) -> Option<()> {
        let words = text.split([' ', ',']).filter(|word| !word.is_empty());
        let valid = |word: &&str| match kind {
            Kind::Addresses => listen_address(word).is_some(),
            _ => word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte)),
        };
        let words: Vec<_> =
            words.map(|w| valid(&w).then(|| w.to_string())).collect::<Option<_>>()?;
        *self = words;
        Some(())
    }

    fn show(&self) -> String {
        self.join(" ")
    }
}

/// A text that shows itself only to those who ask for it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    /// The text.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "" } else { "(hidden)" })
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Value for Secret {
    /// Any text, as in Redis: it is never shown where a control character could do harm.
    fn assign(&mut self, text: &str, _: &Kind) -> Option<()> {
        self.0 = text.into();
        Some(())
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

macro_rules! choices {
    ($($(#[$meta:meta])* $choice:ident = $default:ident { $($(#[doc = $doc:literal])* $variant:ident $name:literal),* })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $choice { $($(#[doc = $doc])* $variant),* }

        impl Default for $choice {
            fn default() -> Self {
                Self::$default
            }
        }

        named!($choice { $($variant $name),* });
    )*};
}

macro_rules! named {
    ($choice:ident { $($variant:ident $name:literal),* }) => {
        impl Named for $choice {
            const NAMES: &'static [&'static str] = &[$($name),*];
        }

        impl Value for $choice {
            fn assign(&mut self, text: &str, _: &Kind) -> Option<()> {
                *self = match text.to_ascii_lowercase().as_str() {
                    $($name => Self::$variant,)*
                    _ => return None,
                };
                Some(())
            }

            fn show(&self) -> String {
                match self { $(Self::$variant => $name),* }.into()
            }
        }
    };
}

/// The names of a choice, for [`Kind::Choice`].
pub(super) trait Named {
    /// In the order of the variants.
    const NAMES: &'static [&'static str];
}

choices! {
    /// How much is logged.
    LogLevel = Notice {
        /// Everything.
        Debug "debug",
        /// Much.
        Verbose "verbose",
        /// What an operator wants to know.
        Notice "notice",
        /// Only what needs attention.
        Warning "warning",
        /// Nothing.
        Nothing "nothing"
    }
    /// How lines of the log are written.
    LogFormat = Text {
        /// For people.
        Text "text",
        /// A JSON object a line.
        Json "json"
    }
    /// When writes are on the device.
    AppendFsync = EverySecond {
        /// Within a second.
        EverySecond "everysec",
        /// Before they are acknowledged.
        Always "always",
        /// When the operating system likes to.
        No "no"
    }
    /// Whether clients of TLS show a certificate.
    ClientCertificates = No {
        /// Nobody is asked.
        No "no",
        /// Who shows one must show a good one.
        Optional "optional",
        /// Everybody must.
        Yes "yes"
    }
    /// Who may use DEBUG.
    DebugCommand = No {
        /// Nobody.
        No "no",
        /// Connections from this machine.
        Local "local",
        /// Any user may run it.
        Yes "yes"
    }
    /// What a client is answered whose keys another node of the cluster owns.
    ClusterRedirect = Proxy {
        /// The reply: this node asks the other one.
        Proxy "proxy",
        /// Where to ask.
        Moved "moved"
    }
    /// How a store has its keys.
    ClusterPlacement = Slots {
        /// By Redis Cluster's slots.
        Slots "slots",
        /// In order.
        Range "range"
    }
    /// What bypasses the page cache.
    DirectIoUse = No {
        /// Nothing.
        No "no",
        /// Reads of SSTs.
        Reads "reads",
        /// Flush and compaction output.
        Writes "writes",
        /// Both.
        Yes "yes"
    }
}

named!(MemorySplit { Fixed "fixed", Auto "auto" });
named!(Learning { Build "build", Analyze "analyze", Off "off" });
named!(HotTableMode { Off "off", Auto "auto" });
named!(CompactionStyle { Leveled "leveled", Tiered "tiered" });

impl Value for Vec<Compression> {
    fn assign(&mut self, text: &str, _: &Kind) -> Option<()> {
        *self = by_level(text, |word| match word {
            "none" => Some(Compression::None),
            "lz4" => Some(Compression::Lz4),
            "zstd" => Some(Compression::Zstd),
            _ => None,
        })?;
        Some(())
    }

    fn show(&self) -> String {
        let name = |compression: &Compression| match compression {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        };
        self.iter().map(name).collect::<Vec<_>>().join(",")
    }
}

impl Value for Vec<FilterPolicy> {
    fn assign(&mut self, text: &str, _: &Kind) -> Option<()> {
        *self = by_level(text, |word| word.parse().ok())?;
        Some(())
    }

    fn show(&self) -> String {
        self.iter().map(FilterPolicy::to_string).collect::<Vec<_>>().join(",")
    }
}

/// At least one and at most 16 words separated by commas.
fn by_level<T>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let words = text.split(',').map(str::trim);
    let all: Vec<T> = words.take(17).map(parse).collect::<Option<_>>()?;
    (all.len() <= 16).then_some(all)
}

impl Value for OutputLimits {
    fn assign(&mut self, text: &str, _: &Kind) -> Option<()> {
        *self = self.changed_by(text)?;
        Some(())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}
