//! Who may do what: users with passwords, commands and keys, by Redis's rules and in its words.
//!
//! ```text
//! rules "on >secret ~user:* +@read"  ->  User (bits per command, patterns)  ->  may it? per command
//! ```
//! A [`User`] never changes; a change makes another one and raises [`Acl::generation`]. A connection
//! keeps its user and the generation it saw, and asks again when they differ ([`Acl::refresh`]), so
//! that a command costs one comparison and one bit, and no lock.
//!
//! Passwords are kept as SHA-256 and compared in constant time. Selectors of Redis 7 (`(…)`) are
//! refused rather than misunderstood.

mod catalog;
pub mod category;
mod command_rule;
mod error;
mod log;
mod password;
mod rule;
#[cfg(test)]
mod tests;
mod user;

pub use catalog::Catalog;
pub use category::Categories;
pub use error::{AclError, Denial};
pub use log::{AclLog, LogEntry, Reason};
pub use password::{PasswordHash, generate};
pub use user::{Access, DEFAULT_USER, User};

use crate::bounded_file;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rules of a user, each a word of `ACL SETUSER`.
pub type Rules = Vec<Vec<u8>>;

type Users = BTreeMap<String, Arc<User>>;

/// All users. Every method may be called from every thread.
#[derive(Debug)]
pub struct Acl {
    catalog: Catalog,
    users: ArcSwap<Users>,
    generation: AtomicU64,
    /// Held while users change.
    changing: Mutex<()>,
    log: Mutex<AclLog>,
}

impl Acl {
    /// The default user, who needs no password and may do everything.
    pub fn new(catalog: Catalog) -> Self {
        let default = Arc::new(User::everybody(&catalog));
        let users = BTreeMap::from([(DEFAULT_USER.to_string(), default)]);
        Self {
            catalog,
            users: ArcSwap::from_pointee(users),
            generation: AtomicU64::new(0),
            changing: Mutex::new(()),
            log: Mutex::new(AclLog::default()),
        }
    }

    /// The commands that rules can name.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The user of this name.
    pub fn user(&self, name: &[u8]) -> Option<Arc<User>> {
        self.users.load().get(std::str::from_utf8(name).ok()?).cloned()
    }

    /// The default user, if a connection starts as that without a password.
    pub fn default_login(&self) -> Option<Arc<User>> {
        self.user(DEFAULT_USER.as_bytes()).filter(|user| user.is_on && user.needs_no_password)
    }

    /// AUTH. Takes the same time whether there is such a user or not.
    ///
    /// # Errors
    /// [`AclError::WrongPassword`].
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Result<Arc<User>, AclError> {
        let password = PasswordHash::of(password);
        let user =
            self.user(name).unwrap_or_else(|| Arc::new(User::nobody("", &Catalog::default())));
        match user.knows(password) & user.is_on {
            true => Ok(user),
            false => Err(AclError::WrongPassword),
        }
    }

    /// Grows when users change.
    #[inline]
    pub fn generation(&self) -> u64 {
        // Acquire: who sees the number sees the users that it stands for.
        self.generation.load(Ordering::Acquire)
    }

    /// Brings a connection's user up to date. `false`: the user is gone or off, and so must the
    /// connection be. Cost while nothing changes: one comparison.
    #[inline]
    pub fn refresh(&self, user: &mut Arc<User>, generation: &mut u64) -> bool {
        let now = self.generation();
        now == *generation || self.refresh_changed(user, generation, now)
    }

