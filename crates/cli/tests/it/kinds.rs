//! One directory, one meaning: plain stores and servers' stores are distinguished, and each command does
//! what fits or says what to do.

use crate::process::Server;
use crate::program::Program;
use redis::{Connection, cmd};

fn serve(program: &Program, dir: &str) -> (Server, Connection) {
    let server = Server::terrace(program.command(&[]), &["--dir", dir]);
    let client = redis::Client::open(("127.0.0.1", server.port)).unwrap();
    (server, client.get_connection().unwrap())
}

/// A server's store in `served` with a key of every type, one of them in database 2.
fn served(program: &Program) -> (Server, Connection) {
    let (server, mut connection) = serve(program, "served");
    for command in [
        "SET text value",
        "SET late v PXAT 4102444800000",
        "HSET hash field 1",
        "RPUSH list one two",
        "SADD set member",
        "ZADD zset 1.5 mid -inf low inf high",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        cmd(words[0]).arg(&words[1..]).exec(&mut connection).unwrap();
    }
    cmd("SET").arg(b"\x00\xff").arg(b"\xfe\n").exec(&mut connection).unwrap();
    cmd("SADD").arg("odd").arg(b"\x80").exec(&mut connection).unwrap();
    cmd("SELECT").arg(2).exec(&mut connection).unwrap();
    cmd("SET").arg("text").arg("of two").exec(&mut connection).unwrap();
    cmd("SELECT").arg(0).exec(&mut connection).unwrap();
    (server, connection)
}

fn end(mut server: Server, mut connection: Connection) {
    let _ends = cmd("SHUTDOWN").exec(&mut connection);
    server.end_well();
}

#[test]
fn serve_refuses_a_plain_store_and_leaves_it_as_it_is() {
    let program = Program::new();
    program.ok(&["put", "key", "value"]);
    program.ok(&["put", "k", "v", "--family", "other", "--dir", "families"]);
    for dir in ["terrace-data", "families"] {
        let arguments = ["serve", "--port", "0", "--http-port", "0", "--dir", dir];
        let said = program.fails(1, &arguments);
        assert!(said.contains(dir) && said.contains("plain keys and values"), "{said}");
        assert!(said.contains("name another directory"), "{said}");
    }
    assert_eq!(program.ok(&["scan"]), "key\tvalue\n");
    assert_eq!(program.ok(&["scan", "--dir", "families", "--family", "other"]), "k\tv\n");
    program.ok(&["put", "more", "value"]);
}

#[test]
fn commands_that_write_refuse_a_servers_store_and_say_what_to_do() {
    let program = Program::new();
    let (server, connection) = served(&program);
    end(server, connection);
    let before = program.ok(&["scan", "--dir", "served"]);
    let file = program.write("in.tsv", "k\tv\n");
    let writers: [&[&str]; 5] = [
        &["put", "k", "v"],
        &["put", "k", "v", "--family", "collections"],
        &["delete", "text"],
        &["delete", "--range", "a", "z"],
        &["load", &file],
    ];
    for writer in writers {
        let said = program.fails(1, &[writer, &["--dir", "served"]].concat());
        assert!(said.contains("holds the data of a server"), "{said}");
        assert!(
            said.contains("terrace serve --dir served") && said.contains("Redis client"),
            "{said}"
        );
    }
    assert_eq!(program.ok(&["scan", "--dir", "served"]), before);
    // What is about files works as on any store.
    program.ok(&["compact", "--dir", "served"]);
    program.ok(&["stats", "--dir", "served"]);
    assert!(program.ok(&["verify", "--dir", "served"]).ends_with("sound\n"));
    assert_eq!(program.ok(&["scan", "--dir", "served"]), before);
    let (_server, mut connection) = serve(&program, "served");
    let value: String = cmd("GET").arg("text").query(&mut connection).unwrap();
    assert_eq!(value, "value");
}

