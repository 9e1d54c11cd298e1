//! Commands that fetch something: one that fails since the network did, for a moment, is run
//! once more.

use crate::output::{run_watched, shown};
use anyhow::{Result, bail};
use std::process::Command;
use std::time::Duration;

/// How long to wait before the second time.
const PAUSE: Duration = Duration::from_secs(10);

/// What apt-get, pip and npm say when a connection, a name or a mirror failed. What they say of a
/// package that does not exist is not among it.
const SIGNS: [&str; 17] = [
    "Temporary failure resolving",
    "Temporary failure in name resolution",
    "Could not resolve",
    "Could not connect",
    "Connection failed",
    "Connection refused",
    "Connection reset",
    "Connection timed out",
    "Connection broken",
    "Network is unreachable",
    "Read timed out",
    "Hash Sum mismatch",
    "ReadTimeoutError",
    "EAI_AGAIN",
    "ECONNRESET",
    "ETIMEDOUT",
    "ERR_SOCKET_TIMEOUT",
];

/// Answers of a server that may be others a moment later.
const BUSY: [&str; 5] = [" 429 ", " 500 ", " 502 ", " 503 ", " 504 "];

/// Runs what `command` makes; once more if it fails and its output says that the network did.
pub fn run(command: impl Fn() -> Command) -> Result<()> {
    run_with(PAUSE, command)
}

fn run_with(pause: Duration, command: impl Fn() -> Command) -> Result<()> {
    let words = shown(&command());
    for is_last in [false, true] {
        println!("{words}");
        let mut why = None;
        let status = run_watched(command(), |line| {
            why = why.take().or_else(|| is_transient(line).then(|| line.to_string()));
        })?;
        match why {
            _ if status.success() => return Ok(()),
            Some(line) if is_last => bail!("{words}: {status}, twice; the network failed: {line}"),
            Some(line) => {
                println!("the network failed: {line}\nonce more in {} s", pause.as_secs());
                std::thread::sleep(pause);
            }
            None => bail!("{words}: {status}"),
        }
    }
    Ok(())
}

fn is_transient(line: &str) -> bool {
    let padded = format!("{line} ");
    SIGNS.iter().any(|sign| line.contains(sign)) || BUSY.iter().any(|code| padded.contains(code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn failures_of_the_network_are_told_from_others() {
        for line in [
            "E: Failed to fetch http://mirror/x.deb  Temporary failure resolving 'mirror'",
            "E: Failed to fetch http://mirror/x.deb  503  Service Unavailable [IP: 1.2.3.4]",
            "npm error code EAI_AGAIN",
            "WARNING: Retrying after connection broken by 'ReadTimeoutError(...)'",
        ] {
            assert!(is_transient(line), "{line}");
        }
        for line in [
            "E: Unable to locate package redis-serverr",
            "npm error code E404",
            "ERROR: No matching distribution found for redis==500",
        ] {
            assert!(!is_transient(line), "{line}");
        }
    }

    /// Runs `scripts`, one after the other, as often as `run_with` asks; how many it did.
    fn runs(scripts: &[&str]) -> (usize, Result<()>) {
        let count = Cell::new(0_usize);
        let outcome = run_with(Duration::ZERO, || {
            // The first is asked for its words only.
            let at = count.replace(count.get() + 1).saturating_sub(1);
            let mut command = Command::new("sh");
            command.args(["-c", scripts[at]]);
            command
        });
        (count.get() - 1, outcome)
    }

    #[test]
    fn a_second_time_follows_a_failure_of_the_network_only() {
        let (broken, wrong) = ("echo Connection reset by peer; exit 1", "echo no package; exit 1");
        assert!(matches!(runs(&[broken, "true"]), (2, Ok(()))));
        assert!(matches!(runs(&["echo Connection reset", "true"]), (1, Ok(()))));
        assert!(matches!(runs(&[wrong, "true"]), (1, Err(_))));
        let (count, outcome) = runs(&[broken, broken, "true"]);
        let error = outcome.unwrap_err().to_string();
        assert!(count == 2 && error.contains("twice") && error.contains("reset"), "{error}");
    }
}
