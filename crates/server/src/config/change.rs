//! Changes while the server runs: CONFIG SET and REWRITE, and the file read again at SIGHUP.
//!
//! All three hold the lock of the origins, so that they come one after the other; readers of
//! settings never wait. A change is carried out by the server through a function that is called
//! before it becomes visible and can still refuse it.

use super::error::ConfigError;
use super::names::{all_options, required};
use super::table::{OptionSpec, Settings, When};
use super::user_rules::UserChange;
use super::{Config, Source, file};
use std::sync::Arc;

/// What reading the file again has done.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reload {
    /// Options with another value than before; `user` if the list of users is another.
    pub changed: Vec<&'static str>,
    /// Options that the file gives another value, which they get at the next start only.
    pub refused: Vec<&'static str>,
    /// Options whose entry has changed without effect: a flag or the environment wins.
    pub overridden: Vec<&'static str>,
}

impl Config {
    /// CONFIG SET: all of `pairs`, or none. `carry_out` is given the settings before and after and
    /// the names that change; its error refuses the whole change. Returns the names.
    ///
    /// # Errors
    /// [`ConfigError::reply`] is the answer for the client.
    pub fn set(
        &self,
        pairs: &[(&str, &str)],
        carry_out: impl FnOnce(&Settings, &Settings, &[&'static str]) -> Result<(), String>,
    ) -> Result<Vec<&'static str>, ConfigError> {
        let mut origins = self.origins.lock();
        let before = self.current.load_full();
        let mut after = Settings::clone(&before);
        let mut given: Vec<&'static OptionSpec> = Vec::new();
        for (name, text) in pairs {
            let option = required(name)?;
            if option.when == When::Start {
                // What it is already may be asked for.
                let mut asked = Settings::clone(&before);
                match option.assign(&mut asked, text).is_ok() && option.same(&before, &asked) {
                    true => continue,
                    false => return Err(ConfigError::NotLive { name: option.name }),
                }
            }
            if given.iter().any(|earlier| earlier.name == option.name) {
                return Err(ConfigError::Duplicate { name: option.name });
            }
            option.assign(&mut after, text)?;
            given.push(option);
        }
        let again = given.iter().filter(|option| option.names_file()).map(|option| option.name);
        let changed = self.take_over(&before, after, again.collect(), carry_out);
        let changed = changed.map_err(|error| error.about(given.iter().map(|one| one.name)))?;
        origins.sources.extend(given.iter().map(|option| (option.name, Source::Set)));
        Ok(changed)
    }

    /// Checks `after`, has it carried out and makes it visible; `again` is carried out also if it is as before. The lock of
    /// the origins is held.
    fn take_over(
        &self,
        before: &Settings,
        after: Settings,
        again: Vec<&'static str>,
        carry_out: impl FnOnce(&Settings, &Settings, &[&'static str]) -> Result<(), String>,
    ) -> Result<Vec<&'static str>, ConfigError> {
        after.check()?;
        let is_new =
            |option: &&OptionSpec| again.contains(&option.name) || !option.same(before, &after);
        let differs = all_options().filter(is_new);
        let mut changed: Vec<_> = differs.map(|option| option.name).collect();
        if before.users != after.users {
            changed.push("user");
        }
        let Some(name) = changed.first() else { return Ok(changed) };
        carry_out(before, &after, &changed).map_err(|why| ConfigError::Failed { name, why })?;
        self.current.store(Arc::new(after));
        Ok(changed)
    }

    /// CONFIG REWRITE: what CONFIG SET has changed since the start goes into the file. Values that
    /// flags or the environment gave stay out of it. The file is read anew before, so that what
    /// somebody wrote into it meanwhile is kept; only the file of the start is ever written. `changed_users` are those
    /// that are not as the settings that it is given say; one without rules goes.
    ///
    /// # Errors
    /// [`ConfigError::NoFile`]; [`ConfigError::File`] if it cannot be read, understood or replaced, or a user cannot
    /// be written as text.
    pub fn rewrite(
        &self,
        changed_users: impl FnOnce(&Settings) -> Result<Vec<UserChange>, String>,
    ) -> Result<(), ConfigError> {
        let path = self.file.as_deref().ok_or(ConfigError::NoFile)?;
        let mut origins = self.origins.lock();
        let refused = |what| ConfigError::File { path: path.to_path_buf(), what };
        let users = changed_users(&self.current.load()).map_err(refused)?;
        let set = origins.sources.iter().filter(|(_, source)| **source == Source::Set);
        let names: Vec<_> = set.map(|(name, _)| *name).collect();
        let settings = self.current.load();
        let mut after = Settings::clone(&settings);
        users.iter().for_each(|change| change.apply(&mut after.users));
        // A file that the next start refuses is not written.
        after.check()?;
        let written = file::rewrite(path, &settings, &names, &users)?;
        for name in &names {
            if let Some(text) = written.texts.get(name) {
                origins.in_file.texts.insert(name, text.clone());
            }
        }
        if !users.is_empty() {
            // What the next change is compared with.
            origins.in_file.users.clone_from(&after.users);
            self.current.store(Arc::new(after));
        }
        Ok(())
    }

    /// SIGHUP: what has changed in the file since it was last read takes effect, as far as it is
    /// live. What CONFIG SET gave an option whose entry has not changed stays.
    ///
    /// # Errors
    /// Nothing has changed: the file has an error, or `carry_out` refused.
    pub fn reload(
        &self,
        carry_out: impl FnOnce(&Settings, &Settings, &[&'static str]) -> Result<(), String>,
    ) -> Result<Reload, ConfigError> {
        let path = self.file.as_deref().ok_or(ConfigError::NoFile)?;
        let mut origins = self.origins.lock();
        let mut read = file::read(path)?;
        // Every entry is checked, also those without effect now.
        let mut by_file = Settings::default();
        for (name, text) in &read.texts {
            required(name)?.assign(&mut by_file, text)?;
        }
        let before = self.current.load_full();
        let mut after = Settings::clone(&before);
        after.users.clone_from(&read.users);
        let mut reload = Reload::default();
        let mut from_file = Vec::new();
        for option in all_options() {
            let (old, new) = (origins.in_file.texts.get(option.name), read.texts.get(option.name));
            if old == new {
                continue;
            }
            let source = origins.sources.get(option.name).copied().unwrap_or(Source::Default);
            if matches!(source, Source::Flag | Source::Environment) {
                reload.overridden.push(option.name);
            } else if option.when == When::Live || option.same(&before, &by_file) {
                option.copy(&mut after, &by_file);
                from_file.push((option.name, new.is_some()));
            } else {
                reload.refused.push(option.name);
                // It differs from what runs: the next reload says so again.
                match old.cloned() {
                    Some(old) => read.texts.insert(option.name, old),
                    None => read.texts.remove(option.name),
                };
            }
        }
        reload.changed = self.take_over(&before, after, Vec::new(), carry_out)?;
        for (name, is_there) in from_file {
            match is_there {
                true => origins.sources.insert(name, Source::File),
                false => origins.sources.remove(name),
            };
        }
        origins.in_file = read;
        Ok(reload)
    }
}
