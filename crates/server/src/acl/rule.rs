//! The language of rules, `on >secret ~user:* +@read -keys`: applied to a user, and written back.

use super::catalog::Catalog;
use super::category::Categories;
use super::command_rule::{CommandRule, Target};
use super::error::AclError;
use super::password::PasswordHash;
use super::user::{Access, KeyPattern, User};

const SYNTAX: &str = "Syntax error";
const UNKNOWN: &str = "Unknown command or category name in ACL";
const NO_PASSWORD: &str = "The password you are trying to remove from the user does not exist";
const NO_HASH: &str = "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters";
const AFTER_ALL_KEYS: &str = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not \
    valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns";
const AFTER_ALL_CHANNELS: &str = "Adding a pattern after the * pattern (or the 'allchannels' flag) \
    is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of \
    channels";
const NO_THIRD: &str = "Allowing first-arg of a subcommand is not supported";
const SELECTORS: &str = "Selectors are not supported";

impl User {
    /// Applies one rule. [`User::compile`] must follow the last one.
    pub(super) fn apply(&mut self, rule: &[u8], catalog: &Catalog) -> Result<(), AclError> {
        self.try_rule(rule, catalog).map_err(|why| AclError::Rule { rule: shown(rule), why })
    }

    fn try_rule(&mut self, rule: &[u8], catalog: &Catalog) -> Result<(), &'static str> {
        // An empty one says nothing, as in Redis.
        if rule.is_empty() || self.apply_word(rule, catalog) {
            return Ok(());
        }
        match rule {
            [b'>', password @ ..] => self.add_password(PasswordHash::of(password)),
            [b'<', password @ ..] => return self.remove_password(PasswordHash::of(password)),
            [b'#', hash @ ..] => self.add_password(PasswordHash::from_hex(hash).ok_or(NO_HASH)?),
            [b'!', hash @ ..] => {
                return self.remove_password(PasswordHash::from_hex(hash).ok_or(NO_HASH)?);
            }
            b"~*" => self.set_all_keys(true),
            [b'~', glob @ ..] => return self.add_keys(Access::READ_WRITE, glob),
            [b'%', rest @ ..] => return self.add_keys_for(rest),
            [b'&', glob @ ..] => return self.add_channels(glob),
            [sign @ (b'+' | b'-'), what @ ..] => {
                let what = std::str::from_utf8(what).map_err(|_| UNKNOWN)?;
                return self.add_command_rule(*sign == b'+', what, catalog);
            }
            [b'(', ..] => return Err(SELECTORS),
            _ => return Err(SYNTAX),
        }
        Ok(())
    }

    /// Applies a rule that is one word; `false` if it is none of them.
    fn apply_word(&mut self, rule: &[u8], catalog: &Catalog) -> bool {
        match rule.to_ascii_lowercase().as_slice() {
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"nopass" => {
                self.needs_no_password = true;
                self.passwords.clear();
            }
            b"resetpass" => {
                self.needs_no_password = false;
                self.passwords.clear();
            }
            b"allkeys" => self.set_all_keys(true),
            b"resetkeys" => self.set_all_keys(false),
            b"allchannels" => self.set_all_channels(true),
            b"resetchannels" => self.set_all_channels(false),
            b"allcommands" | b"+@all" => self.set_all_commands(true),
            b"nocommands" | b"-@all" => self.set_all_commands(false),
            b"reset" => *self = Self::nobody(&self.name, catalog),
            // Redis's own: there are no payloads to sanitize and no selectors to clear.
            b"sanitize-payload" => self.sanitizes = Some(true),
            b"skip-sanitize-payload" => self.sanitizes = Some(false),
            b"clearselectors" => {}
            _ => return false,
        }
        true
    }

    fn set_all_keys(&mut self, all: bool) {
        self.all_keys = all;
        self.keys.clear();
    }

    fn set_all_channels(&mut self, all: bool) {
        self.all_channels = all;
        self.channels.clear();
    }

    fn set_all_commands(&mut self, all: bool) {
        self.all_commands = all;
        self.rules.clear();
    }

    fn add_password(&mut self, password: PasswordHash) {
        self.needs_no_password = false;
        if !self.passwords.contains(&password) {
            self.passwords.push(password);
        }
    }

    fn remove_password(&mut self, password: PasswordHash) -> Result<(), &'static str> {
        let at = self.passwords.iter().position(|own| *own == password).ok_or(NO_PASSWORD)?;
        self.passwords.remove(at);
        Ok(())
    }

    /// `%R~glob`, `%W~glob`, `%RW~glob`.
    fn add_keys_for(&mut self, rest: &[u8]) -> Result<(), &'static str> {
        let tilde = rest.iter().position(|byte| *byte == b'~').ok_or(SYNTAX)?;
        let access = match rest[..tilde].to_ascii_uppercase().as_slice() {
            b"R" => Access::READ,
            b"W" => Access::WRITE,
            b"RW" | b"WR" => Access::READ_WRITE,
            _ => return Err(SYNTAX),
        };
        self.add_keys(access, &rest[tilde + 1..])
    }

    fn add_keys(&mut self, access: Access, glob: &[u8]) -> Result<(), &'static str> {
        if glob.iter().any(|byte| is_blank(*byte)) {
            return Err(SYNTAX);
        }
        if self.all_keys {
            return Err(AFTER_ALL_KEYS);
        }
        match self.keys.iter_mut().find(|pattern| pattern.glob == glob) {
            Some(pattern) if pattern.access != access => pattern.access = Access::READ_WRITE,
            Some(_) => {}
            None => self.keys.push(KeyPattern { access, glob: glob.to_vec() }),
        }
        Ok(())
    }

    fn add_channels(&mut self, glob: &[u8]) -> Result<(), &'static str> {
        if glob.iter().any(|byte| is_blank(*byte)) {
            return Err(SYNTAX);
        }
        if glob == b"*" {
            self.set_all_channels(true);
        } else if self.all_channels {
            return Err(AFTER_ALL_CHANNELS);
        } else if !self.channels.iter().any(|known| known == glob) {
            self.channels.push(glob.to_vec());
        }
        Ok(())
    }

    fn add_command_rule(
        &mut self,
        allow: bool,
        what: &str,
        catalog: &Catalog,
    ) -> Result<(), &'static str> {
        let target = target(what, allow, catalog)?;
        // An earlier rule has no effect any more if all that it is about is decided anew.
        self.rules.retain(|rule| !catalog.includes(&target, &rule.target));
        self.rules.push(CommandRule { allow, target });
        // Nor has one at the front that repeats what holds for all anyway.
        let base = self.all_commands;
        let idle = self.rules.iter().take_while(|rule| rule.allow == base).count();
        self.rules.drain(..idle);
        Ok(())
    }

    /// Its flags, as ACL GETUSER lists them.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        flags.extend(self.needs_no_password.then_some("nopass"));
        flags.extend(self.sanitizes.map(|sanitizes| match sanitizes {
            true => "sanitize-payload",
            false => "skip-sanitize-payload",
        }));
        flags
    }

    /// Its passwords' SHA-256, as 64 hexadecimal digits each.
    pub fn password_hashes(&self) -> Vec<String> {
        self.passwords.iter().map(PasswordHash::to_string).collect()
    }

    /// Its rules about keys, separated by spaces.
    pub fn key_rules(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let text = |pattern: &KeyPattern| {
            let sign: &[u8] = match pattern.access {
                Access::READ => b"%R~",
                Access::WRITE => b"%W~",
                // `~*` would be all keys, behind which no pattern may stand.
                _ if pattern.glob == b"*" => b"%RW~",
                _ => b"~",
            };
            [sign, &pattern.glob].concat()
        };
        self.keys.iter().map(text).collect::<Vec<_>>().join(&b' ')
    }

    /// Its rules about channels, separated by spaces.
    pub fn channel_rules(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let text = |glob: &Vec<u8>| [b"&", glob.as_slice()].concat();
        self.channels.iter().map(text).collect::<Vec<_>>().join(&b' ')
    }

    /// Its rules about commands, separated by spaces.
    pub fn command_rules(&self, catalog: &Catalog) -> String {
        let mut text = if self.all_commands { "+@all" } else { "-@all" }.to_string();
        for CommandRule { allow, target } in &self.rules {
            text.push_str(if *allow { " +" } else { " -" });
            match target {
                Target::Category(category) => {
                    text.push('@');
                    text.extend(category.names());
                }
                Target::Command(number) => text.push_str(catalog.name(*number)),
                Target::Subcommand(number, argument) => {
                    text.push_str(&format!("{}|{argument}", catalog.name(*number)));
                }
            }
        }
        text
    }

    /// All its rules in one line, as ACL LIST gives it: `user <name> …`. [`super::Acl::load`] takes
    /// it back.
    pub fn line(&self, catalog: &Catalog) -> Vec<u8> {
        let mut words = vec![b"user".to_vec(), self.name.as_bytes().to_vec()];
        words.extend(self.flags().into_iter().map(|flag| flag.as_bytes().to_vec()));
        words.extend(self.passwords.iter().map(|hash| format!("#{hash}").into_bytes()));
        words.extend(Some(self.key_rules()).filter(|rules| !rules.is_empty()));
        words.extend((!self.all_channels).then(|| b"resetchannels".to_vec()));
        words.extend(Some(self.channel_rules()).filter(|rules| !rules.is_empty()));
        words.push(self.command_rules(catalog).into_bytes());
        words.join(&b' ')
    }
}

