//! Encryption at rest from the command line: keys, every command that opens a store, a server, conversions.

use crate::process::Server;
use crate::program::{Program, corrupt};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

const SECRET: &str = "nobody-reads-this";

/// Whether a file below `dir` has the secret in the clear.
fn is_readable(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().any(|entry| {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => is_readable(&entry.path()),
            false => {
                let bytes = fs::read(entry.path()).unwrap();
                bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
            }
        }
    })
}

/// `arguments` with the key file `keys`.
fn with_keys<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [arguments, &["--key-file", "keys"]].concat()
}

#[test]
fn every_command_works_on_an_encrypted_store_and_none_without_its_keys() {
    let program = Program::new();
    let told = program.ok(&["keys", "new", "keys"]);
    assert!(told.starts_with("key 1 is in keys; "), "{told}");
    assert_eq!(fs::metadata(program.path("keys")).unwrap().permissions().mode() & 0o777, 0o600);
    let large = SECRET.repeat(500);
    program.write("large", &large);
    for (key, value) in [("a", SECRET), (SECRET, "b")] {
        program.ok(&with_keys(&["put", key, value]));
    }
    let records: String = (0..500).map(|n| format!("{SECRET}-{n}\t{large}\n")).collect();
    program.write("records.tsv", records);
    program.ok(&with_keys(&["load", "records.tsv"]));
    assert!(!is_readable(&program.store()));

    assert_eq!(program.ok(&with_keys(&["get", "a"])).trim_end(), SECRET);
    assert_eq!(program.ok(&with_keys(&["scan"])).lines().count(), 502);
    program.ok(&with_keys(&["stats"]));
    program.ok(&with_keys(&["compact"]));
    program.ok(&with_keys(&["verify"]));
    program.ok(&with_keys(&["inspect", "lsm", "terrace-data"]));
    program.ok(&with_keys(&["repair", "terrace-data"]));
    program.ok(&with_keys(&["checkpoint", "copy"]));
    program.ok(&with_keys(&["backup", "create", "terrace-data", "backups"]));
    program.ok(&with_keys(&["backup", "verify", "backups"]));
    program.ok(&with_keys(&["backup", "restore", "backups", "latest", "restored"]));
    for dir in ["copy", "restored"] {
        assert_eq!(program.ok(&with_keys(&["get", "a", "--dir", dir])).trim_end(), SECRET);
    }
    for dir in ["terrace-data", "copy", "backups", "restored"] {
        assert!(!is_readable(&program.path(dir)), "{dir}");
    }
    // A dump is not encrypted, and says everything; a store that is made of it is as the keys say.
    program.ok(&with_keys(&["dump", "terrace-data", "dumped"]));
    program.ok(&with_keys(&["restore", "dumped", "again"]));
    assert!(!is_readable(&program.path("again")));

    let without = "is encrypted: open the store with its keys";
    for arguments in [
        &["get", "a"][..],
        &["put", "a", "b"],
        &["scan"],
        &["stats"],
        &["compact"],
        &["checkpoint", "another"],
        &["backup", "create", "terrace-data", "others"],
        &["dump", "terrace-data", "other"],
        &["repair", "terrace-data"],
        &["repair", "--from-lost", "terrace-data"],
    ] {
        let ran = program.run(arguments);
        assert!(ran.code != 0 && ran.err.contains(without), "{arguments:?}: {}", ran.err);
    }
    for arguments in [&["verify"][..], &["inspect", "lsm", "terrace-data"]] {
        let ran = program.run(arguments);
        let told = format!("{}{}", ran.out, ran.err);
        assert!(ran.code != 0 && told.contains("encrypted"), "{arguments:?}: {told}");
    }
    program.ok(&["keys", "new", "others"]);
    let wrong = program.fails(1, &["get", "a", "--key-file", "others"]);
    assert!(wrong.contains("another key 1 than the one given"), "{wrong}");
    assert_eq!(program.ok(&with_keys(&["get", "a"])).trim_end(), SECRET);
}

