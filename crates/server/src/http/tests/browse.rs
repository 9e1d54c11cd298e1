//! Keys by prefix and what is under them, as the page asks for them.

use super::api::{check, types};
use super::*;
use terrace_keyspace::{AddRule, CommandBatch, End, ExpireIf, Mode, PutOptions};

/// Writes with one batch of database 0.
fn write(served: &Served, work: impl FnOnce(&mut CommandBatch)) {
    let mut batch = served.made.space.command_batch(Mode::Device);
    batch.next_command();
    batch.lock_everything();
    work(&mut batch);
    batch.commit().unwrap();
}

fn texts(list: &Value) -> Vec<String> {
    let rows = list["keys"].as_array().unwrap().iter();
    rows.map(|row| row["key"]["text"].as_str().unwrap().to_string()).collect()
}

#[test]
fn keys_of_a_prefix_come_in_order_and_in_pages() {
    let (served, types) = (Served::open(), types());
    served.fill(250);
    served.made.db.put("\0key000017\0x", "v").unwrap();
    served.made.db.put("\x01key000001", "of another database").unwrap();
    served.made.db.put("\0other", "v").unwrap();
    let mut path = "/api/v1/keys?prefix=key".to_string();
    let mut all = Vec::new();
    loop {
        let page = served.json(&path);
        check(&types, "KeyList", &page);
        all.extend(texts(&page));
        let Some(next) = page["next"].as_str() else {
            assert_eq!(page["has_more"], false);
            break;
        };
        assert_eq!((texts(&page).len(), &page["has_more"]), (100, &true.into()));
        path = format!("/api/v1/keys?prefix=key&after={next}");
    }
    assert!(all.is_sorted() && all.len() == 251, "{} keys", all.len());
    assert_eq!(all[18], "key000017\\x00x");
    assert_eq!(texts(&served.json("/api/v1/keys?hex=6f")), ["other"]);
    assert_eq!(texts(&served.json("/api/v1/keys?db=1")), ["key000001"]);
    assert!(texts(&served.json("/api/v1/keys?prefix=nobody")).is_empty());
    for path in [
        "/api/v1/keys?db=128",
        "/api/v1/keys?db=16",
        "/api/v1/value?db=16&key=a",
        "/api/v1/explain?db=16&key=a",
        "/api/v1/keys?prefix=%ff",
        "/api/v1/keys?prefix=a&hex=61",
        "/api/v1/keys?hex=6",
        "/api/v1/keys?after=xy",
        "/api/v1/value",
        "/api/v1/value?key=a&hex=61",
    ] {
        assert_eq!(served.get(path).status, 400, "{path}");
    }
}

