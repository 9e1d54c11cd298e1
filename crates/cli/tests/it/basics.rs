//! get, put, delete, scan, stats, compact, checkpoint, verify, inspect on a sound store, and what
//! they say where there is none.

use crate::program::Program;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn what_is_put_is_there_until_it_is_deleted() {
    let program = Program::new();
    program.ok(&["put", "apple", "red"]);
    program.ok(&["put", "pear", "green and\nlong"]);
    program.run_with_input(&["put", "piped", "-"], b"a\0b\n");
    assert_eq!(program.ok(&["get", "apple"]), "red\n");
    assert_eq!(program.ok(&["get", "piped", "--raw"]), "a\0b\n");
    assert_eq!(program.ok(&["scan"]), "apple\tred\npear\tgreen and\\nlong\npiped\ta\\x00b\\n\n");
    program.ok(&["delete", "apple"]);
    program.ok(&["delete", "never there"]);
    assert!(program.fails(1, &["get", "apple"]).contains("no key `apple`"));
    program.ok(&["delete", "--range", "p", "pf"]);
    assert_eq!(program.ok(&["scan", "--keys-only"]), "piped\n");
    assert!(program.fails(1, &["delete", "--range", "b", "a"]).contains("range is empty"));
}

#[test]
fn several_ranges_are_deleted_or_none_of_them() {
    let program = Program::new();
    for key in ["a", "b", "c", "d", "e"] {
        program.ok(&["put", key, "1"]);
    }
    let refused = ["delete", "--range", "a", "b", "--range", "e", "d"];
    assert!(program.fails(1, &refused).contains("range is empty"));
    assert_eq!(program.ok(&["scan", "--keys-only"]), "a\nb\nc\nd\ne\n");
    program.ok(&["delete", "--range", "a", "b", "--range", "c", "e"]);
    assert_eq!(program.ok(&["scan", "--keys-only"]), "b\ne\n");
}

#[test]
fn keys_and_values_may_be_negative_numbers_and_others_with_a_dash_follow_two() {
    let program = Program::new();
    program.ok(&["put", "-1", "-5.5"]);
    assert_eq!(program.ok(&["get", "-1"]), "-5.5\n");
    program.ok(&["put", "--", "-k", "-v"]);
    assert_eq!(program.ok(&["get", "--", "-k"]), "-v\n");
    program.ok(&["delete", "-1"]);
    assert_eq!(program.run(&["get", "-1"]).code, 1);
    assert_eq!(program.run(&["put", "-k", "v"]).code, 2);
    for key in ["-1", "-2", "-3"] {
        program.ok(&["put", key, "v"]);
    }
    assert_eq!(program.ok(&["scan", "--from", "-2", "--to", "-3", "--keys-only"]), "-2\n");
    assert_eq!(program.ok(&["scan", "--prefix", "-3", "--keys-only"]), "-3\n");
    program.ok(&["compact", "--from", "-1", "--to", "-3"]);
    program.ok(&["delete", "--range", "-1", "-3"]);
    assert_eq!(program.ok(&["scan", "--prefix", "-3", "--keys-only", "--reverse"]), "-3\n");
    assert_eq!(program.ok(&["scan", "--to", "-3"]), "");
}

#[test]
fn keys_and_values_can_be_hex() {
    let program = Program::new();
    program.ok(&["put", "--hex", "0x00ff", "0x0a"]);
    program.ok(&["put", "0x00ff", "text"]);
    assert_eq!(program.ok(&["get", "--hex", "00FF"]), "0x0a\n");
    assert_eq!(program.ok(&["scan", "--hex"]), "0x00ff\t0x0a\n0x307830306666\t0x74657874\n");
    assert_eq!(program.ok(&["scan", "--hex", "--from", "0x01", "--keys-only"]), "0x307830306666\n");
    let json = program.ok(&["scan", "--json", "--limit", "1"]);
    assert_eq!(json, "{\"key_hex\":\"0x00ff\",\"value\":\"\\n\"}\n");
    assert!(program.fails(1, &["get", "--hex", "0x0"]).contains("not hex"));
}

#[test]
fn a_ttl_ends_a_key() {
    let program = Program::new();
    program.ok(&["put", "short", "1", "--ttl", "1ms"]);
    program.ok(&["put", "long", "2", "--ttl", "1h"]);
    let start = Instant::now();
    while program.run(&["get", "short"]).code == 0 {
        assert!(start.elapsed() < Duration::from_secs(600), "the key does not expire");
    }
    assert_eq!(program.ok(&["scan"]), "long\t2\n");
}

