//! Runs of steps of which some fail.

use super::*;
use std::cell::RefCell;
use std::rc::Rc;

/// Which steps ran, in their order.
type Log = Rc<RefCell<Vec<&'static str>>>;

fn add<'a>(steps: &'a mut Steps, log: &Log, name: &'static str, passes: bool) -> &'a mut Step {
    let log = log.clone();
    steps.check(name, move |_| {
        log.borrow_mut().push(name);
        if passes { Ok(()) } else { bail!("no") }
    })
}

/// `build` fails, of the others only what needs it is left out.
fn broken(log: &Log) -> Steps {
    let mut steps = Steps::new(Path::new("."), "test");
    add(&mut steps, log, "first", true);
    add(&mut steps, log, "build", false);
    add(&mut steps, log, "uses", true).needs(&["first", "build"]);
    add(&mut steps, log, "uses-what-uses", true).needs(&["uses"]);
    add(&mut steps, log, "last", true).needs(&["first"]);
    steps
}

fn words(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

#[test]
fn a_failed_step_fails_the_run_and_stops_only_what_needs_it() {
    let log = Log::default();
    let error = broken(&log).run(&[]).unwrap_err().to_string();
    assert_eq!(*log.borrow(), ["first", "build", "last"]);
    assert!(error.contains("3 of 5"), "{error}");
    let log = Log::default();
    let mut steps = Steps::new(Path::new("."), "test");
    add(&mut steps, &log, "one", true);
    add(&mut steps, &log, "two", true).needs(&["one"]);
    steps.run(&[]).unwrap();
    assert_eq!(*log.borrow(), ["one", "two"]);
}

#[test]
fn steps_can_be_run_by_name() {
    let log = Log::default();
    broken(&log).run(&words(&["uses", "last"])).unwrap();
    assert_eq!(*log.borrow(), ["uses", "last"], "what is left out counts as passed");
    let error = broken(&log).run(&words(&["gone"])).unwrap_err().to_string();
    assert!(error.contains("`gone`") && error.contains("uses-what-uses"), "{error}");
    assert_eq!(log.borrow().len(), 2, "a wrong name runs nothing");
}

#[test]
fn names_are_given_once_and_needs_come_before() {
    let log = Log::default();
    let mut steps = Steps::new(Path::new("."), "test");
    add(&mut steps, &log, "one", true).needs(&["two"]);
    add(&mut steps, &log, "two", true);
    assert!(steps.run(&[]).unwrap_err().to_string().contains("`two`"));
    let mut steps = Steps::new(Path::new("."), "test");
    add(&mut steps, &log, "one", true);
    add(&mut steps, &log, "one", true);
    assert!(steps.run(&[]).is_err());
    assert!(log.borrow().is_empty());
}

#[test]
fn a_command_that_fails_or_does_not_exist_fails() {
    let run = |program: &str| {
        let mut steps = Steps::new(Path::new("."), "test");
        steps.command("it", program, Command::new(program));
        steps.run(&[])
    };
    run("true").unwrap();
    run("false").unwrap_err();
    run("./no-such-program").unwrap_err();
}

#[test]
fn the_summary_says_what_failed_and_how_to_run_just_that() {
    let done = |name: &str, verdict| Done {
        name: name.to_string(),
        shown: format!("do {name}"),
        took: Duration::from_millis(1500),
        verdict,
    };
    let error = || anyhow::anyhow!("exit status: 101");
    let part = Failure::of_part(error(), words(&["cargo test -p a", "cargo test -p b"]));
    let all = [
        done("fine", Verdict::Passed),
        done("tests", Verdict::Failed(part)),
        done("fuzz", Verdict::Failed(error().into())),
        done("clients", Verdict::NotRun { needs: "tools".to_string() }),
    ];
    let want = "\
4 steps in 6.0 s: 1 passed, 2 failed, 1 not run
       1.5 s  fine: ok
       1.5 s  tests: FAILED (exit status: 101)
       1.5 s  fuzz: FAILED (exit status: 101)
       1.5 s  clients: not run, since `tools` failed

To run just what failed:
  cargo test -p a
  cargo test -p b
  do fuzz
Then what was not run:
  cargo xtask test clients";
    assert_eq!(summary(&all, "test"), want);
    let short = summary(&all[..1], "ci");
    assert_eq!(short, "1 steps in 1.5 s: 1 passed, 0 failed, 0 not run\n       1.5 s  fine: ok");
    assert_eq!(words_of(Duration::from_secs(187)), "3 min 7 s");
}
