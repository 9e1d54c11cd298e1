//! `terrace load`: formats, compression, malformed input.

use crate::program::Program;
use std::io::Write;

fn pack(text: impl AsRef<[u8]>) -> Vec<u8> {
    zstd::bulk::compress(text.as_ref(), 1).unwrap()
}

fn gzip(text: impl AsRef<[u8]>) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_ref()).unwrap();
    packed.finish().unwrap()
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
    assert_eq!(program.ok(&["scan"]), "7\tseven\nx\t[1, 2]\n");
    // What scan prints, load reads.
    let scanned = program.write("scan.ndjson.zst", pack(program.ok(&["scan", "--json"])));
    program.ok(&["load", &scanned, "--dir", "again"]);
    assert_eq!(program.ok(&["scan", "--dir", "again"]), program.ok(&["scan"]));
    let said = program.fails(1, &["load", &file, "--dir", "third"]);
    assert!(said.contains("in.jsonl:1: there is no field `key`"), "{said}");
    assert!(!program.path("third").exists(), "a refused file made a store");
}

#[test]
fn what_scan_prints_as_json_load_takes_back_byte_for_byte() {
    let program = Program::new();
    let next_century = "4102444800000";
    let odd = [
        ("0x00ff", "0x80"),
        ("0x0a0d09", "0x"),
        ("0xefbbbf", "0x225c"),
        ("0x6b6579", "0xeda080"),
        ("0x7b7d", "0x3078ff"),
    ];
    for (key, value) in odd {
        program.ok(&["put", "--hex", key, value]);
    }
    let long = "x".repeat(40_000);
    program.ok(&["put", "ttl", &long, "--ttl", "90d"]);
    let printed = program.ok(&["scan", "--json"]);
    assert!(printed.contains("\"expires_at_ms\":"), "{printed}");
    let ran = program.run_with_input(&["load", "-", "--dir", "again"], printed.as_bytes());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(program.ok(&["scan", "--json", "--dir", "again"]), printed);
    assert_eq!(program.ok(&["scan", "--hex", "--dir", "again"]), program.ok(&["scan", "--hex"]));
    // An expiry that the input names is the one that is kept.
    let line = format!("{{\"key\":\"k\",\"value\":\"v\",\"expires_at_ms\":{next_century}}}\n");
    program.run_with_input(&["load", "-", "--dir", "third"], line.as_bytes());
    assert!(program.ok(&["scan", "--json", "--dir", "third"]).contains(next_century));
}

#[test]
fn csv_is_loaded_by_columns_and_by_names() {
    let program = Program::new();
    let text = "\u{feff}id,name,note\r\n1,rice,\"a, b\"\r\n2,tea,\"two\nlines\"\r\n";
    let file = program.write("in.csv", text);
    program.ok(&["load", &file, "--header"]);
    assert_eq!(program.ok(&["scan"]), "1\trice,\"a, b\"\n2\ttea,\"two\\nlines\"\n");
    let named = ["--header", "--key-field", "name", "--value-field", "note", "--dir", "named"];
    program.ok(&[&["load", &file][..], &named].concat());
    assert_eq!(program.ok(&["get", "tea", "--dir", "named"]), "two\nlines\n");
    let bad = program.write("bad.csv", "a,b\nc,d\ne\n");
    let said = program.fails(1, &["load", &bad, "--dir", "bad"]);
    assert!(said.contains("bad.csv:3: the record has 1 column; line 1 has 2"), "{said}");
    assert!(said.contains("the first 2 records are loaded"), "{said}");
}

#[test]
fn the_format_is_told_by_name_and_content() {
    let program = Program::new();
    let cases: [(&str, Vec<u8>); 7] = [
        ("in.csv.gz", gzip("k,v\n")),
        ("in.csv.zst", pack("k,v\n")),
        ("in", gzip("k\tv\n")),
        ("in.txt", b"k,v\n".to_vec()),
        ("in.gz", b"k\tv\n".to_vec()),
        ("in.dat", b"{\"key\":\"k\",\"value\":\"v\"}\n".to_vec()),
        ("in.tsv", b"k\tv".to_vec()),
    ];
    for (number, (name, content)) in cases.into_iter().enumerate() {
        let dir = format!("store{number}");
        let file = program.write(name, content);
        program.ok(&["load", &file, "--dir", &dir]);
        assert_eq!(program.ok(&["scan", "--dir", &dir]), "k\tv\n", "{name}");
    }
    let ran = program.run_with_input(&["load", "-"], &gzip("k,v\nl,w\n"));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(program.ok(&["get", "l"]), "w\n");
}

