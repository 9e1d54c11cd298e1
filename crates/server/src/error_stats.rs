//! How many errors were answered, and how often each code (`INFO errorstats`).

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Codes that are counted apart: more than there are, so that no text can fill the memory.
const MAX_CODES: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub struct ErrorStats(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    total: u64,
    by_code: BTreeMap<String, u64>,
}

impl ErrorStats {
    /// An error was answered; its first word is the code.
    pub fn note(&self, error: &str) {
        let code = error.split(' ').next().unwrap_or_default();
        let mut counts = self.0.lock();
        counts.total += 1;
        let codes = &mut counts.by_code;
        if let Some(count) = codes.get_mut(code) {
            *count += 1;
        } else if codes.len() < MAX_CODES {
            codes.insert(code.to_string(), 1);
        }
    }

    /// How many errors were answered.
    pub fn total(&self) -> u64 {
        self.0.lock().total
    }

    /// The codes, and how often each was answered.
    pub fn counts(&self) -> Vec<(String, u64)> {
        self.0.lock().by_code.iter().map(|(code, count)| (code.clone(), *count)).collect()
    }

    /// Counts from 0 again.
    pub fn reset(&self) {
        *self.0.lock() = Counts::default();
    }
}
