//! The tests that every metadata passes, with one etcd member and with three.

use crate::conformance::{Compact, Subject, check};
use crate::servers::EtcdCluster;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use terrace_metadata::{Etcd, EtcdOptions, Metadata};

struct ByEtcdctl(Rc<EtcdCluster>);

#[async_trait::async_trait(?Send)]
impl Compact for ByEtcdctl {
    async fn compact(&self, _: &dyn Metadata, revision: u64) {
        self.0.compact(revision);
    }
}

async fn conforms(members: usize) {
    let cluster = Rc::new(EtcdCluster::start(members));
    let patience = Duration::from_secs(30);
    let options = EtcdOptions { call_timeout: patience, watch_silence: patience };
    let metadata = Arc::new(Etcd::new(&cluster.urls(), options).unwrap());
    check(&Subject { metadata, advance: None, compact: Box::new(ByEtcdctl(cluster)) }).await;
}

#[tokio::test]
#[ignore = "needs etcd; run by cargo xtask test"]
async fn one_member_does_what_every_metadata_does() {
    conforms(1).await;
}

#[tokio::test]
#[ignore = "needs etcd; run by cargo xtask test"]
async fn three_members_do_what_every_metadata_does() {
    conforms(3).await;
}
