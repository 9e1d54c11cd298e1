//! `terrace load`: formats, compression, malformed input.

use crate::program::Program;

fn pack(text: impl AsRef<[u8]>) -> Vec<u8> {
    zstd::bulk::compress(text.as_ref(), 1).unwrap()
}

#[test]
fn tsv_is_loaded_by_columns() {
    let program = Program::new();
    let file = program.write("in.tsv", "k1\ta\tb\nk2\tc\td\r\nk3\te\tf");
    let said = program.ok(&["load", &file]);
    assert!(said.starts_with("loaded 3 records (15 B) from "), "{said}");
    assert_eq!(program.ok(&["scan"]), "k1\ta\\tb\nk2\tc\\td\nk3\te\\tf\n");
    program.ok(&["load", &file, "--key-column", "3", "--value-columns", "1", "--dir", "other"]);
    assert_eq!(program.ok(&["scan", "--dir", "other"]), "b\tk1\nd\tk2\nf\tk3\n");
}

#[test]
fn json_lines_are_loaded_by_fields() {
    let program = Program::new();
    let text = "{\"id\": 7, \"name\": \"seven\"}\n\n{\"id\": \"x\", \"name\": [1, 2]}\n";
    let file = program.write("in.jsonl", text);
    program.ok(&["load", &file, "--key-field", "id", "--value-field", "name"]);
    assert_eq!(program.ok(&["scan"]), "7\tseven\nx\t[1,2]\n");
    // What scan prints, load reads.
    let scanned = program.write("scan.ndjson.zst", pack(program.ok(&["scan", "--json"])));
    program.ok(&["load", &scanned, "--value-field", "value", "--dir", "again"]);
    assert_eq!(program.ok(&["scan", "--dir", "again"]), program.ok(&["scan"]));
    let said = program.fails(1, &["load", &file, "--dir", "third"]);
    assert!(said.contains("in.jsonl:1: there is no field `key`"), "{said}");
}

#[test]
fn standard_input_and_zstd_are_taken_too() {
    let program = Program::new();
    let input = pack("a\t1\nb\t2\n");
    let ran = program.run_with_input(&["load", "-"], &input);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.out.contains("2 records") && ran.out.contains("from standard input"),
        "{}",
        ran.out
    );
    program.run_with_input(&["load", "-", "--format", "json"], b"{\"key\": \"c\"}\n");
    assert_eq!(program.ok(&["scan"]), "a\t1\nb\t2\nc\t{\"key\": \"c\"}\n");
    // The name of a file does not decide whether it is compressed.
    let file = program.write("plain.zst", "d\t4\n");
    program.ok(&["load", &file]);
    assert_eq!(program.ok(&["get", "d"]), "4\n");
}

#[test]
fn malformed_lines_are_named_and_what_stands_before_is_kept() {
    let program = Program::new();
    let long = format!("{}\tv", "k".repeat(70_000));
    let cases: [(&str, String, &[&str]); 6] = [
        ("in.tsv", "a\t1\nb\n".into(), &["--value-columns", "2"]),
        ("in.tsv", "a\t1\n\nc\t3\n".into(), &[]),
        ("in.tsv", "a\t1\n\tno key\n".into(), &[]),
        ("in.tsv", format!("a\t1\n{long}\n"), &[]),
        ("in.json", "{\"key\":\"a\"}\n{\"key\":\n".into(), &[]),
        ("in.json", "{\"key\":\"a\"}\n{\"key\":{}}\n".into(), &[]),
    ];
    for (number, (name, text, arguments)) in cases.into_iter().enumerate() {
        let dir = format!("store{number}");
        let file = program.write(name, text);
        let command = [&["load", &file, "--dir", &dir], arguments].concat();
        let said = program.fails(1, &command);
        assert!(said.contains(&format!("{name}:2: ")), "{said}");
        assert!(said.contains("the first 1 records are loaded"), "{said}");
        assert_eq!(program.ok(&["scan", "--keys-only", "--dir", &dir]), "a\n");
        assert!(program.ok(&["verify", "--dir", &dir]).ends_with("sound\n"));
    }
}

#[test]
fn a_cut_off_or_damaged_compressed_file_is_told() {
    let program = Program::new();
    let lines: String = (0..50_000).map(|n| format!("key{n}\tvalue {}\n", n * 7919)).collect();
    let whole = pack(lines);
    let file = program.write("cut.tsv.zst", &whole[..whole.len() / 2]);
    let said = program.fails(1, &["load", &file]);
    assert!(said.contains("cut off or damaged after line"), "{said}");
    let count: usize = said
        .split("the first ")
        .nth(1)
        .map_or(0, |rest| rest.split(' ').next().unwrap().parse().unwrap());
    assert_eq!(program.ok(&["scan", "--keys-only"]).lines().count(), count);
    let file = program.write("bad.tsv.zst", [&whole[..40], b"garbage"].concat());
    let said = program.fails(1, &["load", &file, "--dir", "bad"]);
    assert!(said.contains("damaged"), "{said}");
}

#[test]
fn a_file_that_cannot_be_read_makes_no_store() {
    let program = Program::new();
    assert!(program.fails(1, &["load", "nowhere.tsv"]).contains("cannot open nowhere.tsv"));
    assert!(program.fails(1, &["load", "."]).contains("directory"));
    assert!(!program.store().exists());
    let empty = program.write("empty.tsv", "");
    assert!(program.ok(&["load", &empty]).starts_with("loaded 0 records"));
}

#[test]
fn durable_counts_are_reported_batch_by_batch() {
    let program = Program::new();
    let file = program.write("in.tsv", "a\t1\nb\t2\nc\t3\nd\t4\ne\t5\n");
    let arguments = ["load", &file, "--sync", "--report-durable", "--batch", "2"];
    let said = program.ok(&arguments);
    assert!(said.starts_with("durable 2\ndurable 4\ndurable 5\nloaded 5 records"), "{said}");
}
