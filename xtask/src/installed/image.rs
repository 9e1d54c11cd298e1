//! The image that the `Containerfile` describes, as far as it can be tried without one: the file is read as docker reads it,
//! what it copies is looked for among what was made and in the package, and its command is that by which
//! [`super::service`] starts the server once more.

use anyhow::{Context, Result, bail, ensure};
use std::path::Path;

/// The name that `dist` gives it.
pub const NAME: &str = "Containerfile";

/// Where the file unpacks the package.
const UNPACKED: &str = "/package";

/// What a `Containerfile` says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Files beside it that it copies.
    from_beside: Vec<String>,
    /// Paths of the package that it copies, from the root on.
    from_package: Vec<String>,
    /// Who runs the command.
    pub user: String,
    /// The folder that outlives a container.
    pub volume: String,
    /// Ports that can be reached.
    ports: Vec<String>,
    entry_point: Vec<String>,
    arguments: Vec<String>,
}

impl Image {
    /// Reads it. What is used must be made before: stages, and the user.
    pub fn read(text: &str) -> Result<Self> {
        let mut image = Self::default();
        let (mut stages, mut commands) = (Vec::new(), String::new());
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        for line in lines.filter(|line| !line.starts_with('#')) {
            let (instruction, rest) = line.split_once(' ').unwrap_or((line, ""));
            let words: Vec<&str> = rest.split_whitespace().collect();
            match (instruction, &words[..]) {
                ("FROM", [_base]) => {}
                ("FROM", [_base, "AS", stage]) => stages.push(format!("--from={stage}")),
                ("RUN", _) => commands.extend([rest, "\n"]),
                ("COPY", [stage, from, to]) => {
                    ensure!(stages.iter().any(|known| known == stage), "no stage for `{line}`");
                    let path = from.strip_prefix(UNPACKED).with_context(|| line.to_string())?;
                    ensure!(path == *to, "`{line}` moves what the package puts elsewhere");
                    image.from_package.push(path.to_string());
                }
                ("COPY", [from, _to]) => image.from_beside.push(from.to_string()),
                ("USER", [user]) => {
                    let makes = |run: &str| run.starts_with("useradd ") && run.ends_with(*user);
                    ensure!(commands.lines().any(makes), "nothing makes the user {user}");
                    image.user = user.to_string();
                }
                ("VOLUME", [folder]) => image.volume = folder.to_string(),
                ("WORKDIR", [_folder]) => {}
                ("EXPOSE", ports) => {
                    image.ports = ports.iter().map(|port| port.to_string()).collect()
                }
                ("ENTRYPOINT", _) => image.entry_point = list(rest)?,
                ("CMD", _) => image.arguments = list(rest)?,
                _ => bail!("what does `{line}` say?"),
            }
        }
        let said = [&image.user, &image.volume];
        ensure!(said.iter().all(|text| !text.is_empty()), "no user or no volume: {image:?}");
        ensure!(!image.entry_point.is_empty() && !image.arguments.is_empty(), "no command");
        Ok(image)
    }

    /// What it copies is there: beside it are `names`, and the package is unpacked in `unpacked`. Its program is among them,
    /// and what it keeps lies in its volume.
    pub fn check(&self, names: &[String], unpacked: &Path) -> Result<()> {
        for name in &self.from_beside {
            ensure!(names.contains(name), "{NAME} copies {name}, which is not made: {names:?}");
        }
        for path in &self.from_package {
            let is_there = unpacked.join(path.trim_start_matches('/')).exists();
            ensure!(is_there, "{NAME} copies {path}, which is not in the package");
        }
        let program = self.entry_point.first().map(|name| format!("/usr/bin/{name}"));
        let has_program = self.from_package.iter().any(|path| Some(path) == program.as_ref());
        ensure!(has_program, "{NAME} starts {program:?} and copies {:?}", self.from_package);
        let mut words = self.arguments.iter().skip_while(|word| *word != "--dir").skip(1);
        let dir = words.next().context("the command names no directory")?;
        let keeps = dir.strip_prefix(&self.volume).is_some_and(|rest| rest.starts_with('/'));
        ensure!(keeps, "the store in {dir} does not outlive a container: {} does", self.volume);
        Ok(())
    }

    /// The words of its command, with `ports` in the place of those that it exposes, in their order.
    pub fn command(&self, ports: &[&str]) -> Result<Vec<String>> {
        ensure!(self.ports.len() == ports.len(), "{NAME} exposes {:?}", self.ports);
        let mut words: Vec<String> = [&self.entry_point[..], &self.arguments].concat();
        for (exposed, port) in self.ports.iter().zip(ports) {
            let word = words.iter_mut().find(|word| **word == *exposed);
            *word.with_context(|| format!("the server does not listen on {exposed}"))? =
                port.to_string();
        }
        Ok(words)
    }
}

/// The words of a command in the form that starts no shell.
fn list(text: &str) -> Result<Vec<String>> {
    serde_json::from_str(text).with_context(|| format!("{text} is no list of words"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const PACKAGE: &str = "terrace_*.deb";

    fn source() -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(NAME);
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn the_image_serves_on_what_it_exposes() {
        let image = Image::read(&source()).unwrap();
        assert_eq!(image.user, "terrace");
        let words = image.command(&["1", "0"]).unwrap().join(" ");
        assert!(words.starts_with("terrace serve --dir /var/lib/terrace/data "), "{words}");
        assert!(words.contains("--port 1 ") && words.ends_with("--http-port 0"), "{words}");
        assert!(image.command(&["1"]).is_err());
    }

    #[test]
    fn what_is_not_there_and_what_is_not_made_before_is_refused() {
        let unpacked = std::env::temp_dir().join(format!("terrace-image-{}", std::process::id()));
        for folder in ["usr/bin/terrace", "usr/share/doc/terrace"] {
            fs::create_dir_all(unpacked.join(folder)).unwrap();
        }
        let names = [PACKAGE.to_string()];
        let check = |text: &str| Image::read(text)?.check(&names, &unpacked);
        check(&source()).unwrap();
        for (said, instead, complaint) in [
            ("COPY terrace_*.deb", "COPY terrace.deb", "is not made"),
            ("/usr/share/doc/terrace", "/usr/share/terrace", "is not in the package"),
            ("/usr/bin/terrace /usr/bin/terrace", "/usr/bin/terrace /bin/terrace", "elsewhere"),
            ("--from=unpacked", "--from=built", "no stage"),
            ("USER terrace", "USER nobody", "makes the user nobody"),
            ("USER terrace\n", "", "no user"),
            ("[\"terrace\"]", "[\"redis\"]", "and copies"),
            ("[\"terrace\"]", "terrace", "no list of words"),
            ("VOLUME /var/lib/terrace", "VOLUME /var/lib/other", "does not outlive"),
            ("\"--dir\"", "\"--path\"", "no directory"),
            ("EXPOSE", "EXPOSES", "what does"),
        ] {
            let text = source().replace(said, instead);
            assert_ne!(text, source(), "{said}");
            let error = check(&text).unwrap_err().to_string();
            assert!(error.contains(complaint), "{instead}: {error}");
        }
        let unheard = source().replace("\"6380\"", "\"6381\"");
        assert!(Image::read(&unheard).unwrap().command(&["1", "2"]).is_err());
        fs::remove_dir_all(unpacked).unwrap();
    }
}