#[test]
fn a_value_of_every_type_is_shown_with_its_first_elements() {
    let (served, types) = (Served::open(), types());
    write(&served, |batch| {
        batch.put(0, b"text", &[b'x'; 5000], &PutOptions::default()).unwrap();
        batch.hash_set(0, b"hash", [(&b"field"[..], &b"value"[..])].into_iter()).unwrap();
        let members: Vec<Vec<u8>> = (0..150).map(|n| format!("m{n}").into_bytes()).collect();
        batch.set_add(0, b"set", members.iter().map(|member| &member[..])).unwrap();
        let scored = [(f64::INFINITY, &b"last"[..]), (-1.5, b"first"), (2_f64.powi(100), b"large")];
        batch.sorted_set_add(0, b"zset", AddRule::default(), scored.into_iter()).unwrap();
        let items = [&b"a"[..], b"b", b"\xff"];
        batch.list_push(0, b"list", End::Back, false, items.into_iter()).unwrap();
        batch.expire(0, b"hash", 4_000_000_000_000, ExpireIf::default()).unwrap();
    });
    let ask = |key: &str| {
        let told = served.json(&format!("/api/v1/value?key={key}"));
        check(&types, "KeyValue", &told);
        told
    };
    let text = ask("text");
    assert_eq!((&text["type"], &text["size"]), (&"string".into(), &5000.into()));
    assert_eq!(text["text"]["text"].as_str().unwrap().len(), 4096);
    assert_eq!((&text["text"]["len"], &text["expires_at_ms"]), (&5000.into(), &Value::Null));
    let hash = ask("hash");
    assert_eq!((&hash["type"], &hash["size"]), (&"hash".into(), &1.into()));
    assert_eq!(hash["expires_at_ms"], 4_000_000_000_000_u64);
    assert_eq!(hash["elements"][0]["name"]["text"], "field");
    assert_eq!(hash["elements"][0]["value"]["text"], "value");
    let set = ask("set");
    assert_eq!(
        (&set["size"], set["elements"].as_array().unwrap().len() as u64),
        (&150.into(), crate::http::browse::MAX_ELEMENTS)
    );
    let zset = ask("zset");
    let of = |at: usize| (&zset["elements"][at]["name"]["text"], &zset["elements"][at]["score"]);
    assert_eq!(of(0), (&"first".into(), &"-1.5".into()));
    assert_eq!(of(1), (&"large".into(), &"1.2676506002282294e+30".into()));
    assert_eq!(of(2), (&"last".into(), &"inf".into()));
    let list = ask("list");
    let values = list["elements"].as_array().unwrap().iter();
    let values: Vec<&Value> = values.map(|element| &element["value"]["hex"]).collect();
    assert_eq!(values, ["61", "62", "ff"]);
    let nothing = ask("nobody");
    assert_eq!((&nothing["type"], &nothing["text"]), (&Value::Null, &Value::Null));
    let kinds = served.json("/api/v1/keys");
    let kinds = kinds["keys"].as_array().unwrap().iter();
    let kinds: Vec<&str> = kinds.map(|row| row["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["hash", "list", "set", "string", "zset"]);
}

#[test]
fn a_long_string_is_not_read() {
    let served = Served::open();
    let shown = crate::http::browse::MAX_READ_BYTES;
    write(&served, |batch| {
        for (key, length) in [("long", shown + 1), ("short", shown)] {
            let text = vec![b'x'; length];
            batch.put(0, key.as_bytes(), &text, &PutOptions::default()).unwrap();
        }
    });
    let read_bytes = || served.made.db.metrics().value_read_bytes;
    let before = read_bytes();
    let long = served.json("/api/v1/value?key=long");
    assert_eq!((&long["type"], &long["size"]), (&"string".into(), &(shown + 1).into()));
    assert_eq!((&long["text"], read_bytes() - before), (&Value::Null, 0));
    let short = served.json("/api/v1/value?key=short");
    assert_eq!((&short["size"], &short["text"]["len"]), (&shown.into(), &shown.into()));
    assert!(read_bytes() > before, "strings of this length lie in the log");
}

/// What compresses to about half of it.
fn half_random(length: usize) -> Vec<u8> {
    let mut state = 7_u64;
    let mut digit = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b"0123456789abcdef"[(state >> 60) as usize]
    };
    (0..length).map(|_| digit()).collect()
}

#[test]
fn a_long_compressed_string_is_not_read_and_its_length_is_unknown() {
    let mut store = small();
    store.default_family.value_compression = terrace::Compression::Zstd;
    store.default_family.value_separation_threshold = 1024;
    let (served, types) = (Served::over(store, false, HttpOptions::default()), types());
    let most = crate::http::browse::MAX_COMPRESSED_BYTES;
    write(&served, |batch| {
        for (key, length) in [("long", 4 * most), ("short", most)] {
            batch.put(0, key.as_bytes(), &half_random(length), &PutOptions::default()).unwrap();
        }
    });
    let read_bytes = || served.made.db.metrics().value_read_bytes;
    let before = read_bytes();
    let long = served.json("/api/v1/value?key=long");
    check(&types, "KeyValue", &long);
    assert_eq!((&long["type"], &long["size"]), (&"string".into(), &Value::Null));
    assert_eq!((&long["text"], read_bytes() - before), (&Value::Null, 0));
    let short = served.json("/api/v1/value?key=short");
    assert_eq!((&short["size"], &short["text"]["len"]), (&most.into(), &most.into()));
    assert!(read_bytes() > before, "it lies in the log");
}

/// A few bytes of compressed form can stand for any number of equal ones.
#[test]
fn a_string_that_is_long_only_when_it_is_decompressed_is_not_decompressed() {
    let mut store = small();
    store.default_family.value_compression = terrace::Compression::Zstd;
    store.default_family.value_separation_threshold = 16;
    let served = Served::over(store, false, HttpOptions::default());
    let most = crate::http::browse::MAX_READ_BYTES;
    write(&served, |batch| {
        for (key, length) in [("long", most + 1), ("short", most)] {
            batch.put(0, key.as_bytes(), &vec![0_u8; length], &PutOptions::default()).unwrap();
        }
    });
    let read_bytes = || served.made.db.metrics().value_read_bytes;
    let before = read_bytes();
    let long = served.json("/api/v1/value?key=long");
    assert_eq!((&long["size"], &long["text"]), (&(most + 1).into(), &Value::Null));
    assert!((1..1000).contains(&(read_bytes() - before)), "its compressed form was read");
    let short = served.json("/api/v1/value?key=short");
    assert_eq!((&short["size"], &short["text"]["len"]), (&most.into(), &most.into()));
}

#[test]
fn long_elements_end_the_list_of_them() {
    let served = Served::open();
    let item = vec![b'x'; crate::http::browse::MAX_READ_BYTES / 2];
    write(&served, |batch| {
        let items = std::iter::repeat_n(&item[..], 6);
        batch.list_push(0, b"list", End::Back, false, items).unwrap();
    });
    let list = served.json("/api/v1/value?key=list");
    assert_eq!((&list["size"], list["elements"].as_array().unwrap().len()), (&6.into(), 3));
}

#[test]
fn keys_and_values_are_for_users_who_may_read_all_keys() {
    let served = Served::start(true, HttpOptions::default());
    let writer = "Authorization: Basic d3JpdGVyOnc=\r\n";
    for path in ["/api/v1/keys", "/api/v1/value?key=a"] {
        assert_eq!(served.get(path).status, 401, "{path}");
        assert_eq!(served.get_with(path, writer).status, 403, "{path}");
        assert_eq!(served.get_with(path, ALICE).status, 200, "{path}");
    }
}
