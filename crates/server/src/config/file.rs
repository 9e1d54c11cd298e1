//! `terrace.toml`: read into texts by option, and rewritten with its comments and order kept.

use super::error::{ConfigError, nearest};
use super::names::{all_options, option, required};
use super::table::{OptionSpec, Settings};
use super::user_rules::{UserChange, UserRules};
use super::value::Kind;
use crate::bounded_file;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, Value};

/// The largest file that is read.
const MAX_FILE_MIB: u64 = 4;
const MAX_FILE_BYTES: u64 = MAX_FILE_MIB << 20;

/// What a file says.
#[derive(Default, Clone, PartialEq)]
pub(super) struct FileContents {
    /// Texts by name of option.
    pub texts: BTreeMap<&'static str, String>,
    /// Its users.
    pub users: Vec<UserRules>,
}

impl std::fmt::Debug for FileContents {
    /// Names only: passwords may be among the texts.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileContents")
            .field("names", &self.texts.keys())
            .field("users", &self.users)
            .finish()
    }
}

/// Reads and understands the file at `path`; values are not checked yet.
pub(super) fn read(path: &Path) -> Result<FileContents, ConfigError> {
    contents(path, &document(path)?)
}

fn complaint(path: &Path, what: impl std::fmt::Display) -> ConfigError {
    ConfigError::File { path: path.to_path_buf(), what: what.to_string() }
}

fn document(path: &Path) -> Result<DocumentMut, ConfigError> {
    let found = std::fs::metadata(path).map_err(|e| complaint(path, e))?;
    if found.file_type().is_fifo() {
        // Nothing is in it when it is read again, as if all options had been taken out.
        return Err(complaint(path, "it is a pipe; name a file, which can be read again"));
    }
    check_len(path, found.len())?;
    // A device such as /dev/zero says that it has no bytes, and has no end.
    let bytes = bounded_file::read(path, MAX_FILE_MIB).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => complaint(path, format!("more than {MAX_FILE_BYTES} bytes")),
        _ => complaint(path, error),
    })?;
    let text = io::read_to_string(bytes.as_slice()).map_err(|e| complaint(path, e))?;
    text.parse::<DocumentMut>().map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line =
            1 + text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count();
        // The parser's own text quotes the line, which may hold a password.
        complaint(path, format!("line {line}: {}", error.message().replace('\n', ", ")))
    })
}

/// Refuses a file that is too long to be read.
fn check_len(path: &Path, len: u64) -> Result<(), ConfigError> {
    match len > MAX_FILE_BYTES {
        true => Err(complaint(path, format!("{len} bytes, at most {MAX_FILE_BYTES}"))),
        false => Ok(()),
    }
}

fn contents(path: &Path, document: &DocumentMut) -> Result<FileContents, ConfigError> {
    let mut found = FileContents::default();
    for (key, item) in document.iter() {
        if key == "user" {
            found.users = users(path, item)?;
            continue;
        }
        let option = match option(key) {
            Some(option) => option,
            None => return Err(unknown(path, key)),
        };
        let text = text(item, &option.kind).ok_or_else(|| {
            complaint(path, format!("{}: it must be {}", option.name, option.kind.allowed()))
        })?;
        if found.texts.insert(option.name, text).is_some() {
            return Err(ConfigError::Duplicate { name: option.name });
        }
    }
    Ok(found)
}

fn unknown(path: &Path, key: &str) -> ConfigError {
    let names = all_options().flat_map(OptionSpec::names).chain(["user"]);
    let name = key.to_string();
    complaint(path, ConfigError::Unknown { name, nearest: nearest(key, names) })
}

/// A value as text: as it would stand on a command line. Kinds that are lists take a list too. Where any text is a value, as
/// for a password, a number is what is written, not what it means, and `true` is none.
fn text(item: &Item, kind: &Kind) -> Option<String> {
    let is_text = matches!(kind, Kind::Text | Kind::Secret | Kind::Path);
    let scalar = |value: &Value| match value {
        Value::String(text) => Some(text.value().clone()),
        Value::Integer(number) if is_text => Some(number.display_repr().into_owned()),
        Value::Integer(number) => Some(number.value().to_string()),
        Value::Float(number) if is_text => Some(number.display_repr().into_owned()),
        Value::Float(number) => Some(number.value().to_string()),
        Value::Boolean(flag) if !is_text => {
            Some(if *flag.value() { "yes" } else { "no" }.to_string())
        }
        _ => None,
    };
    let Value::Array(all) = item.as_value()? else { return scalar(item.as_value()?) };
    let between = match kind {
        Kind::Compressions | Kind::Filters => ",",
        Kind::Addresses | Kind::HostNames | Kind::OutputLimits => " ",
        _ => return None,
    };
    Some(all.iter().map(scalar).collect::<Option<Vec<_>>>()?.join(between))
}

