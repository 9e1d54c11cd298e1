//! How often each code of an error was answered (`INFO errorstats`).

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Codes that are counted apart: more than there are, so that no text can fill the memory.
const MAX_CODES: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub struct ErrorStats(Mutex<BTreeMap<String, u64>>);

impl ErrorStats {
    /// An error was answered; its first word is the code.
    pub fn note(&self, error: &str) {
        let code = error.split(' ').next().unwrap_or_default();
        let mut codes = self.0.lock();
        if let Some(count) = codes.get_mut(code) {
            *count += 1;
        } else if codes.len() < MAX_CODES {
            codes.insert(code.to_string(), 1);
        }
    }

    /// The codes, and how often each was answered.
    pub fn counts(&self) -> Vec<(String, u64)> {
        self.0.lock().iter().map(|(code, count)| (code.clone(), *count)).collect()
    }

    /// Counts from 0 again.
    pub fn reset(&self) {
        self.0.lock().clear();
    }
}
