//! The command line, as the page asks for it.

use super::api::{check, types};
use super::*;

#[test]
fn a_reply_keeps_its_types_and_any_bytes() {
    let (served, types) = (Served::open(), types());
    let told = served.json("/api/v1/command?db=3&line=ECHO%20%22%5Cxff%5Cx00%22");
    check(&types, "CommandAnswer", &told);
    assert_eq!((&told["db"], &told["is_cut"]), (&3.into(), &false.into()));
    let reply = &told["reply"];
    assert_eq!((&reply["type"], &reply["size"]), (&"map".into(), &2.into()));
    assert_eq!(reply["elements"][0]["text"]["hex"], "ff00");
    assert_eq!(reply["elements"][1]["elements"][0]["text"]["text"], "7");
    assert_eq!(reply["elements"][1]["elements"][1]["type"], "null");
    let told = served.json("/api/v1/command?line=MANY");
    check(&types, "CommandAnswer", &told);
    assert_eq!((&told["is_cut"], &told["reply"]["size"]), (&true.into(), &3000.into()));
    assert_eq!(told["reply"]["elements"].as_array().unwrap().len(), 1000);
}

#[test]
fn what_is_refused_says_why() {
    let served = Served::open();
    let long = format!("/api/v1/command?line=WHO%20{}", "x".repeat(5000));
    for (path, status, why) in [
        ("/api/v1/command", 400, "line"),
        ("/api/v1/command?line=", 400, "a command is needed"),
        ("/api/v1/command?line=ECHO%20%22a", 400, "a quote is not closed"),
        ("/api/v1/command?line=ECHO%20%ff", 400, "UTF-8"),
        ("/api/v1/command?db=16&line=WHO", 400, "no such database"),
        (&long, 400, "at most 4096 bytes"),
        ("/api/v1/command?line=SET%20a%201", 403, "does not only read"),
        ("/api/v1/command?line=BUSY", 503, "try again"),
    ] {
        let answer = served.get(path);
        assert!(answer.status == status && answer.body.contains(why), "{path}: {answer:?}");
    }
}

#[test]
fn it_is_for_who_may_read_and_for_no_other_site() {
    let served = Served::start(true, HttpOptions::default());
    let path = "/api/v1/command?line=WHO";
    assert_eq!(served.get(path).status, 401);
    let answer = served.get_with(path, ALICE);
    assert!(answer.status == 200 && answer.body.contains("alice in 0"), "{answer:?}");
    // A user who may not read.
    assert_eq!(served.get_with(path, "Authorization: Basic d3JpdGVyOnc=\r\n").status, 403);
    for (site, status) in
        [("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)]
    {
        let headers = format!("{ALICE}Sec-Fetch-Site: {site}\r\n");
        assert_eq!(served.get_with(path, &headers).status, status, "{site}");
    }
}
