//! `terrace dump` and `terrace restore`: full circles, damage, kills, a full disk, a running server.

use crate::process::Server;
use crate::program::Program;
use redis::{Connection, cmd};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use terrace::{CfOptions, Db, Options, WriteBatch};
use terrace_resp::test_client::HANG_GUARD;

/// Unix milliseconds that no test lives to see.
const NEXT_CENTURY: u64 = 4_102_444_800_000;

/// A store in `served` behind a server, killed when it is dropped.
fn serve(program: &Program, dir: &str) -> (Server, Connection) {
    let server = Server::terrace(program.command(&[]), &["--dir", dir]);
    let client = redis::Client::open(("127.0.0.1", server.port)).unwrap();
    (server, client.get_connection().unwrap())
}

/// Every type, with and without expiry, with bytes that are no text, in two databases.
fn fill(connection: &mut Connection) {
    let mut run = |words: &[&[u8]]| {
        let mut command = cmd(std::str::from_utf8(words[0]).unwrap());
        words[1..].iter().for_each(|word| {
            command.arg(*word);
        });
        command.query::<redis::Value>(connection).unwrap();
    };
    let at = NEXT_CENTURY.to_string();
    let at = at.as_bytes();
    let large = vec![b'x'; 300_000];
    run(&[b"SET", b"text", b"value"]);
    run(&[b"SET", b"\x00\xff\n", b"\xff\x00\r\n"]);
    run(&[b"SET", b"empty", b""]);
    run(&[b"SET", b"large", &large]);
    run(&[b"SET", b"late", b"v", b"PXAT", at]);
    run(&[b"HSET", b"hash", b"f", b"1", b"\xff", b"\x00", b"g", &large]);
    run(&[b"SADD", b"set", b"a", b"\xfe", b"b"]);
    run(&[b"ZADD", b"zset", b"-inf", b"low", b"1.5", b"mid", b"inf", b"high"]);
    run(&[b"RPUSH", b"list", b"one", b"two"]);
    run(&[b"LPUSH", b"list", b"zero"]);
    for name in [&b"hash"[..], b"set", b"zset", b"list"] {
        let copy = [name, b":late"].concat();
        run(&[b"COPY", name, &copy]);
        run(&[b"PEXPIREAT", &copy, at]);
    }
    run(&[b"SELECT", b"3"]);
    run(&[b"SET", b"text", b"of database 3"]);
    run(&[b"SELECT", b"0"]);
}

/// What clients see of all keys, in both databases.
fn seen(connection: &mut Connection) -> Vec<String> {
    let mut all = Vec::new();
    for database in [0, 3] {
        cmd("SELECT").arg(database).exec(connection).unwrap();
        let mut keys: Vec<Vec<u8>> = cmd("KEYS").arg("*").query(connection).unwrap();
        keys.sort();
        for key in keys {
            let kind: String = cmd("TYPE").arg(&key).query(connection).unwrap();
            let expiry: i64 = cmd("PEXPIRETIME").arg(&key).query(connection).unwrap();
            let read = match kind.as_str() {
                "string" => cmd("GET").arg(&key).to_owned(),
                "hash" => cmd("HGETALL").arg(&key).to_owned(),
                "set" => cmd("SMEMBERS").arg(&key).to_owned(),
                "zset" => cmd("ZRANGE").arg(&key).arg(0).arg(-1).arg("WITHSCORES").to_owned(),
                _ => cmd("LRANGE").arg(&key).arg(0).arg(-1).to_owned(),
            };
            let value: redis::Value = read.query(connection).unwrap();
            all.push(format!("{database} {} {kind} {expiry} {value:?}", key.escape_ascii()));
        }
    }
    cmd("SELECT").arg(0).exec(connection).unwrap();
    all
}

/// Dumps `dir` into `first`, restores that into `again`, dumps it into `second`; must be the same.
fn circle(program: &Program, dir: &str) -> Vec<u8> {
    let said = program.ok(&["dump", dir, "first"]);
    assert!(said.starts_with("dumped "), "{said}");
    let restored = program.ok(&["restore", "first", "again"]);
    assert!(restored.starts_with("restored "), "{restored}");
    program.ok(&["dump", "again", "second"]);
    let bytes = fs::read(program.path("first")).unwrap();
    assert!(bytes == fs::read(program.path("second")).unwrap(), "the dumps differ");
    assert!(program.ok(&["verify", "--dir", "again"]).ends_with("sound\n"));
    bytes
}

