//! A second process beside one that has the store open for writing.

use crate::program::Program;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

#[test]
fn writers_are_refused_and_readers_served_while_the_lock_is_held() {
    let program = Program::new();
    let arguments = ["load", "-", "--sync", "--report-durable", "--batch", "1"];
    let mut command = program.command(&arguments);
    let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = holder.stdin.take().unwrap();
    let mut output = BufReader::new(holder.stdout.take().unwrap());
    input.write_all(b"first\t1\nsecond\t2\n").unwrap();
    // The last line is only sure to be one when the next begins.
    input.write_all(b"third").unwrap();
    let mut line = String::new();
    while line != "durable 2\n" {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the holder ended");
    }

    let file = program.write("in.tsv", "k\tv\n");
    let writers: [&[&str]; 5] = [
        &["put", "k", "v"],
        &["delete", "first"],
        &["compact"],
        &["checkpoint", "c"],
        &["load", &file],
    ];
    for writer in writers {
        let said = program.fails(1, writer);
        assert!(said.contains("open elsewhere"), "{said}");
    }
    assert_eq!(program.ok(&["get", "second"]), "2\n");
    assert_eq!(program.ok(&["scan"]), "first\t1\nsecond\t2\n");
    program.ok(&["stats"]);
    program.ok(&["inspect", "lsm"]);
    assert!(program.ok(&["verify"]).ends_with("sound\n"));

    input.write_all(b"\t3\n").unwrap();
    drop(input);
    assert!(holder.wait().unwrap().success());
    assert_eq!(program.ok(&["get", "third"]), "3\n");
    program.ok(&["put", "fourth", "4"]);
}
