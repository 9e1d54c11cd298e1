//! Every option that text can say, by its name: where it lies, how it is said, and when it can change. What takes options
//! by name goes by these tables: an open store, the manifest, the bindings to other languages.

use super::text::{
    ByLevel, Durable, Filter, Flag, Number, Operator, Size, SizeOrNone, Text, Threshold, Word,
};
use super::{CfOptions, Options};
use crate::error::{Error, Result};

/// When an option can change.
#[derive(Debug, Clone, Copy)]
enum Change {
    /// While the store is open.
    Live,
    /// At an open.
    AtOpen,
    /// At an open, as part of the program: it is not stored.
    Code,
}

/// An option that a name and a text say.
struct Named<O> {
    name: &'static str,
    change: Change,
    get: fn(&O) -> String,
    set: fn(&mut O, &str) -> Result<()>,
}

macro_rules! table {
    ($of:ty: $($name:literal $change:ident $text:ty => $($field:ident).+;)+) => {
        &[$(Named::<$of> {
            name: $name,
            change: Change::$change,
            get: |options: &$of| <$text>::print(&options.$($field).+),
            set: |options: &mut $of, text: &str| {
                options.$($field).+ = <$text>::parse($name, text)?;
                Ok(())
            },
        }),+]
    };
}

const OF_STORE: &[Named<Options>] = table! {
    Options:
    "sync" Live Durable => sync;
    "memory_budget" Live Size => memory_budget;
    "memory_split" Live Word => advanced.memory_split;
    "rate_limit_bytes_per_s" Live Size => advanced.rate_limit_bytes_per_s;
    "gc_garbage_ratio" Live Number => advanced.gc_garbage_ratio;
    "hot_table" Live Word => advanced.hot_table;
    "log_retention_bytes" Live Size => advanced.log_retention_bytes;
    "max_open_files" Live Number => max_open_files;
    "background_jobs" Live Number => background_jobs;
    "l0_compaction_trigger" Live Number => advanced.l0_compaction_trigger;
    "l0_slowdown" Live Number => advanced.l0_slowdown;
    "l0_stop" Live Number => advanced.l0_stop;
    "level_base_bytes" Live Size => advanced.level_base_bytes;
    "level_multiplier" Live Number => advanced.level_multiplier;
    "target_file_bytes" Live Size => advanced.target_file_bytes;
    "max_subcompactions" Live Number => advanced.max_subcompactions;
    "compact_when_idle" Live Flag => advanced.compact_when_idle;
    "pending_compaction_slowdown_bytes" Live Size => advanced.pending_compaction_slowdown_bytes;
    "level_model_files" Live Number => advanced.level_model_files;
    "reserve_bytes" Live Size => advanced.reserve_bytes;
    "max_reader_pinned_bytes" Live SizeOrNone => advanced.max_reader_pinned_bytes;
    "create_if_missing" AtOpen Flag => create_if_missing;
    "stored_options" AtOpen Word => stored_options;
    "direct_reads" AtOpen Flag => direct_io.reads;
    "direct_writes" AtOpen Flag => direct_io.writes;
    "memtable_bytes" AtOpen Size => advanced.memtable_bytes;
    "block_size" AtOpen Size => advanced.block_size;
    "metadata_block_size" AtOpen Size => advanced.metadata_block_size;
    "segment_bytes" AtOpen Size => advanced.segment_bytes;
};

/// In the order in which the manifest has them.
const OF_FAMILY: &[Named<CfOptions>] = table! {
    CfOptions:
    "compression" Live ByLevel<Word> => compression;
    "filter" Live ByLevel<Filter> => filter;
    "prefix_len" Live SizeOrNone => prefix_len;
    "compaction" AtOpen Word => compaction;
    "value_separation_threshold" Live Threshold => value_separation_threshold;
    "value_compression" Live Word => value_compression;
    "learning" Live Word => learning;
    "merge_operator" Code Operator => merge_operator;
};

/// The names that [`Options::set_option`] takes: options of the store, and at the end [`FAMILY_OPTIONS`].
pub const OPTIONS: [&str; 37] = joined(names::<_, 29>(OF_STORE, Change::Code), FAMILY_OPTIONS);

/// The names that [`CfOptions::set_option`] takes.
pub const FAMILY_OPTIONS: [&str; 8] = names(OF_FAMILY, Change::Code);

/// The names that [`Db::set_option`](crate::Db::set_option) takes: options of the store, and at the end those of column
/// families.
pub const LIVE_OPTIONS: [&str; 27] =
    joined(names::<_, 21>(OF_STORE, Change::Live), LIVE_FAMILY_OPTIONS);