#[test]
fn a_plain_store_makes_a_full_circle() {
    let program = Program::with_store();
    program.ok(&["put", "--hex", "0x00ff0a", "0xff00"]);
    program.ok(&["put", "late", "v", "--ttl", "365d"]);
    {
        let options = Options { memory_budget: 8 << 20, ..Options::default() };
        let db = Db::open(program.store(), options).unwrap();
        let family = db.create_column_family("more", CfOptions::default()).unwrap();
        let mut batch = WriteBatch::new();
        batch.put_cf(&family, b"k", vec![9; 100_000]);
        batch.put_until_cf(&family, b"late", b"", NEXT_CENTURY);
        db.write(batch).unwrap();
        db.close().unwrap();
    }
    circle(&program, "terrace-data");
    let json = program.ok(&["scan", "--json"]);
    assert!(json.contains("expires_at_ms"), "{}", &json[..200]);
    assert_eq!(program.ok(&["scan", "--json", "--dir", "again"]), json);
    // By way of pipes too.
    let dumped = program.command(&["dump", "terrace-data", "-"]).output().unwrap();
    assert!(dumped.status.success() && dumped.stderr.is_empty());
    assert!(dumped.stdout == fs::read(program.path("first")).unwrap());
    let ran = program.run_with_input(&["restore", "-", "piped"], &dumped.stdout);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(program.ok(&["scan", "--json", "--dir", "piped"]), json);
    // A dump that is there is replaced.
    program.ok(&["delete", "late"]);
    program.ok(&["dump", "terrace-data", "first"]);
    assert!(dumped.stdout != fs::read(program.path("first")).unwrap());
}

#[test]
fn a_servers_store_makes_a_full_circle_with_all_types() {
    let program = Program::new();
    let (mut server, mut connection) = serve(&program, "served");
    fill(&mut connection);
    let want = seen(&mut connection);
    assert_eq!(want.len(), 14, "{want:#?}");
    let _ends = cmd("SHUTDOWN").exec(&mut connection);
    server.end_well();
    circle(&program, "served");
    let (_server, mut connection) = serve(&program, "again");
    assert_eq!(seen(&mut connection), want);
    // It goes on: collections get ids that were never used.
    cmd("HSET").arg("fresh").arg("f").arg("v").exec(&mut connection).unwrap();
    cmd("DEL").arg("fresh").exec(&mut connection).unwrap();
    assert_eq!(seen(&mut connection), want);
}

/// Beside a server that writes: what a dump holds is one moment of its history.
#[test]
fn a_dump_beside_a_server_under_writes_shows_one_moment() {
    let program = Program::new();
    let (_server, mut connection) = serve(&program, "served");
    let mut writer = {
        let client = redis::Client::open(("127.0.0.1", _server.port)).unwrap();
        client.get_connection().unwrap()
    };
    fill(&mut connection);
    let done = std::sync::atomic::AtomicBool::new(false);
    let acknowledged = std::sync::atomic::AtomicU64::new(0);
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1_u64.. {
                // Both together, in two column families.
                let mut pair = redis::pipe();
                pair.atomic().cmd("SET").arg("counter").arg(n).ignore();
                pair.cmd("RPUSH").arg("counted").arg(n).ignore();
                pair.exec(&mut writer).unwrap();
                acknowledged.store(n, order);
                if done.load(order) {
                    return;
                }
            }
        });
        let end = Instant::now() + HANG_GUARD;
        while acknowledged.load(order) == 0 {
            assert!(Instant::now() < end, "nothing is acknowledged");
            std::thread::sleep(Duration::from_millis(5));
        }
        let dumps: Vec<(u64, String)> = (0..4)
            .map(|n| {
                let (floor, name) = (acknowledged.load(order), format!("dump{n}"));
                program.ok(&["dump", "served", &name, "--memory", "64M"]);
                (floor, name)
            })
            .collect();
        done.store(true, order);
        for (floor, name) in dumps {
            let dir = format!("{name}.store");
            program.ok(&["restore", &name, &dir]);
            let (_server, mut connection) = serve(&program, &dir);
            let counter: u64 = cmd("GET").arg("counter").query(&mut connection).unwrap();
            let length: u64 = cmd("LLEN").arg("counted").query(&mut connection).unwrap();
            let last: u64 = cmd("LINDEX").arg("counted").arg(-1).query(&mut connection).unwrap();
            assert!(counter >= floor, "{name} has {counter} of {floor}");
            assert_eq!((length, last), (counter, counter), "{name}");
        }
    });
}

/// The restore must fail with `want`, and leave nothing.
fn refuse(program: &Program, dump: &[u8], want: &str) {
    program.write("bad.dump", dump);
    let said = program.fails(1, &["restore", "bad.dump", "new"]);
    assert!(said.contains(want) && said.contains("bad.dump"), "{said}");
    assert!(!program.path("new").exists() && !program.path("new.partial").exists(), "{said}");
}