#[test]
fn scans_have_bounds_prefix_limit_and_direction() {
    let program = Program::new();
    let file = program.write("in.tsv", "a1\t1\na2\t2\nb1\t3\nb2\t4\nc1\t5\n");
    program.ok(&["load", &file]);
    let keys = |arguments: &[&str]| {
        let all = [&["scan", "--keys-only"], arguments].concat();
        program.ok(&all).lines().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys(&[]), "a1 a2 b1 b2 c1");
    assert_eq!(keys(&["--prefix", "b"]), "b1 b2");
    assert_eq!(keys(&["--from", "a2", "--to", "c1"]), "a2 b1 b2");
    assert_eq!(keys(&["--reverse", "--limit", "2"]), "c1 b2");
    assert_eq!(keys(&["--reverse", "--to", "b2"]), "b1 a2 a1");
    assert_eq!(keys(&["--limit", "0"]), "");
}

#[test]
fn stats_say_what_is_durable_and_what_is_since_this_open() {
    let program = Program::with_store();
    let text = program.ok(&["stats"]);
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("durable, in the store's files: ") && first.contains("20,000 entries"),
        "{text}"
    );
    assert!(text.lines().nth(1).unwrap().starts_with("of this process, since it opened"), "{text}");
    let json =
        || serde_json::from_str::<serde_json::Value>(&program.ok(&["stats", "--json"])).unwrap();
    let (one, two) = (json(), json());
    let scope = |name: &str| -> Vec<String> {
        serde_json::from_value(one["scopes"][name].clone()).unwrap()
    };
    let mut named = [scope("durable"), scope("now"), scope("since_open")].concat();
    let figure = |stats: &serde_json::Value, name: &str| match name.strip_prefix("levels.") {
        Some(name) => {
            stats["levels"].as_array().unwrap().iter().map(|level| level[name].clone()).collect()
        }
        None => stats[name].clone(),
    };
    for name in &named {
        assert!(!figure(&one, name).is_null(), "{name} is no figure");
    }
    for name in scope("durable") {
        assert_eq!(figure(&one, &name), figure(&two, &name), "{name} differs after another open");
    }
    assert!(
        scope("since_open").iter().any(|name| name == "ops_written") && one["ops_written"] == 0
    );
    let count = named.len();
    named.sort();
    named.dedup();
    let levels = one["levels"][0].as_object().unwrap().len();
    let fields = one.as_object().unwrap().len() - 2 + levels;
    assert_eq!((named.len(), count), (fields, fields), "each figure has one scope: {named:?}");
}