fn users(path: &Path, item: &Item) -> Result<Vec<UserRules>, ConfigError> {
    let malformed = || complaint(path, "user: write [[user]] with a name and rules");
    let tables = item.as_array_of_tables().ok_or_else(malformed)?;
    let mut users: Vec<UserRules> = Vec::new();
    for table in tables.iter() {
        if let Some((key, _)) = table.iter().find(|(key, _)| !matches!(*key, "name" | "rules")) {
            return Err(complaint(path, format!("[[user]]: there is no `{key}`")));
        }
        let name = table.get("name").and_then(Item::as_str).ok_or_else(malformed)?.to_string();
        let rules = match table.get("rules") {
            None => Vec::new(),
            Some(rules) => user_rules(rules).ok_or_else(malformed)?,
        };
        if users.iter().any(|user| user.name == name) {
            return Err(complaint(path, format!("[[user]]: {name} is there twice")));
        }
        users.push(UserRules { name, rules });
    }
    Ok(users)
}

fn user_rules(item: &Item) -> Option<Vec<String>> {
    if let Some(line) = item.as_str() {
        return Some(line.split_whitespace().map(str::to_string).collect());
    }
    item.as_array()?.iter().map(|rule| rule.as_str().map(str::to_string)).collect()
}

/// Gives `names` their values of `settings`, and users their rules, in the file at `path`. What else the file says, its
/// comments and its order stay; the file is replaced at once or not at all.
pub(super) fn rewrite(
    path: &Path,
    settings: &Settings,
    names: &[&'static str],
    changed_users: &[UserChange],
) -> Result<FileContents, ConfigError> {
    let mut document = document(path)?;
    contents(path, &document)?;
    for change in changed_users {
        put_user(document.as_table_mut(), change);
    }
    for name in names {
        let option = required(name)?;
        put(document.as_table_mut(), option, &option.show(settings));
    }
    let changed = contents(path, &document)?;
    let text = document.to_string();
    // The next start would refuse it.
    check_len(path, text.len() as u64)?;
    crate::replace_file::replace(path, text.as_bytes()).map_err(|e| complaint(path, e))?;
    Ok(changed)
}

/// Puts a value where the option stands already, by whatever name, or behind the others.
fn put(table: &mut Table, option: &OptionSpec, text: &str) {
    let written = option.names().find_map(|name| {
        let key = table.iter().map(|(key, _)| key).find(|key| key.eq_ignore_ascii_case(name))?;
        Some(key.to_string())
    });
    let mut value = toml_value(option, text);
    match written.and_then(|key| table.get_mut(&key)) {
        Some(item) => {
            if let Some(before) = item.as_value() {
                *value.decor_mut() = before.decor().clone();
            }
            *item = Item::Value(value);
        }
        None => {
            table.insert(option.name, Item::Value(value));
        }
    }
}

/// Gives a user its rules where it stands already, or behind the others; or removes it.
fn put_user(table: &mut Table, change: &UserChange) {
    let none = || Item::ArrayOfTables(ArrayOfTables::new());
    let Some(users) = table.entry("user").or_insert_with(none).as_array_of_tables_mut() else {
        return;
    };
    let is_it = |user: &Table| user.get("name").and_then(Item::as_str) == Some(&change.name);
    let Some(rules) = &change.rules else {
        users.retain(|user| !is_it(user));
        if users.is_empty() {
            table.remove("user");
        }
        return;
    };
    let rules = Item::Value(Array::from_iter(rules).into());
    if let Some(user) = users.iter_mut().find(|user| is_it(user)) {
        user.insert("rules", rules);
        return;
    }
    let mut user = Table::new();
    user.insert("name", Item::Value(change.name.as_str().into()));
    user.insert("rules", rules);
    users.push(user);
}

/// The value as the file's author would write it.
fn toml_value(option: &OptionSpec, text: &str) -> Value {
    match option.kind {
        Kind::Whole { .. } | Kind::Bytes { .. } | Kind::Budget { .. } => {
            text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
        }
        Kind::Ratio { .. } => text.parse::<f64>().map_or_else(|_| text.into(), Value::from),
        Kind::YesNo => Value::from(text == "yes"),
        Kind::Addresses | Kind::HostNames => Array::from_iter(text.split_whitespace()).into(),
        _ => text.into(),
    }
}