#[test]
fn a_damaged_or_cut_dump_makes_no_store() {
    let program = Program::new();
    program.ok(&["put", "key", "value"]);
    program.ok(&["put", "late", "value", "--ttl", "365d"]);
    program.ok(&["dump", "terrace-data", "dump"]);
    let whole = fs::read(program.path("dump")).unwrap();
    for at in (16..whole.len()).step_by(9) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        refuse(&program, &bytes, "");
        refuse(&program, &whole[..at], "cut off");
    }
    refuse(&program, b"", "no dump");
    refuse(&program, b"key\tvalue\n", "no dump");
    refuse(&program, &[&whole[..], b"more"].concat(), "behind the last chunk");
    let ran = program.run_with_input(&["restore", "-", "new"], &whole[..whole.len() / 2]);
    assert!(ran.failed(1).contains("cut off"));
    let said = program.fails(1, &["load", "dump", "--dir", "loaded"]);
    assert!(said.contains("terrace restore"), "{said}");
}

#[test]
fn a_directory_that_is_used_is_left_alone() {
    let program = Program::new();
    program.ok(&["put", "key", "value"]);
    program.ok(&["dump", "terrace-data", "dump"]);
    assert!(program.fails(1, &["restore", "dump", "terrace-data"]).contains("is not empty"));
    assert!(program.fails(1, &["restore", "dump", "dump"]).contains("no directory"));
    assert!(program.fails(1, &["restore", "nowhere", "new"]).contains("cannot open nowhere"));
    assert!(program.fails(1, &["restore", ".", "new"]).contains("is a directory"));
    assert!(program.fails(1, &["dump", "nowhere", "dump"]).contains("no directory nowhere"));
    assert!(program.fails(1, &["dump", "terrace-data", "."]).contains("is a directory"));
    assert!(program.fails(1, &["dump", "terrace-data", "no/dump"]).contains("no/dump"));
    assert_eq!(program.ok(&["scan"]), "key\tvalue\n");
    // An empty one is taken, with its permissions; so are directories above that are not there.
    let empty = program.path("empty");
    fs::create_dir(&empty).unwrap();
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o700)).unwrap();
    program.ok(&["restore", "dump", "empty"]);
    assert_eq!(fs::metadata(&empty).unwrap().permissions().mode() & 0o777, 0o700);
    for dir in ["a/b/c", "ü \n\u{1}*", "--", "x.partial"] {
        let ran = program.run(&["restore", "dump", "--", dir]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{dir}");
        let (dir, key) = (format!("--dir={dir}"), "key");
        assert_eq!(program.ok(&["get", key, &dir]), "value\n");
    }
    // The current directory would be another one afterwards.
    let mut here = program.command(&["restore", "../dump", "."]);
    fs::create_dir(program.path("here")).unwrap();
    let output = here.current_dir(program.path("here")).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("current directory"), "{said}");
    assert_eq!(fs::read_dir(program.path("here")).unwrap().count(), 0);
}

