//! The subcommands of `CLUSTER` for administrators, with a fake that does what is asked for.

use super::fake::FakeCluster;
use crate::client::{array, bulk, error, int, ok, text, until};
use crate::served::Served;
use std::sync::{Arc, Mutex};
use terrace_cluster::{DbKey, NodeId, Placement, PlanSpec, ShardId};
use terrace_resp::Reply;
use terrace_server::cluster::{
    AdminAnswer, AdminReply, AdminRequest, ClusterAdmin, ClusterFigures, ClusterSpec,
    ClusterStatus, Repartitioned,
};

type Done = Box<dyn FnOnce(AdminAnswer) + Send>;

/// Keeps what is asked for, until it is answered.
#[derive(Default)]
struct FakeAdmin(Mutex<Vec<(AdminRequest, Done)>>);

impl ClusterAdmin for FakeAdmin {
    fn begin(&self, request: AdminRequest, done: Done) {
        self.0.lock().unwrap().push((request, done));
    }

    fn figures(&self) -> ClusterFigures {
        ClusterFigures { exceptions: 7, ..ClusterFigures::default() }
    }
}

impl FakeAdmin {
    /// Waits until something is asked for, and answers it.
    fn answer(&self, answer: AdminAnswer) -> AdminRequest {
        until("nothing is asked for", || !self.0.lock().unwrap().is_empty());
        let (request, done) = self.0.lock().unwrap().remove(0);
        done(answer);
        request
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

fn administered(count: usize) -> (FakeCluster, Arc<FakeAdmin>) {
    let cluster = FakeCluster::new(Placement::Slots, count, &[]);
    let admin = Arc::new(FakeAdmin::default());
    cluster.served[0].server().cluster.as_ref().unwrap().administer(admin.clone());
    (cluster, admin)
}

#[test]
fn requests_are_what_their_words_say() {
    let (cluster, admin) = administered(3);
    let mut client = cluster.client(0);
    let node = cluster.node(1);
    let move_to = |to| AdminRequest::MoveKey { key: DbKey::new(0, "some key"), to };
    let repartition = |plan: &str, keys| {
        let plan: PlanSpec = plan.parse().unwrap();
        AdminRequest::Repartition { plan, keys }
    };
    let drain = |is_over| AdminRequest::Drain { node, is_over };
    let id = node.to_string();
    let cases: [(&[&str], AdminRequest); 7] = [
        (&["CLUSTER", "MOVEKEY", "some key", "2"], move_to(Some(ShardId(2)))),
        (&["cluster", "movekey", "some key", "home"], move_to(None)),
        (&["CLUSTER", "REPARTITION", "absorb"], repartition("absorb", 10_000)),
        (
            &["CLUSTER", "REPARTITION", "top-n-to-one:5:1", "KEYS", "77"],
            repartition("top-n-to-one:5:1", 77),
        ),
        (&["CLUSTER", "DRAIN", &id], drain(false)),
        (&["CLUSTER", "DRAIN", &id, "over"], drain(true)),
        (&["CLUSTER", "STATUS"], AdminRequest::Status),
    ];
    for (words, wanted) in cases {
        client.send(words);
        assert_eq!(admin.answer(Ok(AdminReply::Done)), wanted, "{words:?}");
        assert_eq!(client.reply(), ok(), "{words:?}");
    }
    assert_eq!(admin.asked(), 0, "a request is made once");
}

#[test]
fn answers_are_shown_as_replies() {
    let (cluster, admin) = administered(3);
    let mut client = cluster.client(0);
    client.send(&["CLUSTER", "REPARTITION", "absorb"]);
    let failed = vec![(cluster.node(2), "it is away".to_string())];
    admin.answer(Ok(AdminReply::Repartition(Repartitioned { plan_keys: 9, moves: 4, failed })));
    let away = format!("{}: it is away", cluster.node(2));
    let fields = [bulk("plan-keys"), int(9), bulk("moves"), int(4), bulk("failed")];
    let fields = fields.into_iter().chain([array([bulk(&away)])]);
    assert_eq!(client.reply(), array(fields));
    client.send(&["CLUSTER", "STATUS"]);
    let status = ClusterStatus { name: "nine".into(), revision: 9, ..ClusterStatus::default() };
    admin.answer(Ok(AdminReply::Status(Box::new(status.clone()))));
    let shown: ClusterStatus = serde_json::from_str(&text(&client.reply())).unwrap();
    assert_eq!(shown, status);
    client.send(&["CLUSTER", "MOVEKEY", "k", "1"]);
    admin.answer(Err("the key is too large".into()));
    assert_eq!(error(&client.reply()), "ERR the key is too large");
}

#[test]
fn one_client_waits_and_others_are_served() {
    let (cluster, admin) = administered(1);
    let (mut asking, mut other) = (cluster.client(0), cluster.client(0));
    asking.send_words(&["SET k before", "CLUSTER MOVEKEY k HOME", "GET k", "CLUSTER STATUS"]);
    assert_eq!(asking.reply(), ok());
    // It holds neither a thread nor a guard, without which no key could be moved.
    until("nothing is asked for", || admin.asked() == 1);
    cluster.settle();
    for n in 0..100 {
        assert_eq!(other.say(&format!("SET k {n}")), ok());
    }
    admin.answer(Ok(AdminReply::Done));
    assert_eq!(asking.reply(), ok());
    assert_eq!(asking.reply(), bulk("99"), "what comes behind it is executed behind it");
    admin.answer(Err("enough".into()));
    assert_eq!(error(&asking.reply()), "ERR enough");
    // A client that is gone is not waited for.
    asking.send_words(&["CLUSTER STATUS"]);
    until("nothing is asked for", || admin.asked() == 1);
    drop(asking);
    admin.answer(Ok(AdminReply::Done));
    assert_eq!(other.say("GET k"), bulk("99"));
}

#[test]
fn what_cannot_be_done_is_refused_before_it_is_asked_for() {
    let (cluster, admin) = administered(3);
    let mut client = cluster.client(0);
    let (long, unknown) = ("x".repeat(16 * 1024 + 1), "ab".repeat(20));
    let cases: [(&[&str], &str); 19] = [
        (&["MOVEKEY", "k"], "wrong number of arguments"),
        (&["MOVEKEY", "k", "9"], "has no shard '9'"),
        (&["MOVEKEY", "k", "-1"], "has no shard '-1'"),
        (&["MOVEKEY", "k", "away"], "has no shard 'away'"),
        (&["MOVEKEY", &long, "1"], "16385 bytes, at most 16384"),
        (&["REPARTITION", "best"], "unknown plan \"best\""),
        (&["REPARTITION", "top-n-to-one"], "say how many"),
        (&["REPARTITION", "top-n-to-one:1000000"], "1000000 keys, at most 100000"),
        (&["REPARTITION", "top-n-tiered:60000,60000"], "120000 keys, at most 100000"),
        (&["REPARTITION", "absorb", "KEYS", "0"], "between 1 and 100000"),
        (&["REPARTITION", "absorb", "KEYS", "100001"], "between 1 and 100000"),
        (&["REPARTITION", "absorb", "KEYS", "many"], "not an integer"),
        (&["REPARTITION", "absorb", "COUNT", "1"], "syntax error"),
        (&["DRAIN", "abc"], "'abc' is no node id"),
        (&["DRAIN", &unknown], "has no node abab"),
        (&["DRAIN", &unknown, "NOW"], "syntax error"),
        (&["CREATE", "SLOTS", &unknown], "exists already"),
        (&["CREATE"], "wrong number of arguments"),
        (&["STATUS", "all"], "wrong number of arguments"),
    ];
    for (words, why) in cases {
        let request = [&["CLUSTER"][..], words].concat();
        let refused = error(&client.call(&request));
        assert!(refused.contains(why), "{words:?}: {refused}");
    }
    assert_eq!(client.say("MULTI"), ok());
    let refused = error(&client.say("CLUSTER STATUS"));
    assert!(refused.contains("not allowed inside a transaction"), "{refused}");
    assert_eq!(error(&client.say("EXEC"))[..9], *"EXECABORT");
    assert_eq!(admin.asked(), 0);
    // A server whose cluster is not administered says so.
    let refused = error(&cluster.client(1).say("CLUSTER STATUS"));
    assert!(refused.contains("not administered"), "{refused}");
    assert!(error(&Served::with(&[]).client().say("CLUSTER STATUS")).contains("disabled"));
}

#[test]
fn only_administrators_may() {
    let (cluster, admin) = administered(1);
    let mut client = cluster.client(0);
    assert_eq!(client.say("ACL SETUSER app on nopass ~* +@all -@admin"), ok());
    assert_eq!(client.say("AUTH app any"), ok());
    for words in ["STATUS", "MOVEKEY k HOME", "REPARTITION absorb", "DRAIN x", "CREATE SLOTS x"] {
        let refused = error(&client.say(&format!("CLUSTER {words}")));
        assert!(refused.starts_with("NOPERM"), "{words}: {refused}");
    }
    assert!(text(&client.say("CLUSTER INFO")).contains("cluster_state:ok"));
    assert_eq!(admin.asked(), 0);
}

#[test]
fn the_answer_to_what_is_refused_by_then_is_not_that_to_the_next() {
    let (cluster, admin) = administered(2);
    let (mut client, mut other) = (cluster.client(0), cluster.client(0));
    assert_eq!(client.say("ACL SETUSER app on nopass ~* +@all"), ok());
    assert_eq!(client.say("AUTH app any"), ok());
    client.send_words(&["CLUSTER MOVEKEY k 1"]);
    until("nothing is asked for", || admin.asked() == 1);
    assert_eq!(other.say("ACL SETUSER app -@admin"), ok());
    admin.answer(Ok(AdminReply::Done));
    assert!(error(&client.reply()).starts_with("NOPERM"));
    assert_eq!(other.say("ACL SETUSER app +@admin"), ok());
    let node = cluster.node(1);
    client.send(&["CLUSTER", "DRAIN", &node.to_string()]);
    let asked = admin.answer(Err("not now".into()));
    assert_eq!(asked, AdminRequest::Drain { node, is_over: false });
    assert_eq!(error(&client.reply()), "ERR not now");
}

#[test]
fn a_cluster_is_created_of_nodes_that_wait() {
    let served = Served::with(&[("cluster-enabled", "yes")]);
    let waiting = Arc::new(super::fake::Waiting(NodeId([1; 20])));
    served.running().join_cluster(waiting);
    let admin = Arc::new(FakeAdmin::default());
    served.server().cluster.as_ref().unwrap().administer(admin.clone());
    let mut client = served.client();
    let ids = [1, 2, 3].map(|number| NodeId([number; 20]));
    let [a, b, c] = ids.map(|id| id.to_string());
    assert_eq!(text(&client.say("CLUSTER MYID")), a);
    assert!(text(&client.say("CLUSTER INFO")).contains("cluster_state:fail"));
    let says = "CLUSTERDOWN the cluster was not created yet, or its metadata was not read yet";
    for command in ["SET k v", "CLUSTER MOVEKEY k 1", "CLUSTER SLOTS"] {
        assert_eq!(error(&client.say(command)), says, "{command}");
    }
    let cases: [(&[&str], &str); 8] = [
        (&["HASH", &a], "no placement is called 'HASH'"),
        (&["SLOTS", "abc"], "'abc' is no node id"),
        (&["SLOTS", &a, &b, &a], "is named twice"),
        (&["SLOTS", &a, &b, "BOUNDARIES", "m"], "only a cluster by RANGE"),
        (&["RANGE", &a, &b], "2 nodes need 1 BOUNDARIES"),
        (&["RANGE", &a, &b, &c, "BOUNDARIES", "q", "g"], "ranges would overlap"),
        (&["RANGE", &a, &b, "BOUNDARIES", ""], "a boundary has 0 bytes"),
        (&["RANGE", "BOUNDARIES", "x"], "at least one node"),
    ];
    for (words, why) in cases {
        let refused = error(&client.call(&[&["CLUSTER", "CREATE"][..], words].concat()));
        assert!(refused.contains(why), "{words:?}: {refused}");
    }
    let many: Vec<String> = (0..41).map(|n| NodeId([n; 20]).to_string()).collect();
    let request: Vec<&str> =
        ["CLUSTER", "CREATE", "SLOTS"].into_iter().chain(many.iter().map(String::as_str)).collect();
    assert!(error(&client.call(&request)).contains("at most 40"));
    assert_eq!(admin.asked(), 0);

    client.send(&["CLUSTER", "CREATE", "SLOTS", &a, &b, &c]);
    let slots = ClusterSpec::of(Placement::Slots, &ids, &[]).unwrap();
    assert_eq!(admin.answer(Ok(AdminReply::Done)), AdminRequest::Create(slots));
    assert_eq!(client.reply(), ok());
    client.send(&["CLUSTER", "CREATE", "range", &a, &b, "boundaries", "m"]);
    let range = ClusterSpec::of(Placement::Range, &ids[..2], &[b"m"]).unwrap();
    assert_eq!(admin.answer(Ok(AdminReply::Done)), AdminRequest::Create(range));
    assert_eq!(client.reply(), ok());
    let Reply::Array(help) = client.say("CLUSTER HELP") else { panic!("no help") };
    let help: Vec<String> = help.iter().map(text).collect();
    for name in ["CREATE", "STATUS", "MOVEKEY", "REPARTITION", "DRAIN"] {
        assert!(help.iter().any(|line| line.starts_with(name)), "{name}: {help:?}");
    }
}
