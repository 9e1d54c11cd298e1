//! Which tests failed, told from what `cargo test --no-fail-fast` prints, and the command that
//! runs just them.

/// What cargo says, after the outputs of a target that failed, of how to run it.
const RERUN: &str = "to rerun pass `";

/// What libtest says before the names of the tests that failed, and before their outputs.
const LIST: &str = "failures:";

/// The failures of a run, gathered line by line.
#[derive(Default)]
pub struct Failing {
    /// Those of the target whose lines come.
    names: Vec<String>,
    in_list: bool,
    commands: Vec<String>,
}

impl Failing {
    /// Takes down the next line; `extra` are the arguments that the tests themselves were given.
    pub fn look(&mut self, line: &str, extra: &[&str]) {
        if line == LIST {
            (self.in_list, self.names) = (true, Vec::new());
        } else if self.in_list
            && let Some(name) = line.strip_prefix("    ")
        {
            self.names.push(name.to_string());
        } else {
            self.in_list = false;
        }
        if let Some((_, rest)) = line.split_once(RERUN) {
            let target = rest.split('`').next().unwrap_or_default();
            let names = std::mem::take(&mut self.names);
            self.commands.push(command(target, &names, extra));
        }
    }

    /// The tests that failed, if all lines were of one target which cargo did not run.
    pub fn names(self) -> Vec<String> {
        self.names
    }

    /// Commands that run just what failed, one for each target; none if no target says so.
    pub fn commands(self) -> Vec<String> {
        self.commands
    }
}

/// Without names, the target died before it could say them.
fn command(target: &str, names: &[String], extra: &[&str]) -> String {
    let mut words = vec![format!("cargo test {target}")];
    if !(names.is_empty() && extra.is_empty()) {
        words.push("--".to_string());
    }
    words.extend(extra.iter().map(|word| word.to_string()));
    if !names.is_empty() {
        words.push("--exact".to_string());
    }
    words.extend(names.iter().map(|name| quoted(name)));
    words.join(" ")
}

/// Doc tests have blanks and brackets in their names.
fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_:-.".contains(c);
    if name.chars().all(plain) { name.to_string() } else { format!("'{name}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(text: &str, extra: &[&str]) -> Vec<String> {
        let mut failing = Failing::default();
        text.lines().for_each(|line| failing.look(line, extra));
        failing.commands()
    }

    #[test]
    fn failed_tests_are_named_with_their_target() {
        let text = "\
     Running unittests src/lib.rs (target/debug/deps/terrace_base-01)
test clock::tests::a ... ok
     Running tests/it/main.rs (target/debug/deps/it-02)
test filters::heat ... noise of another thread FAILED
test learning::b ... ok

failures:

---- filters::heat stdout ----
thread panicked at it.rs:7:
    assertion failed

failures:
    filters::heat
    learning::c

test result: FAILED. 1 passed; 2 failed
error: test failed, to rerun pass `-p terrace --test it`
test d ... ok
error: doctest failed, to rerun pass `-p terrace --doc`
error: 2 targets failed:
    `-p terrace --test it`
";
        let want = [
            "cargo test -p terrace --test it -- --exact filters::heat learning::c",
            "cargo test -p terrace --doc",
        ];
        assert_eq!(commands(text, &[]), want);
    }

    #[test]
    fn names_of_doc_tests_are_quoted_and_arguments_of_the_tests_kept() {
        let text = "\
failures:
    src/lib.rs - Db (line 7)
error: doctest failed, to rerun pass `-p a --doc`
error: test failed, to rerun pass `-p b --test clients`";
        let want = [
            "cargo test -p a --doc -- --include-ignored --exact 'src/lib.rs - Db (line 7)'",
            "cargo test -p b --test clients -- --include-ignored",
        ];
        assert_eq!(commands(text, &["--include-ignored"]), want);
    }

    #[test]
    fn what_does_not_compile_names_no_test() {
        assert!(commands("error: could not compile `terrace`\ntest a ... ok", &[]).is_empty());
    }
}
