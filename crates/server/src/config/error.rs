//! Why a value is refused, in words that name the option, the value and what it may be.

use std::path::PathBuf;
use thiserror::Error;

/// A refusal. Nothing has changed. Values of secrets are never in it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// There is no such option.
    #[error("there is no option `{name}`{}", nearest.map(|n| format!("; did you mean `{n}`?")).unwrap_or_default())]
    Unknown {
        /// As it was given.
        name: String,
        /// The option with the most similar name, if one is similar.
        nearest: Option<&'static str>,
    },
    /// The value is not of the option's kind or not in its range.
    #[error("{name} is \"{value}\"; it must be {allowed}")]
    Invalid {
        /// The option.
        name: &'static str,
        /// As it was given.
        value: String,
        /// What it may be.
        allowed: String,
        /// What is wrong, as CONFIG SET says it.
        complaint: String,
    },
    /// The option cannot change while the server runs.
    #[error("{name} cannot change while the server runs; set it in the file and start again")]
    NotLive {
        /// The option.
        name: &'static str,
    },
    /// One option was given twice at once.
    #[error("{name} is given twice")]
    Duplicate {
        /// The option.
        name: &'static str,
    },
    /// Options that do not go together.
    #[error("{name}: {why}")]
    Conflict {
        /// The option to change.
        name: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The server could not carry a valid change out.
    #[error("{name} could not be changed: {why}")]
    Failed {
        /// The first option of the change.
        name: &'static str,
        /// What went wrong.
        why: String,
    },
    /// There is no file to read again or to rewrite.
    #[error("the server was started without a configuration file")]
    NoFile,
    /// The file cannot be read, understood or written.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What went wrong, with the line where it is known.
        what: String,
    },
}

impl ConfigError {
    /// A conflict as one of the options `given`, of which some clash with what is: the one to change is among them.
    pub(super) fn about(self, given: impl Iterator<Item = &'static str> + Clone) -> Self {
        let Self::Conflict { name, why } = self else { return self };
        let is_told = |one: &&str| why.contains(one);
        let named = given.clone().find(|one| *one == name);
        let name = named.or_else(|| given.clone().find(is_told)).unwrap_or(name);
        Self::Conflict { name, why }
    }

    /// The error that CONFIG answers with, in Redis's words, without a line break.
    pub fn reply(&self) -> String {
        let related = |name: &str, why: &str| {
            format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
        };
        let reply = match self {
            Self::Unknown { name, .. } => {
                let name: String = name.chars().take(128).collect();
                format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'")
            }
            Self::Invalid { name, complaint, .. } => related(name, complaint),
            // Redis calls what names files so.
            Self::NotLive { name: name @ ("dir" | "dbfilename") } => {
                related(name, "can't set protected config")
            }
            Self::NotLive { name } => related(name, "can't set immutable config"),
            Self::Duplicate { name } => related(name, "duplicate parameter"),
            Self::Conflict { name, why } | Self::Failed { name, why } => related(name, why),
            Self::NoFile => "ERR The server is running without a config file".into(),
            // The path is not for clients.
            Self::File { what, .. } => format!("ERR Rewriting config file: {what}"),
        };
        reply.replace(['\r', '\n'], " ")
    }
}

/// The candidate that `name` most likely means: at most a third of its letters, and no more than
/// three, are wrong, missing, too many or swapped with a neighbour.
pub(super) fn nearest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    // No option is nearly this long, and the cost is the product of both lengths.
    if name.len() > 100 {
        return None;
    }
    let name = name.to_ascii_lowercase().replace('_', "-");
    let most = (name.len() / 3).clamp(1, 3);
    candidates
        .map(|candidate| (distance(name.as_bytes(), candidate.as_bytes()), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Damerau's distance restricted to swaps of neighbours ("optimal string alignment").
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        (before, last) = (last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits() {
        for (a, b, edits) in [("", "", 0), ("", "abc", 3), ("port", "prot", 1), ("dir", "dirs", 1)]
        {
            assert_eq!(distance(a.as_bytes(), b.as_bytes()), edits);
            assert_eq!(distance(b.as_bytes(), a.as_bytes()), edits);
        }
        assert_eq!(distance(b"kitten", b"sitting"), 3);
    }

    #[test]
    fn only_similar_names_are_proposed() {
        let names = || ["port", "http-port", "maxclients"].into_iter();
        assert_eq!(nearest("prot", names()), Some("port"));
        assert_eq!(nearest("http_port", names()), Some("http-port"));
        assert_eq!(nearest("MaxClient", names()), Some("maxclients"));
        assert_eq!(nearest("zzzz", names()), None);
        assert_eq!(nearest(&"x".repeat(1 << 20), names()), None);
    }
}
