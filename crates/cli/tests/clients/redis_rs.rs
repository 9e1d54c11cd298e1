//! The `redis` crate.

use crate::servers::Process;
use redis::{Commands, RedisResult};
use std::collections::{BTreeMap, HashMap};

fn connect(server: &Process, query: &str) -> redis::Connection {
    let address = format!("redis://127.0.0.1:{}/{query}", server.port);
    redis::Client::open(address).unwrap().get_connection().unwrap()
}

#[test]
fn the_redis_crate_reads_what_it_wrote_in_both_protocols() {
    let server = Process::terrace(&[]);
    for query in ["", "?protocol=resp3"] {
        let mut connection = connect(&server, query);
        let _: () = redis::cmd("FLUSHALL").query(&mut connection).unwrap();
        let _: () = connection.set("number", 41).unwrap();
        assert_eq!(connection.incr::<_, _, i64>("number", 1).unwrap(), 42);
        assert_eq!(connection.get::<_, Option<String>>("absent").unwrap(), None);
        let _: () = connection.hset_multiple("hash", &[("a", 1), ("b", 2)]).unwrap();
        let hash: HashMap<String, i64> = connection.hgetall("hash").unwrap();
        assert_eq!(hash, HashMap::from([("a".into(), 1), ("b".into(), 2)]));
        let _: () = connection.zadd_multiple("sorted", &[(2.5, "two"), (1.0, "one")]).unwrap();
        let sorted: Vec<(String, f64)> = connection.zrange_withscores("sorted", 0, -1).unwrap();
        assert_eq!(sorted, [("one".into(), 1.0), ("two".into(), 2.5)]);
        let _: () = connection.rpush("list", &["x", "y", "z"]).unwrap();
        assert_eq!(connection.lrange::<_, Vec<String>>("list", -2, -1).unwrap(), ["y", "z"]);
        let keys: Vec<String> = connection.scan().unwrap().map(Result::unwrap).collect();
        assert_eq!(keys.len(), 4, "{keys:?}");
        let wrong: RedisResult<i64> = connection.incr("hash", 1);
        assert_eq!(wrong.unwrap_err().code(), Some("WRONGTYPE"));
    }
}

#[test]
fn transactions_of_the_redis_crate_are_whole() {
    let server = Process::terrace(&["--server-threads", "2"]);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let mut connection = connect(&server, "");
            std::thread::spawn(move || {
                for _ in 0..50 {
                    let _: (i64,) = redis::transaction(&mut connection, &["n"], |own, pipe| {
                        let n: Option<i64> = own.get("n")?;
                        pipe.set("n", n.unwrap_or(0) + 1).ignore().get("n").query(own)
                    })
                    .unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(connect(&server, "").get::<_, i64>("n").unwrap(), 150);
}

#[test]
fn pipelines_of_the_redis_crate_keep_their_order() {
    let server = Process::terrace(&[]);
    let mut connection = connect(&server, "");
    let mut pipe = redis::pipe();
    for n in 0..5000 {
        pipe.set(format!("k{n:04}"), n).ignore();
    }
    let _: () = pipe.query(&mut connection).unwrap();
    let keys: Vec<String> = (0..5000).map(|n| format!("k{n:04}")).collect();
    let values: Vec<u32> = connection.mget(&keys).unwrap();
    assert_eq!(values, (0..5000).collect::<Vec<_>>());
    let ordered: Vec<String> =
        redis::cmd("TSCAN").arg(&["k1000", "k1003", "LIMIT", "10"]).query(&mut connection).unwrap();
    let expected: BTreeMap<_, _> = (1000..1003).map(|n| (format!("k{n}"), n.to_string())).collect();
    let pairs: BTreeMap<_, _> = ordered.chunks(2).map(|p| (p[0].clone(), p[1].clone())).collect();
    assert_eq!(pairs, expected);
}