fn wait_for(path: &Path) {
    let end = Instant::now() + HANG_GUARD;
    while !path.exists() {
        assert!(Instant::now() < end, "{} does not come", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_restore_leaves_no_store_under_the_name() {
    let program = Program::with_store();
    program.ok(&["dump", "terrace-data", "dump"]);
    let whole = fs::read(program.path("dump")).unwrap();
    let mut command = program.command(&["restore", "-", "new"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&whole[..whole.len() - 1]).unwrap();
    wait_for(&program.path("new.partial/CURRENT"));
    let said = program.fails(1, &["restore", "dump", "new"]);
    assert!(said.contains("new.partial is there: another process"), "{said}");
    child.kill().unwrap();
    child.wait().unwrap();
    drop(input);
    assert!(!program.path("new").exists());
    let ran = program.run(&["restore", "dump", "new"]);
    assert!(
        ran.code == 0 && ran.err.contains("new.partial, which a killed restore"),
        "{}",
        ran.err
    );
    assert!(!program.path("new.partial").exists() && !program.path("new/UNFINISHED").exists());
    assert_eq!(program.ok(&["scan", "--dir", "new"]), program.ok(&["scan"]));
}

/// What nothing tells to be left by a killed restore may be somebody's store.
#[test]
fn a_directory_of_another_with_the_name_of_an_unfinished_one_is_left_alone() {
    let program = Program::new();
    program.ok(&["put", "key", "value"]);
    program.ok(&["dump", "terrace-data", "dump"]);
    program.ok(&["put", "other", "value", "--dir", "new.partial"]);
    let said = program.fails(1, &["restore", "dump", "new"]);
    assert!(said.contains("move it away") && !program.path("new").exists(), "{said}");
    assert_eq!(program.ok(&["scan", "--dir", "new.partial"]), "other\tvalue\n");
    // An empty one is nobody's.
    fs::create_dir(program.path("third.partial")).unwrap();
    program.ok(&["restore", "dump", "third"]);
    assert_eq!(program.ok(&["scan", "--dir", "third"]), "key\tvalue\n");
}

/// A checkpoint and the restore of a backup mark what they have not finished by another file.
#[test]
fn what_a_killed_command_of_another_kind_has_left_goes_with_the_next() {
    let program = Program::new();
    program.ok(&["put", "key", "value"]);
    program.ok(&["dump", "terrace-data", "dump"]);
    program.ok(&["backup", "create", "terrace-data", "backups"]);
    let leave = |mark: &str| {
        fs::create_dir(program.path("new.partial")).unwrap();
        program.write(&format!("new.partial/{mark}"), "");
        program.write("new.partial/000001.sst", "a part");
    };
    let commands = [
        (&["restore", "dump", "new"][..], "filling.tmp", "checkpoint or restore"),
        (&["checkpoint", "new"], "UNFINISHED", "restore or conversion"),
        (&["backup", "restore", "backups", "latest", "new"], "UNFINISHED", "restore or conversion"),
    ];
    for (command, mark, who) in commands {
        leave(mark);
        let marked = fs::File::open(program.path("new.partial").join(mark)).unwrap();
        marked.lock().unwrap();
        let said = program.fails(1, command);
        assert!(said.contains("new.partial") && program.path("new.partial/000001.sst").exists());
        drop(marked);
        let ran = program.run(command);
        assert!(ran.code == 0 && ran.err.contains(&format!("which a killed {who}")), "{}", ran.err);
        assert!(!program.path("new.partial").exists());
        assert_eq!(program.ok(&["scan", "--dir", "new"]), "key\tvalue\n");
        fs::remove_dir_all(program.path("new")).unwrap();
    }
    // What is in a directory of its own is somebody's.
    leave("filling.tmp");
    fs::create_dir(program.path("new.partial/precious")).unwrap();
    let said = program.fails(1, &["restore", "dump", "new"]);
    assert!(said.contains("other files (precious)"), "{said}");
    assert!(program.path("new.partial/000001.sst").exists());
}

#[test]
fn what_a_killed_dump_has_left_goes_with_the_next() {
    let program = Program::new();
    program.ok(&["put", "key", "value"]);
    for name in
        ["dump.4000000000.partial", "dump.partial", "other.4000000000.partial", "dump.1.partial"]
    {
        program.write(name, "a part");
    }
    let writer = fs::File::open(program.path("dump.1.partial")).unwrap();
    writer.lock().unwrap();
    let ran = program.run(&["dump", "terrace-data", "dump"]);
    assert!(
        ran.code == 0 && ran.err.contains("removed ") && ran.err.lines().count() == 1,
        "{}",
        ran.err
    );
    assert!(!program.path("dump.4000000000.partial").exists());
    for name in ["dump.partial", "other.4000000000.partial", "dump.1.partial"] {
        assert!(program.path(name).exists(), "{name}");
    }
}

#[test]
fn a_killed_dump_is_known_to_be_cut() {
    let program = Program::new();
    // Noise, so that the dump is longer than a pipe holds.
    let noise: Vec<u8> =
        (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 21) as u8).collect();
    program.run_with_input(&["put", "noise", "-"], &noise);
    let mut command = program.command(&["dump", "terrace-data", "-"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut got = vec![0; 100];
    out.read_exact(&mut got).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    out.read_to_end(&mut got).unwrap();
    refuse(&program, &got, "cut off");
    // A reader that stops early has no dump, and the error says so.
    let mut command = program.command(&["dump", "terrace-data", "-"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("standard output has no whole dump"), "{said}");
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_leaves_the_old_dump() {
    let program = Program::with_store();
    program.write("dump", "an older one");
    let limited = |arguments: &str| {
        let script = format!("ulimit -f 8; exec \"$0\" {arguments}");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_terrace")]);
        shell.current_dir(program.store().parent().unwrap()).output().unwrap()
    };
    let output = limited("dump terrace-data dump");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{:?} {said}", output.status);
    assert!(said.starts_with("terrace: ") && said.lines().count() == 1, "{said}");
    assert_eq!(fs::read(program.path("dump")).unwrap(), b"an older one");
    program.ok(&["dump", "terrace-data", "dump"]);
    let output = limited("restore dump new");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{:?} {said}", output.status);
    assert!(!program.path("new").exists() && !program.path("new.partial").exists(), "{said}");
    let mut left: Vec<_> = fs::read_dir(program.store().parent().unwrap()).unwrap().collect();
    left.retain(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("partial"));
    assert!(left.is_empty(), "{left:?}");
}

/// A mask of 022 lets everybody read what a process makes.
#[test]
fn only_the_owner_may_read_a_dump() {
    let program = Program::new();
    program.ok(&["put", "key", "secret"]);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "umask 022; exec \"$0\" dump terrace-data dump"]);
    command.arg(env!("CARGO_BIN_EXE_terrace")).current_dir(program.path(""));
    assert!(command.status().unwrap().success());
    let mode = fs::metadata(program.path("dump")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
