//! Commands that fetch something: one that fails since the network did, for a moment, is run
//! again.

use crate::output::{run_watched, shown};
use anyhow::{Result, bail};
use std::process::Command;
use std::time::Duration;

/// How long to wait before the second, the third and the fourth time.
const PAUSES: [Duration; 3] =
    [Duration::from_secs(10), Duration::from_secs(30), Duration::from_secs(90)];

/// What apt-get, pip, npm, go and mvn say, in small letters, when a connection, a name or a mirror failed. What they say of a
/// package that does not exist is not among it.
const SIGNS: [&str; 29] = [
    "temporary failure resolving",
    "temporary failure in name resolution",
    "could not resolve",
    "could not connect",
    "no such host",
    "connection failed",
    "connection refused",
    "connection reset",
    "connection timed out",
    "connect timed out",
    "connection broken",
    "connection aborted",
    "network is unreachable",
    "no route to host",
    "read timed out",
    "i/o timeout",
    "tls handshake timeout",
    "unexpected eof",
    "hash sum mismatch",
    "unexpected size",
    "remotedisconnected",
    "sslerror",
    "readtimeouterror",
    "eai_again",
    "econnreset",
    "econnrefused",
    "etimedout",
    "err_socket_timeout",
    "socket hang up",
];

/// Answers of a server that may be others a moment later.
const BUSY: [&str; 5] = [" 429 ", " 500 ", " 502 ", " 503 ", " 504 "];

/// Runs what `command` makes; again if it fails and its output says that the network did.
pub fn run(command: impl Fn() -> Command) -> Result<()> {
    run_with(&PAUSES, command)
}

fn run_with(pauses: &[Duration], command: impl Fn() -> Command) -> Result<()> {
    let words = shown(&command());
    let times = pauses.len() + 1;
    for pause in pauses.iter().map(Some).chain([None]) {
        println!("{words}");
        let mut why = None;
        let status = run_watched(command(), |line| {
            why = why.take().or_else(|| is_transient(line).then(|| line.to_string()));
        })?;
        match (why, pause) {
            _ if status.success() => return Ok(()),
            (Some(line), Some(pause)) => {
                println!("the network failed: {line}\nonce more in {} s", pause.as_secs());
                std::thread::sleep(*pause);
            }
            (Some(line), None) => {
                bail!("{words}: {status}, {times} times; the network failed: {line}")
            }
            (None, _) => bail!("{words}: {status}"),
        }
    }
    Ok(())
}

fn is_transient(line: &str) -> bool {
    let small = format!("{line} ").to_ascii_lowercase();
    SIGNS.iter().chain(&BUSY).any(|sign| small.contains(sign))
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
            "go: example.org/x@v1.0.0: Get \"https://mirror/x\": dial tcp 1.2.3.4:443: i/o timeout",
            "[ERROR] Could not transfer artifact x:y:jar:1 from/to central: Connect timed out",
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
        let outcome = run_with(&[Duration::ZERO; 2], || {
            // The first is asked for its words only.
            let at = count.replace(count.get() + 1).saturating_sub(1);
            let mut command = Command::new("sh");
            command.args(["-c", scripts[at]]);
            command
        });
        (count.get() - 1, outcome)
    }

    #[test]
    fn another_time_follows_a_failure_of_the_network_only() {
        let (broken, wrong) = ("echo Connection reset by peer; exit 1", "echo no package; exit 1");
        assert!(matches!(runs(&[broken, "true"]), (2, Ok(()))));
        assert!(matches!(runs(&["echo Connection reset", "true"]), (1, Ok(()))));
        assert!(matches!(runs(&[wrong, "true"]), (1, Err(_))));
        assert!(matches!(runs(&[broken, broken, "true"]), (3, Ok(()))));
        let (count, outcome) = runs(&[broken, broken, broken, "true"]);
        let error = outcome.unwrap_err().to_string();
        assert!(count == 3 && error.contains("3 times") && error.contains("reset"), "{error}");
    }
}
