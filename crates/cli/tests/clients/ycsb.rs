//! YCSB's core workloads over redis-py, with the data model of its Redis binding: a record is a hash,
//! and a sorted set has all record names for scans.

use crate::python::script;
use crate::servers::Process;

#[test]
#[ignore = "needs redis-py: run `cargo xtask test`"]
fn ycsb_core_workloads_find_what_they_wrote() {
    let server = Process::terrace(&["--maxmemory", "16mb"]);
    let told = script(&server, "ycsb.py", &["2000", "4000"]);
    for workload in ["a", "b", "c", "d", "e", "f"] {
        assert!(told.contains(&format!("workload {workload}: 4000 operations")), "{told}");
    }
    println!("{told}");
}
