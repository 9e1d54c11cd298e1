//! What can be configured: one table of options ([`OPTIONS`]), from which come the file, the
//! command line, the environment, CONFIG and the documentation.
//!
//! ```text
//! flags  --http-port 8080          wins over
//! environment  TERRACE_HTTP_PORT   wins over
//! terrace.toml  http-port = 8080   wins over
//! default
//! ```
//! CONFIG SET changes what is live until the next start; CONFIG REWRITE keeps it in the file. Values
//! are text everywhere, spelled as in `redis.conf` (`512mb`, `yes`, `everysec`); [`Settings`] is what
//! they mean. Readers take a whole [`Settings`] at once and never see half of a change.
//!
//! Used by the server's start, by CONFIG, by the HTTP page and by the command line.

mod addresses;
mod change;
mod document;
mod engine;
mod error;
mod file;
mod load;
mod names;
mod output_limits;
mod table;
#[cfg(test)]
mod tests;
mod units;
mod user_rules;
mod value;
mod without_effect;

pub use addresses::listen_address;
pub use change::Reload;
pub use document::documentation;
pub use error::ConfigError;
pub use names::{all_options, option};
pub use output_limits::{OutputLimit, OutputLimits};
pub use table::{OPTIONS, OptionSpec, Settings, When};
pub use user_rules::{UserChange, UserRules};
pub use value::{
    AppendFsync, ClientCertificates, ClusterPlacement, ClusterRedirect, DebugCommand, DirectIoUse,
    Kind, LogFormat, LogLevel, Secret,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use without_effect::HIDDEN;

/// Where the value of an option comes from; later ones win.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The table.
    Default,
    /// `terrace.toml`.
    File,
    /// `TERRACE_<NAME>`.
    Environment,
    /// `--name value`.
    Flag,
    /// CONFIG SET, since the start.
    Set,
}

/// The settings of a running server and where they come from. Reading takes no lock.
#[derive(Debug)]
pub struct Config {
    current: ArcSwap<Settings>,
    /// Absolute; a link is followed each time it is read or written.
    file: Option<PathBuf>,
    /// Held while settings change, so that changes come one after the other.
    origins: Mutex<Origins>,
    warnings: Vec<String>,
}

/// Where values come from.
#[derive(Debug, Default)]
struct Origins {
    /// By name; an option that is not here has its default.
    sources: BTreeMap<&'static str, Source>,
    /// What the file said when it was last read.
    in_file: file::FileContents,
}

impl Config {
    /// All settings, as of now.
    pub fn settings(&self) -> Arc<Settings> {
        self.current.load_full()
    }

    /// The file that was given at the start.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// What should be said at the start: variables that look like a misspelt option, options without effect.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Where the value of the option `name` comes from.
    pub fn source(&self, name: &str) -> Option<Source> {
        let name = option(name)?.name;
        Some(self.origins.lock().sources.get(name).copied().unwrap_or(Source::Default))
    }

    /// CONFIG GET: names and values of all options that match one of `patterns` (globs, any case),
    /// each once, by name; a few only where they are named. Secrets are included, as in Redis: the command is for
    /// administrators.
    pub fn get(&self, patterns: &[&[u8]]) -> Vec<(&'static str, String)> {
        let patterns: Vec<_> = patterns.iter().map(|p| p.to_ascii_lowercase()).collect();
        let wanted = |name: &str| {
            let is_hidden = HIDDEN.contains(&name);
            patterns.iter().any(|pattern| match is_hidden {
                true => pattern == name.as_bytes(),
                false => crate::glob::matches(pattern, name.as_bytes()),
            })
        };
        let settings = self.current.load();
        let mut found = BTreeMap::new();
        for option in all_options() {
            for name in option.names().filter(|name| wanted(name)) {
                found.insert(name, option.show(&settings));
            }
        }
        found.into_iter().collect()
    }

    /// Every option that has an effect, with its value, secrets hidden: for pages and logs.
    pub fn dump(&self) -> Vec<(&'static str, String)> {
        let settings = self.current.load();
        let show = |option: &OptionSpec| match option.is_secret() {
            true => Secret::from(option.show(&settings)).to_string(),
            false => option.show(&settings),
        };
        OPTIONS.iter().map(|option| (option.name, show(option))).collect()
    }
}