#[test]
fn an_encrypted_backup_that_is_not_whole_keeps_no_other_from_being_verified() {
    let program = Program::new();
    program.ok(&["keys", "new", "keys"]);
    for key in ["a", "b"] {
        program.ok(&with_keys(&["put", key, SECRET]));
        program.ok(&with_keys(&["backup", "create", "terrace-data", "backups"]));
    }
    let verify = |arguments: &[&str], why: &str| {
        let verified = program.run(arguments);
        assert_eq!((verified.code, verified.err.as_str()), (1, ""));
        for (line, id) in verified.out.lines().zip(["1", "2"]) {
            let is_told = line.starts_with(&format!("backup {id}: ")) && line.contains(why);
            assert!(is_told, "{}", verified.out);
        }
        assert_eq!(verified.out.lines().count(), 2, "{}", verified.out);
    };
    verify(&["backup", "verify", "backups"], "it is encrypted");
    for entry in fs::read_dir(program.path("backups/files")).unwrap() {
        let path = entry.unwrap().path();
        corrupt(&path, fs::read(&path).unwrap().len() / 2);
    }
    verify(&with_keys(&["backup", "verify", "backups"]), "is damaged");
}

#[test]
fn a_store_is_encrypted_gets_another_key_and_is_decrypted() {
    let program = Program::new();
    program.ok(&["put", "a", SECRET]);
    program.ok(&["keys", "new", "keys"]);
    assert!(is_readable(&program.store()));
    let plain = program.fails(1, &with_keys(&["get", "a"]));
    assert!(plain.contains("it is not encrypted"), "{plain}");
    assert!(program.ok(&["keys", "used", "terrace-data"]).starts_with("not encrypted: "));

    program.ok(&with_keys(&["encrypt", "terrace-data"]));
    assert!(!is_readable(&program.store()));
    assert_eq!(program.ok(&with_keys(&["get", "a"])).trim_end(), SECRET);
    let used = program.ok(&["keys", "used", "terrace-data"]);
    assert!(used.starts_with("key 1: ") && used.lines().count() == 1, "{used}");

    // New files have the new key, the others get it by `encrypt`.
    assert!(program.ok(&["keys", "new", "keys"]).starts_with("key 2 is in keys"));
    program.ok(&with_keys(&["put", "b", "c"]));
    let used = program.ok(&["keys", "used", "terrace-data"]);
    assert!(used.starts_with("key 1: ") && used.contains("\nkey 2: "), "{used}");
    program.ok(&with_keys(&["encrypt", "terrace-data"]));
    let used = program.ok(&["keys", "used", "terrace-data"]);
    assert!(used.starts_with("key 2: ") && used.lines().count() == 1, "{used}");
    assert!(program.ok(&with_keys(&["encrypt", "terrace-data"])).starts_with("0 files "));

    program.ok(&with_keys(&["decrypt", "terrace-data"]));
    assert_eq!(program.ok(&["get", "a"]).trim_end(), SECRET);
    program.ok(&["verify"]);
}

#[test]
fn what_is_no_key_file_is_refused_before_anything_is_opened() {
    let program = Program::new();
    program.write("keys", "1 abc\n");
    let bad = program.fails(1, &with_keys(&["put", "a", "b"]));
    assert!(bad.contains("line 1 of the keys: a key has 64 hexadecimal digits"), "{bad}");
    let bad = program.fails(1, &["keys", "new", "keys"]);
    assert!(bad.contains("line 1 of the keys"), "{bad}");
    assert_eq!(fs::read_to_string(program.path("keys")).unwrap(), "1 abc\n");
    let missing = program.fails(1, &["get", "a", "--key-file", "nowhere"]);
    assert!(missing.contains("key file nowhere: "), "{missing}");
    let missing = program.fails(1, &["encrypt", "terrace-data"]);
    assert!(missing.contains("name the key file"), "{missing}");
    assert!(!program.store().exists());
}

/// What a server answers to these inline requests.
fn ask(server: &Server, requests: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    write!(stream, "{requests}\r\nQUIT\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_server_keeps_its_store_encrypted() {
    let program = Program::new();
    program.ok(&["keys", "new", "keys"]);
    let ways: [&[&str]; 3] = [
        &["--encryption-key-file", "keys"],
        &["--key-file", "keys"],
        &["--encryption-key-file", "keys"],
    ];
    for (round, flags) in ways.into_iter().enumerate() {
        let mut server = Server::terrace(program.command(&[]), flags);
        if round > 0 {
            assert!(ask(&server, "GET key").contains(SECRET));
        }
        let answer = ask(&server, &format!("SET key {SECRET}\r\nHSET {SECRET} f {SECRET}\r\nSAVE"));
        assert!(answer.starts_with("+OK\r\n:"), "{answer}");
        ask(&server, "SHUTDOWN");
        server.end_well();
        assert!(!is_readable(&program.store()));
    }
    let mut command = program.command(&["serve", "--port", "0", "--http-port", "0"]);
    let refused = command.output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("it is encrypted"), "{told}");
}