/// Its lines were loaded by the time that its end tells, and the message says what to think of them.
#[test]
fn a_compressed_file_whose_checksum_is_wrong_says_that_what_is_loaded_may_be() {
    let program = Program::new();
    let mut packed = gzip("k\tv\nl\tw\n");
    let at = packed.len() - 8;
    packed[at] ^= 1;
    let file = program.write("in.tsv.gz", packed);
    let said = program.fails(1, &["load", &file]);
    assert!(said.contains("the first 2 records are loaded, the rest is not: "), "{said}");
    assert!(said.contains("after line 2, and lines before that may be wrong"), "{said}");
}

#[test]
fn the_empty_key_comes_back_from_a_scan() {
    let program = Program::new();
    program.ok(&["put", "", "of the empty key"]);
    program.ok(&["put", "k", "v"]);
    let scanned = program.write("scan.ndjson", program.ok(&["scan", "--json"]));
    program.ok(&["load", &scanned, "--dir", "again"]);
    assert_eq!(program.ok(&["scan", "--dir", "again"]), "\tof the empty key\nk\tv\n");
}

#[test]
fn what_is_not_understood_is_refused_before_there_is_a_store() {
    let program = Program::new();
    let cases: [(&str, &[u8], &str); 9] = [
        ("a.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "no text"),
        ("a.csv", b"k,v\0\n", "no text"),
        ("a.zip", b"PK\x03\x04\x14\0", "ZIP"),
        ("a.tsv.bz2", b"BZh91AY&SY", "bzip2"),
        ("a.tsv.xz", b"\xfd7zXZ\0\0", "xz"),
        ("prose.txt", b"Once upon a time\nthere was\n", "say --format"),
        ("a.json", b"[\n1]\n", "a.json:1: the line is not JSON"),
        ("half.csv", b"\"k,v\n", "half.csv:1: a quote is never closed"),
        ("wide.tsv", b"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk\tv\n", "longer than 20 B"),
    ];
    for (name, content, want) in cases {
        let file = program.write(name, content);
        let said = program.fails(1, &["load", &file, "--max-line", "20"]);
        assert!(said.contains(want) && said.contains(name), "{name}: {said}");
    }
    assert_eq!(program.run(&["load", ""]).code, 2);
    assert!(program.fails(1, &["load", "/"]).contains("directory"));
    let ran = program.run_with_input(&["load", "-"], b"\xff\xfea\0\t\0");
    assert!(ran.failed(1).contains("cannot load standard input: it is no text"));
    assert!(!program.store().exists(), "a refused file made a store");
    // With a format named, keys may be binary.
    let ran = program.run_with_input(&["load", "-", "--format", "tsv"], b"k\0\tv\n");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(program.ok(&["scan", "--hex"]), "0x6b00\t0x76\n");
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
fn a_first_record_that_no_store_takes_makes_none() {
    let program = Program::new();
    let long = format!("{}\tv\na\t1\n", "k".repeat(70_000));
    for (name, text) in [("in.tsv", long.clone()), ("header.tsv", format!("key\tvalue\n{long}"))] {
        let file = program.write(name, text);
        let header: &[&str] = if name == "in.tsv" { &[] } else { &["--header"] };
        let said = program.fails(1, &[&["load", &file], header].concat());
        let line = if header.is_empty() { 1 } else { 2 };
        assert!(said.contains(&format!("{name}:{line}: the key has 70000 bytes")), "{said}");
        assert!(said.contains("nothing was loaded"), "{said}");
        assert!(!program.store().exists(), "a refused file made a store");
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