    #[cold]
    fn refresh_changed(&self, user: &mut Arc<User>, generation: &mut u64, now: u64) -> bool {
        let Some(current) = self.user(user.name.as_bytes()).filter(|current| current.is_on) else {
            return false;
        };
        (*user, *generation) = (current, now);
        true
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&mut Users, &Catalog) -> Result<T, AclError>,
    ) -> Result<T, AclError> {
        let _changing = self.changing.lock();
        let mut users = Users::clone(&self.users.load());
        let done = change(&mut users, &self.catalog)?;
        self.users.store(Arc::new(users));
        self.generation.fetch_add(1, Ordering::Release);
        Ok(done)
    }

    /// ACL SETUSER: all rules, or none. A user who is not there yet starts as one who is off and may
    /// do nothing.
    ///
    /// # Errors
    /// The first rule that cannot be applied, or a bad name.
    pub fn set_user(&self, name: &[u8], rules: &[impl AsRef<[u8]>]) -> Result<(), AclError> {
        self.change(|users, catalog| {
            let user = with_rules(users, name, rules, catalog)?;
            users.insert(user.name.clone(), Arc::new(user));
            Ok(())
        })
    }

    /// ACL DELUSER: how many of `names` there were. Connections of theirs must be closed.
    ///
    /// # Errors
    /// [`AclError::DefaultStays`]; then nobody is removed.
    pub fn delete_users(&self, names: &[impl AsRef<[u8]>]) -> Result<usize, AclError> {
        self.change(|users, _| {
            if names.iter().any(|name| name.as_ref() == DEFAULT_USER.as_bytes()) {
                return Err(AclError::DefaultStays);
            }
            let names = names.iter().filter_map(|name| std::str::from_utf8(name.as_ref()).ok());
            Ok(names.filter(|name| users.remove(*name).is_some()).count())
        })
    }

    /// `requirepass`: the only password of the default user; the empty one asks for none.
    pub fn require_password(&self, password: &str) {
        let rule = match password {
            "" => b"nopass".to_vec(),
            _ => [b">", password.as_bytes()].concat(),
        };
        let set = self.set_user(DEFAULT_USER.as_bytes(), &[b"resetpass".to_vec(), rule]);
        debug_assert!(set.is_ok());
    }

    /// The users of a configuration in the place of all, in one step: nobody gets in between the old
    /// and the new ones. `password` is that of the default user, see [`Self::require_password`];
    /// `users` are names and rules, and may be about the default user too.
    ///
    /// # Errors
    /// The first name or rule that is wrong; then nothing has changed.
    pub fn configure<'a>(
        &self,
        password: &str,
        users: impl IntoIterator<Item = (&'a str, &'a [String])>,
    ) -> Result<(), AclError> {
        self.change(|all, catalog| {
            *all = configured(password, users, catalog)?;
            Ok(())
        })
    }

    /// Whether [`Self::configure`] takes these users. Changes nothing.
    ///
    /// # Errors
    /// Its own.
    pub fn check_configuration<'a>(
        &self,
        password: &str,
        users: impl IntoIterator<Item = (&'a str, &'a [String])>,
    ) -> Result<(), AclError> {
        configured(password, users, &self.catalog).map(drop)
    }

    /// The users that are not as [`Self::configure`] would make them: their names, with the rules that make them so, or
    /// without any if they are to be left out of the configuration.
    ///
    /// # Errors
    /// As [`Self::configure`].
    pub fn changed_since<'a>(
        &self,
        password: &str,
        users: impl IntoIterator<Item = (&'a str, &'a [String])>,
    ) -> Result<Vec<(String, Option<Rules>)>, AclError> {
        let before = configured(password, users, &self.catalog)?;
        let without_any = configured(password, [], &self.catalog)?;
        let after = self.users.load();
        let line = |users: &Users, name: &str| Some(users.get(name)?.line(&self.catalog));
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let changed = names.into_iter().filter_map(|name| {
            let line_after = line(&after, name);
            if line_after == line(&before, name) {
                return None;
            }
            let is_as_without = line_after == line(&without_any, name);
            let rules = line_after.filter(|_| !is_as_without).map(|line| {
                // Others start with nothing anyway.
                let start = (name == DEFAULT_USER).then(|| b"reset".to_vec());
                let words = line.split(|byte| *byte == b' ').skip(2).map(<[u8]>::to_vec);
                start.into_iter().chain(words).collect()
            });
            Some((name.clone(), rules))
        });
        Ok(changed.collect())
    }

    /// ACL USERS: all names.
    pub fn names(&self) -> Vec<String> {
        self.users.load().keys().cloned().collect()
    }

    /// ACL LIST: a line for every user, passwords as hashes.
    pub fn list(&self) -> Vec<Vec<u8>> {
        self.users.load().values().map(|user| user.line(&self.catalog)).collect()
    }

    /// ACL CAT: the names of commands in a category.
    ///
    /// # Errors
    /// [`AclError::UnknownCategory`].
    pub fn commands_in(&self, category: &str) -> Result<Vec<String>, AclError> {
        let unknown = || AclError::UnknownCategory(category.chars().take(128).collect());
        let category = Categories::named(category).ok_or_else(unknown)?;
        Ok(self.catalog.names_in(category).collect())
    }

    /// All users as text, a line each: what [`Self::load`] reads.
    pub fn text(&self) -> Vec<u8> {
        self.list().into_iter().flat_map(|line| [line, b"\n".to_vec()].concat()).collect()
    }

    /// ACL LOAD: the users of `text`, in the place of all. Empty lines and those that start with `#`
    /// are passed over. A default user that is not there is as without configuration.
    ///
    /// # Errors
    /// The first line that is wrong; then nothing has changed.
    pub fn load(&self, text: &[u8]) -> Result<(), AclError> {
        self.change(|users, catalog| {
            let mut loaded = Users::new();
            for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
                let wrong = |why: String| AclError::Line { line: at + 1, why };
                let words = line.split(|byte| rule::is_blank(*byte));
                let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
                let (name, rules) = match words.as_slice() {
                    [] => continue,
                    [first, ..] if first.starts_with(b"#") => continue,
                    [b"user", name, rules @ ..] => (*name, rules),
                    _ => return Err(wrong("it should start with `user <name>`".into())),
                };
                let user = with_rules(&Users::new(), name, rules, catalog)
                    .map_err(|error| wrong(error.to_string()))?;
                if loaded.insert(user.name.clone(), Arc::new(user)).is_some() {
                    return Err(wrong("the user is there already".into()));
                }
            }
            loaded
                .entry(DEFAULT_USER.to_string())
                .or_insert_with(|| Arc::new(User::everybody(catalog)));
            *users = loaded;
            Ok(())
        })
    }

    /// [`Self::load`] of a file; its path is the server's own, never a client's.
    ///
    /// # Errors
    /// As [`Self::load`], and those of the device.
    pub fn load_file(&self, path: &Path) -> Result<(), AclError> {
        let text = bounded_file::read(path, bounded_file::MAX_MIB)
            .map_err(|error| AclError::System(format!("the file of users: {error}")))?;
        self.load(&text)
    }

    /// ACL SAVE: replaces the file at once or not at all; only its owner can read a new one.
    ///
    /// # Errors
    /// Those of the device.
    pub fn save_file(&self, path: &Path) -> Result<(), AclError> {
        crate::replace_file::replace(path, &self.text())
            .map_err(|error| AclError::System(error.to_string()))
    }

    /// The log of refusals.
    pub fn log(&self) -> &Mutex<AclLog> {
        &self.log
    }
}