#[test]
fn keys_that_are_made_at_the_same_time_are_all_there() {
    let program = Program::new();
    // As a call that was killed leaves it.
    program.write("keys.4000000000.partial", "1 secret");
    program.write("keys.partial", "another's");
    let calls: Vec<_> = (0..12)
        .map(|_| program.command(&["keys", "new", "keys"]).stdout(Stdio::piped()).spawn().unwrap())
        .collect();
    let mut told: Vec<String> = calls
        .into_iter()
        .map(|call| String::from_utf8(call.wait_with_output().unwrap().stdout).unwrap())
        .collect();
    told.sort_by_key(|told| told.split(' ').nth(1).and_then(|number| number.parse::<u32>().ok()));
    for (at, told) in told.iter().enumerate() {
        assert!(told.starts_with(&format!("key {} is in keys; ", at + 1)), "{told}");
    }
    let keys = fs::read_to_string(program.path("keys")).unwrap();
    assert_eq!(keys.lines().count(), 12);
    assert!(!program.path("keys.4000000000.partial").exists());
    assert!(program.path("keys.partial").exists());
}

#[test]
fn what_names_no_key_file_is_told_apart_from_what_should() {
    let program = Program::new();
    program.ok(&["keys", "new", "keys"]);
    let demo = program.fails(1, &["demo", "--key-file", "keys"]);
    assert!(demo.contains("is not encrypted"), "{demo}");
    // A variable without a value, as composed containers pass it.
    let mut command = program.command(&["put", "a", "1"]);
    assert!(command.env("TERRACE_ENCRYPTION_KEY_FILE", "").status().unwrap().success());
    assert!(program.ok(&["get", "a"]).starts_with('1'));
    let mut command = program.command(&["get", "a"]);
    let refused = command.env("TERRACE_ENCRYPTION_KEY_FILE", "keys").output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("not encrypted"));
    program.write("bad", "1 zz");
    let bad = program.fails(1, &["get", "a", "--key-file", "bad"]);
    assert!(bad.contains("bad: line 1 of the keys"), "{bad}");
    // A store is not damaged because its key is missing.
    program.ok(&["encrypt", "terrace-data", "--key-file", "keys"]);
    let checked = program.run(&["verify"]);
    assert!(checked.code != 0 && checked.out.contains("NOT CHECKED"), "{}", checked.out);
    assert!(!checked.out.contains("DAMAGE"), "{}", checked.out);
    // No file of a store is written over.
    let over = ["dump", "terrace-data", "terrace-data/CURRENT", "--key-file", "keys"];
    let over = program.fails(1, &over);
    assert!(over.contains("is a file of a store"), "{over}");
    assert!(program.fails(1, &["keys", "new", "terrace-data/LOCK"]).contains("of a store"));
    // It has no end.
    let said = program.fails(1, &["keys", "new", "/dev/zero"]);
    assert!(said.contains("/dev/zero is longer than any key file"), "{said}");
    assert!(program.ok(&["get", "a", "--key-file", "keys"]).starts_with('1'));
}

/// What a link leads to would stay in the clear.
#[test]
fn a_store_with_links_among_its_files_is_not_encrypted() {
    let program = Program::new();
    program.ok(&["keys", "new", "keys"]);
    program.ok(&["put", "a", SECRET]);
    program.ok(&["compact"]);
    fs::create_dir_all(program.path("terrace-data/lost")).unwrap();
    program.write("terrace-data/lost/000001.sst", SECRET);
    let sst = program.files(".sst").remove(0);
    let moved = |path: &Path| {
        let elsewhere = program.path("elsewhere");
        fs::rename(path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, path).unwrap();
        let said = program.fails(1, &with_keys(&["encrypt", "terrace-data"]));
        assert!(said.contains("is a symbolic link"), "{}: {said}", path.display());
        fs::remove_file(path).unwrap();
        fs::rename(&elsewhere, path).unwrap();
        assert_eq!(program.ok(&["get", "a"]).trim_end(), SECRET);
    };
    let lost = program.path("terrace-data/lost");
    [sst, lost.join("000001.sst"), lost].iter().for_each(|path| moved(path));
    program.ok(&with_keys(&["encrypt", "terrace-data"]));
    assert!(!is_readable(&program.store()));
}