/// The names that [`ColumnFamily::set_option`](crate::ColumnFamily::set_option) takes. How SSTs are merged
/// ([`CfOptions::compaction`]) is decided at open: jobs that run count on it.
pub const LIVE_FAMILY_OPTIONS: [&str; 6] = names(OF_FAMILY, Change::Live);

/// The options that are stored with a column family, in this order.
pub(crate) const STORED: [&str; 7] = names(OF_FAMILY, Change::AtOpen);

/// The names of those among `all` that can change as `last` can, or more easily. Their number must be `N`.
const fn names<O, const N: usize>(all: &[Named<O>], last: Change) -> [&'static str; N] {
    let mut names = [""; N];
    let (mut at, mut count) = (0, 0);
    while at < all.len() {
        if all[at].change as u8 <= last as u8 {
            names[count] = all[at].name;
            count += 1;
        }
        at += 1;
    }
    assert!(count == N);
    names
}

const fn joined<const A: usize, const B: usize, const N: usize>(
    first: [&'static str; A],
    then: [&'static str; B],
) -> [&'static str; N] {
    let mut names = [""; N];
    let mut at = 0;
    while at < A + B {
        names[at] = if at < A { first[at] } else { then[at - A] };
        at += 1;
    }
    assert!(at == N);
    names
}

fn find<O>(all: &'static [Named<O>], name: &str) -> Option<&'static Named<O>> {
    all.iter().find(|option| option.name == name)
}

impl Options {
    /// Sets the option `name`, one of [`OPTIONS`], of the store or of its default column family, to what `text` says.
    ///
    /// Sizes are bytes, or have a unit: `64MiB`. `sync` is `none`, `batch`, `buffered` or `interval:` with milliseconds,
    /// `memory_split` is `fixed` or `auto`, `hot_table` is `off` or `auto`, `stored_options` is `keep` or `replace`, and
    /// `max_reader_pinned_bytes` may be `none`. `direct_reads` and `direct_writes` are parts of
    /// [`direct_io`](Options::direct_io), `true` or `false` as others that are not numbers.
    ///
    /// ```
    /// let mut options = terrace::Options::default();
    /// options.set_option("memory_budget", "64MiB")?;
    /// options.set_option("filter", "ribbon:10")?;
    /// assert_eq!(options.memory_budget, 64 << 20);
    /// # Ok::<(), terrace::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument`: another name, or text that is none of what the option can be. What is out of range is refused
    /// by the open.
    pub fn set_option(&mut self, name: &str, text: &str) -> Result<()> {
        match (find(OF_STORE, name), find(OF_FAMILY, name)) {
            (Some(option), _) => (option.set)(self, text),
            (None, Some(option)) => (option.set)(&mut self.default_family, text),
            (None, None) => {
                let all = OPTIONS.join(", ");
                Err(Error::InvalidArgument(format!("there is no option `{name}`, but {all}")))
            }
        }
    }

    /// What one of [`OPTIONS`] is, as [`Options::set_option`] takes it, with plain numbers; `None` for other names.
    pub fn option(&self, name: &str) -> Option<String> {
        match find(OF_STORE, name) {
            Some(option) => Some((option.get)(self)),
            None => self.default_family.option(name),
        }
    }
}

impl CfOptions {
    /// Sets the option `name`, one of [`FAMILY_OPTIONS`], to what `text` says. `compression` and `filter` are lists with
    /// commas, by level, of which the last entry serves all deeper levels; `prefix_len` and `value_separation_threshold` are
    /// numbers or `none`; `compaction` is `leveled` or `tiered`, `learning` is `build`, `analyze` or `off`, and
    /// `merge_operator` the name of a [built-in one](crate::builtin_merge_operator) or `none`.
    ///
    /// # Errors
    /// As [`Options::set_option`].
    pub fn set_option(&mut self, name: &str, text: &str) -> Result<()> {
        let Some(option) = find(OF_FAMILY, name) else {
            let all = FAMILY_OPTIONS.join(", ");
            let text = format!("there is no option `{name}` of column families, but {all}");
            return Err(Error::InvalidArgument(text));
        };
        (option.set)(self, text)
    }

    /// What one of [`FAMILY_OPTIONS`] is, as [`CfOptions::set_option`] takes it, with plain numbers; of a merge operator its
    /// name. `None` for other names.
    pub fn option(&self, name: &str) -> Option<String> {
        find(OF_FAMILY, name).map(|option| (option.get)(self))
    }
}

#[cfg(test)]
mod tests;