/// The users of a configuration, see [`Acl::configure`].
fn configured<'a>(
    password: &str,
    users: impl IntoIterator<Item = (&'a str, &'a [String])>,
    catalog: &Catalog,
) -> Result<Users, AclError> {
    let mut default = User::everybody(catalog);
    if !password.is_empty() {
        default.apply(&[b">", password.as_bytes()].concat(), catalog)?;
    }
    let mut configured = Users::from([(DEFAULT_USER.to_string(), Arc::new(default))]);
    for (name, rules) in users {
        let of_user = |error: AclError| AclError::Configured {
            name: name.to_string(),
            why: error.to_string(),
        };
        let user = with_rules(&configured, name.as_bytes(), rules, catalog).map_err(of_user)?;
        configured.insert(user.name.clone(), Arc::new(user));
    }
    Ok(configured)
}

/// A user with rules added; one who is not there yet starts with nothing.
fn with_rules(
    users: &Users,
    name: &[u8],
    rules: &[impl AsRef<[u8]>],
    catalog: &Catalog,
) -> Result<User, AclError> {
    if name.iter().any(|byte| rule::is_blank(*byte)) {
        return Err(AclError::BadName);
    }
    let is_text = |name: &&str| !name.is_empty() && !name.bytes().any(|it| it.is_ascii_control());
    let name = std::str::from_utf8(name).ok().filter(is_text).ok_or(AclError::NameIsNoText)?;
    let mut user = match users.get(name) {
        Some(user) => User::clone(user),
        None => User::nobody(name, catalog),
    };
    for rule in rules {
        user.apply(rule.as_ref(), catalog)?;
    }
    user.compile(catalog);
    Ok(user)
}
