//! The start: default, file, environment and flags become one [`Config`].

use super::error::{ConfigError, nearest};
use super::file::{self, FileContents};
use super::names::{all_options, required};
use super::table::{OPTIONS, Settings};
use super::without_effect::WITHOUT_EFFECT;
use super::{Config, Origins, Source};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;

/// What names of variables start with.
const VARIABLE_PREFIX: &str = "TERRACE_";

impl Config {
    /// Settles every option: `flags` over `environment` over `file` over defaults.
    ///
    /// `flags` are names (with or without `--`) and values, of which the last of one name wins, as
    /// scripts expect. Variables that are no option are passed over, as other programs may own
    /// them; [`Self::warnings`] has those that look like a slip.
    ///
    /// # Errors
    /// The first unknown name, refused value or combination, with what it should be.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let (file, in_file) = match file {
            None => (None, FileContents::default()),
            Some(path) => {
                let in_file = file::read(path)?;
                // Of a link, not where it leads: when the file is read again, it may lead elsewhere.
                let absolute = std::path::absolute(path).map_err(|error| ConfigError::File {
                    path: path.to_path_buf(),
                    what: error.to_string(),
                })?;
                (Some(absolute), in_file)
            }
        };
        let (variables, mut warnings) = variables(environment);
        let mut settings = Settings::default();
        let mut sources = BTreeMap::new();
        for (name, text) in &in_file.texts {
            required(name)?.assign(&mut settings, text)?;
            sources.insert(*name, Source::File);
        }
        for (name, text) in &variables {
            required(name)?.assign(&mut settings, text)?;
            sources.insert(*name, Source::Environment);
        }
        for (name, text) in flags {
            let option = required(name.strip_prefix("--").unwrap_or(&name))?;
            option.assign(&mut settings, &text)?;
            sources.insert(option.name, Source::Flag);
        }
        settings.users.clone_from(&in_file.users);
        settings.check()?;
        let idle = WITHOUT_EFFECT.iter().map(|option| option.name);
        let idle: Vec<_> = idle.filter(|name| sources.contains_key(name)).collect();
        if !idle.is_empty() {
            warnings.push(format!("accepted without effect: {}", idle.join(", ")));
        }
        Ok(Self {
            current: ArcSwap::from_pointee(settings),
            file,
            origins: Mutex::new(Origins { sources, in_file }),
            warnings,
        })
    }
}

impl Default for Config {
    /// Every option with its default.
    fn default() -> Self {
        Self {
            current: ArcSwap::from_pointee(Settings::default()),
            file: None,
            origins: Mutex::new(Origins::default()),
            warnings: Vec::new(),
        }
    }
}

/// The options among variables, by name, and what looks like one.
fn variables(
    environment: impl IntoIterator<Item = (String, String)>,
) -> (Vec<(&'static str, String)>, Vec<String>) {
    let known: BTreeMap<String, &'static str> =
        all_options().map(|option| (option.variable(), option.name)).collect();
    let (mut found, mut warnings) = (Vec::new(), Vec::new());
    for (variable, text) in environment {
        if !variable.starts_with(VARIABLE_PREFIX) {
            continue;
        }
        if let Some(name) = known.get(&variable) {
            found.push((*name, text));
        } else if let Some(meant) =
            nearest(&variable[VARIABLE_PREFIX.len()..], OPTIONS.iter().map(|option| option.name))
        {
            warnings.push(format!("{variable} is no option; did you mean the one for `{meant}`?"));
        }
    }
    (found, warnings)
}