#[test]
fn stats_come_as_text_json_and_prometheus() {
    let program = Program::with_store();
    let text = program.ok(&["stats"]);
    assert!(text.contains("level  files") && text.contains("cache"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&program.ok(&["stats", "--json"])).unwrap();
    let levels = json["levels"].as_array().unwrap();
    let entries: u64 = levels.iter().map(|level| level["entry_count"].as_u64().unwrap()).sum();
    assert_eq!(entries, 20_000);
    let prometheus = program.ok(&["stats", "--prometheus"]);
    assert!(prometheus.contains("terrace_level_files{level=\"6\"}"), "{prometheus}");
    assert_eq!(program.run(&["stats", "--json", "--prometheus"]).code, 2);
}

#[test]
fn compact_checkpoint_and_verify_work_together() {
    let program = Program::with_store();
    program.ok(&["delete", "--range", "key000000", "key010000"]);
    // The background may have merged everything before it was asked to.
    let said = program.ok(&["compact"]);
    let merged = said.starts_with("compacted in") && said.contains("now take");
    assert!(merged || said.starts_with("nothing to compact"), "{said}");
    let shape = program.ok(&["inspect", "lsm"]);
    assert!(shape.contains("L6") && !shape.contains("key000000"), "{shape}");
    program.ok(&["checkpoint", "copy"]);
    program.ok(&["put", "key010000", "changed later"]);
    assert!(program.ok(&["get", "key010000", "--dir", "copy"]).starts_with("value 10000 "));
    assert_eq!(program.ok(&["scan", "--keys-only", "--dir", "copy"]).lines().count(), 10_000);
    for dir in ["copy", "terrace-data"] {
        let report = program.ok(&["verify", "--dir", dir]);
        assert!(report.ends_with("sound\n") && report.contains("1 column families"), "{report}");
    }
    assert!(program.fails(1, &["checkpoint", "copy"]).contains("not empty"));
}

#[test]
fn inspect_shows_every_kind_of_file() {
    let program = Program::with_store();
    program.ok(&["put", "fresh", "one"]);
    let shown = program.ok(&["inspect", "lsm"]);
    assert!(shown.contains("family 0 \"default\"") && shown.contains("key019999"), "{shown}");
    let sst = program.live_sst().to_str().unwrap().to_string();
    let blocks = program.ok(&["inspect", "sst", &sst]);
    assert!(blocks.contains("data block") && !blocks.contains("entry 0"), "{blocks}");
    assert!(program.ok(&["inspect", "sst", &sst, "--keys"]).contains("entry 0"));
    assert!(program.ok(&["inspect", "manifest", "terrace-data"]).contains("in force"));
    assert!(program.ok(&["inspect", "log", "terrace-data"]).contains("recovery would replay"));
    let log = program.files(".log")[0].to_str().unwrap().to_string();
    assert!(program.ok(&["inspect", "log", &log, "--bytes"]).contains("magic"));
}

#[test]
fn a_drawing_replaces_no_file_of_a_store() {
    let program = Program::with_store();
    program.ok(&["compact"]);
    let sst = program.live_sst().to_str().unwrap().to_string();
    let said = program.fails(1, &["inspect", "sst", &sst, "--plot", "terrace-data/CURRENT"]);
    assert!(said.contains("terrace-data/CURRENT is a file of a store"), "{said}");
    program.ok(&["verify"]);
    program.ok(&["inspect", "sst", &sst, "--plot", "model.svg"]);
    assert!(std::fs::read(program.path("model.svg")).unwrap().starts_with(b"<svg"));
}

#[test]
fn where_there_is_no_store_every_command_says_so() {
    let program = Program::new();
    let reads: [&[&str]; 5] =
        [&["get", "k"], &["scan"], &["stats"], &["compact"], &["checkpoint", "copy"]];
    for command in reads {
        let said = program.fails(1, command);
        assert!(said.contains("no directory ./terrace-data") && said.contains("--dir"), "{said}");
    }
    assert!(program.fails(1, &["delete", "k"]).contains("no directory"));
    assert!(program.fails(2, &["verify"]).contains("holds no store"));
    for command in
        [["inspect", "lsm"], ["inspect", "log"], ["inspect", "sst"], ["inspect", "manifest"]]
    {
        program.fails(2, &[&command[..], &["nowhere"]].concat());
    }
    assert!(!program.store().exists(), "a command that reads made a directory");
}

#[test]
fn a_directory_of_other_files_is_left_alone() {
    let program = Program::new();
    std::fs::create_dir(program.path("photos")).unwrap();
    program.write("photos/cat.jpg", "meow");
    let input = program.write("in.tsv", "a\tb\n");
    let commands: [&[&str]; 3] = [&["put", "k", "v"], &["get", "k"], &["load", &input]];
    for command in commands {
        let said = program.fails(1, &[command, &["--dir", "photos"]].concat());
        assert!(said.contains("other files (cat.jpg)"), "{said}");
    }
    let said = program.fails(1, &["demo", "--dir", "photos"]);
    assert!(said.contains("not empty"), "{said}");
    assert_eq!(std::fs::read_dir(program.path("photos")).unwrap().count(), 1);
}

#[test]
fn a_file_in_the_place_of_a_directory_is_called_one_and_stays() {
    let program = Program::new();
    program.write("file", "meow");
    std::os::unix::fs::symlink("nowhere", program.path("link")).unwrap();
    let input = program.write("in.tsv", "a\tb\n");
    let commands: [&[&str]; 6] =
        [&["put", "k", "v"], &["get", "k"], &["load", &input], &["stats"], &["compact"], &["scan"]];
    for dir in ["file", "link"] {
        for command in commands {
            let said = program.fails(1, &[command, &["--dir", dir]].concat());
            assert!(said.contains(&format!("{dir} is no directory")), "{said}");
        }
    }
    assert_eq!(std::fs::read_to_string(program.path("file")).unwrap(), "meow");
    assert!(!program.path("nowhere").exists());
}

/// Whatever it is to be: a store, backups, or a place for one of them.
#[test]
fn each_command_that_takes_a_directory_says_that_a_file_is_none() {
    let program = Program::new();
    program.write("file", "meow");
    std::os::unix::fs::symlink("nowhere", program.path("link")).unwrap();
    program.ok(&["put", "k", "v"]);
    program.ok(&["keys", "new", "keys"]);
    program.ok(&["dump", "terrace-data", "dump"]);
    program.ok(&["backup", "create", "terrace-data", "backups"]);
    for dir in ["file", "link"] {
        let refused: [&[&str]; 10] = [
            &["keys", "used", dir],
            &["encrypt", dir, "--key-file", "keys"],
            &["decrypt", dir, "--key-file", "keys"],
            &["backup", "list", dir],
            &["backup", "create", "terrace-data", dir],
            &["backup", "restore", "backups", "latest", dir],
            &["checkpoint", dir],
            &["restore", "dump", dir],
            &["demo", "--dir", dir],
            &["cluster", "up", "--dir", dir],
        ];
        let unusable: [&[&str]; 3] =
            [&["verify", "--dir", dir], &["repair", dir], &["inspect", "lsm", dir]];
        let all = refused.into_iter().map(|it| (1, it)).chain(unusable.map(|it| (2, it)));
        for (code, command) in all {
            let said = program.fails(code, command);
            assert!(said.contains(&format!("{dir} is no directory; name ")), "{command:?}: {said}");
        }
        let ran = program.run(&["serve", "--port", "0", "--http-port", "0", "--dir", dir]);
        let said = format!("/{dir}: it is there and is no directory; name another one");
        assert!(ran.code == 1 && ran.err.contains(&said), "{}", ran.err);
    }
    assert_eq!(std::fs::read_to_string(program.path("file")).unwrap(), "meow");
    assert!(!program.path("nowhere").exists());
}

/// A link to itself; one to where the user may not look is met in the same way.
#[test]
fn of_what_cannot_be_looked_at_no_command_says_that_it_is_no_directory() {
    let program = Program::new();
    std::os::unix::fs::symlink("loop", program.path("loop")).unwrap();
    let why = program.path("loop").metadata().unwrap_err().to_string();
    let commands: [&[&str]; 4] = [
        &["verify", "--dir", "loop"],
        &["stats", "--dir", "loop"],
        &["demo", "--dir", "loop"],
        &["repair", "loop"],
    ];
    for command in commands {
        let said = program.fails(1, command);
        assert!(said.contains(&why) && !said.contains("no directory"), "{command:?}: {said}");
    }
}

#[test]
fn a_store_without_current_is_not_taken_for_a_new_one() {
    let program = Program::with_store();
    std::fs::remove_file(program.store().join("CURRENT")).unwrap();
    let before = program.files("").len();
    for command in [&["get", "k"][..], &["put", "k", "v"]] {
        assert!(program.fails(1, command).contains("lost its CURRENT"));
    }
    assert_eq!(program.files("").len(), before);
    let report = program.run(&["verify"]);
    assert_eq!(report.code, 1);
    assert!(
        report.out.contains("DAMAGE") && report.out.contains("20000 entries"),
        "{}",
        report.out
    );
}

#[test]
fn the_directory_comes_from_the_environment_too() {
    let program = Program::new();
    let mut put = program.command(&["put", "k", "v"]);
    assert!(put.env("TERRACE_DIR", program.path("elsewhere")).status().unwrap().success());
    assert_eq!(program.ok(&["get", "k", "--dir", "elsewhere"]), "v\n");
}

#[test]
fn arguments_are_checked() {
    let program = Program::new();
    let version = program.ok(&["--version"]);
    assert_eq!(version, format!("terrace {}\n", env!("CARGO_PKG_VERSION")));
    let bad: [&[&str]; 9] = [
        &[],
        &["frobnicate"],
        &["get"],
        &["delete"],
        &["delete", "k", "--range", "a", "b"],
        &["get", "k", "--memory", "lots"],
        &["put", "k", "v", "--ttl", "soon"],
        &["load", "f", "--report-durable"],
        &["scan", "--hex", "--json"],
    ];
    for arguments in bad {
        let ran = program.run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.err);
    }
    let said = program.fails(1, &["put", "k", "v", "--memory", "1M"]);
    assert!(said.contains("memory_budget") && said.contains("4 MiB"), "{said}");
    let long = "k".repeat(65_537);
    assert!(program.fails(1, &["put", &long, "v"]).contains("65536"));
    let long_name = "f".repeat(257);
    for family in ["", &long_name[..]] {
        let said = program.fails(1, &["put", "k", "v", "--family", family]);
        assert!(said.contains("1 to 256 bytes"), "{said}");
    }
    assert!(!program.store().exists(), "an empty store was made");
}

#[test]
fn verbose_tells_events_on_standard_error() {
    let program = Program::new();
    let ran = program.run(&["put", "k", "v", "-v"]);
    assert!(ran.code == 0 && ran.out.is_empty() && ran.err.contains("opened"), "{}", ran.err);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let program = Program::with_store();
    for arguments in [&["scan"][..], &["inspect", "log", "terrace-data"], &["inspect", "lsm"]] {
        let mut command = program.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", output.status);
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
