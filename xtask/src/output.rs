//! Runs a command, passes on what it prints, and shows each line to a filter that finds out why it
//! failed.

use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus};

/// Runs `command`; both of its outputs go to ours as they come, and line by line to `look`, in
/// the order in which they were written.
pub fn run_watched(mut command: Command, mut look: impl FnMut(&str)) -> Result<ExitStatus> {
    let shown = shown(&command);
    let (reader, writer) = std::io::pipe().context("open a pipe")?;
    command.stdout(writer.try_clone().context("open a pipe")?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("start {shown}"))?;
    // It holds the other end of the pipe: without this there would be no end of file.
    drop(command);
    let mut lines = BufReader::new(reader);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).context("read what it prints")? > 0 {
        let mut out = std::io::stdout().lock();
        // Nobody may be listening; the command runs on.
        let _ = out.write_all(&line).and_then(|()| out.flush());
        look(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    child.wait().with_context(|| format!("wait for {shown}"))
}

/// Runs `command`, which is shown first.
pub fn run_shown(command: &mut Command) -> Result<()> {
    let words = shown(command);
    println!("{words}");
    let status = command.status().with_context(|| format!("start {words}"))?;
    ensure!(status.success(), "{words}: {status}");
    Ok(())
}

/// The words of a command.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_outputs_are_seen_in_their_order() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo a; echo b >&2; printf c; exit 3"]);
        let mut seen = Vec::new();
        let status = run_watched(command, |line| seen.push(line.to_string())).unwrap();
        assert_eq!((seen.join(" ").as_str(), status.code()), ("a b c", Some(3)));
        assert!(run_watched(Command::new("./no-such-program"), |_| {}).is_err());
    }
}