/// Beside the server: reading needs no other one.
#[test]
fn get_and_scan_show_types_of_a_servers_store() {
    let program = Program::new();
    let (_server, _connection) = served(&program);
    let run = |arguments: &[&str]| program.ok(&[arguments, &["--dir", "served"]].concat());
    assert_eq!(run(&["get", "text"]), "value\n");
    assert_eq!(run(&["get", "text", "--raw"]), "value");
    assert_eq!(run(&["get", "text", "--db", "2"]), "of two\n");
    assert_eq!(run(&["get", "--hex", "0x00ff"]), "0xfe0a\n");
    assert_eq!(run(&["get", "hash"]), "hash of 1\nfield\t1\n");
    assert_eq!(run(&["get", "list"]), "list of 2\none\ntwo\n");
    assert_eq!(run(&["get", "zset"]), "zset of 3\nlow\t-inf\nmid\t1.5\nhigh\tinf\n");
    assert_eq!(run(&["get", "odd"]), "set of 1\n\\x80\n");
    let scanned = [
        "\\x00\\xff\tstring\t\\xfe\\n",
        "hash\thash\t[[\"field\",\"1\"]]",
        "late\tstring\tv",
        "list\tlist\t[\"one\",\"two\"]",
        "odd\tset\t[{\"hex\":\"0x80\"}]",
        "set\tset\t[\"member\"]",
        "text\tstring\tvalue",
        "zset\tzset\t[[\"low\",\"-inf\"],[\"mid\",1.5],[\"high\",\"inf\"]]",
        "",
    ];
    assert_eq!(run(&["scan"]), scanned.join("\n"));
    assert_eq!(run(&["scan", "--db", "2"]), "text\tstring\tof two\n");
    assert_eq!(run(&["scan", "--db", "3"]), "");
    assert_eq!(run(&["scan", "--prefix", "l", "--keys-only"]), "late\nlist\n");
    assert_eq!(
        run(&["scan", "--from", "odd", "--to", "text", "--limit", "1", "--keys-only"]),
        "odd\n"
    );
    let json = run(&["scan", "--json"]);
    let lines: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 8);
    assert_eq!(
        lines[0],
        serde_json::json!({"key_hex": "0x00ff", "type": "string", "value_hex": "0xfe0a"})
    );
    assert_eq!(lines[2]["expires_at_ms"], 4_102_444_800_000_u64);
    assert_eq!(lines[7]["value"][1], serde_json::json!(["mid", 1.5]));
    let ran = program.run_with_input(&["load", "-", "--dir", "copy"], json.as_bytes());
    assert!(ran.failed(1).contains("terrace dump"));
    // The families as they lie in the store.
    assert!(run(&["scan", "--family", "elements", "--keys-only"]).contains("field"));
    let dir = ["--dir", "served"];
    let fails = |code, arguments: &[&str]| program.fails(code, &[arguments, &dir].concat());
    assert!(fails(1, &["get", "nothing"]).contains("no key `nothing`"));
    assert!(fails(1, &["get", "hash", "--raw"]).contains("--raw is for strings"));
    assert!(fails(1, &["scan", "--reverse"]).contains("leave --reverse out"));
    assert!(fails(1, &["scan", "--family", "x"]).contains("no column family `x`, but collections"));
    for wrong in [&["scan", "--db", "128"][..], &["scan", "--db", "1", "--family", "default"]] {
        assert_eq!(program.run(&[wrong, &dir].concat()).code, 2);
    }
}

#[test]
fn a_plain_store_has_families_and_no_databases() {
    let program = Program::new();
    program.ok(&["put", "k", "of default"]);
    program.ok(&["put", "k", "of more", "--family", "more"]);
    let file = program.write("in.tsv", "a\t1\nb\t2\nc\t3\n");
    program.ok(&["load", &file, "--family", "loaded"]);
    assert_eq!(program.ok(&["get", "k"]), "of default\n");
    assert_eq!(program.ok(&["get", "k", "--family", "more"]), "of more\n");
    program.ok(&["delete", "a", "--family", "loaded"]);
    program.ok(&["delete", "--range", "c", "d", "--family", "loaded"]);
    assert_eq!(program.ok(&["scan", "--family", "loaded"]), "b\t2\n");
    assert_eq!(program.ok(&["scan"]), "k\tof default\n");
    program.ok(&["compact"]);
    program.ok(&["compact", "--family", "loaded"]);
    assert_eq!(program.ok(&["scan", "--family", "loaded"]), "b\t2\n");
    let said = program.fails(1, &["scan", "--db", "0"]);
    assert!(said.contains("plain keys and values") && said.contains("leave --db out"), "{said}");
    let absent: [&[&str]; 4] = [&["get", "k"], &["scan"], &["delete", "k"], &["compact"]];
    for command in absent {
        let said = program.fails(1, &[command, &["--family", "moer"]].concat());
        assert!(said.contains("no column family `moer`, but default, loaded, more"), "{said}");
    }
    assert!(program.fails(1, &["put", "k", "v", "--family", &"x".repeat(257)]).contains("256"));
}

#[test]
fn an_empty_directory_belongs_to_the_first_writer() {
    let program = Program::new();
    std::fs::create_dir(program.path("served")).unwrap();
    let (server, connection) = serve(&program, "served");
    end(server, connection);
    // Nothing was written to it, and still it is a server's.
    let said = program.fails(1, &["put", "k", "v", "--dir", "served"]);
    assert!(said.contains("holds the data of a server"), "{said}");
    // A copy is what the original is.
    program.ok(&["dump", "served", "dump"]);
    program.ok(&["restore", "dump", "again"]);
    let said = program.fails(1, &["put", "k", "v", "--dir", "again"]);
    assert!(said.contains("holds the data of a server"), "{said}");
    // A plain store without anything in it is free again.
    program.ok(&["put", "k", "v"]);
    program.ok(&["delete", "k"]);
    let (server, connection) = serve(&program, "terrace-data");
    end(server, connection);
}