/// What `@category`, `command` or `command|argument` means. A first argument that is no subcommand can
/// be allowed, but not forbidden.
fn target(what: &str, allow: bool, catalog: &Catalog) -> Result<Target, &'static str> {
    if let Some(category) = what.strip_prefix('@') {
        return Categories::named(category).map(Target::Category).ok_or(UNKNOWN);
    }
    if let Some(number) = catalog.number(what) {
        return Ok(Target::Command(number));
    }
    let (command, argument) = what.split_once('|').ok_or(UNKNOWN)?;
    let number = catalog.number(command).ok_or(UNKNOWN)?;
    let argument = argument.to_ascii_lowercase();
    if allow && argument.is_empty() {
        return Err(SYNTAX);
    }
    if catalog.has_subcommands(number) {
        let first = argument.split('|').next().unwrap_or_default();
        return match (catalog.subcommand(number, first), first.len() < argument.len()) {
            (Some(_), false) => Ok(Target::Subcommand(number, argument)),
            (Some(_), true) => Err(NO_THIRD),
            (None, _) => Err(UNKNOWN),
        };
    }
    if argument.contains('|') {
        return Err(UNKNOWN);
    }
    let is_name =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    match argument.len() <= 256 && is_name(&argument) {
        _ if !allow => Err(UNKNOWN),
        true => Ok(Target::Subcommand(number, argument)),
        false => Err(SYNTAX),
    }
}

/// Whether a byte would end a word in a text of rules.
pub(super) fn is_blank(byte: u8) -> bool {
    byte == 0 || byte == 0x0b || byte.is_ascii_whitespace()
}

/// A rule for an error message: short, in one line, without its password.
fn shown(rule: &[u8]) -> String {
    if let [sign @ (b'>' | b'<'), ..] = rule {
        return format!("{}(hidden)", char::from(*sign));
    }
    String::from_utf8_lossy(&rule[..rule.len().min(128)]).replace(|c: char| c.is_control(), " ")
}
