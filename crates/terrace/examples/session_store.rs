//! Sessions that expire by themselves, in a column family beside the users they belong to.
//!
//! `cargo run --example session_store -p terrace`

use std::time::Duration;
use terrace::{CfOptions, Db, Options, WriteBatch};

fn main() -> terrace::Result<()> {
    let dir = std::env::temp_dir().join(format!("terrace-sessions-{}", std::process::id()));
    let options = Options {
        memory_budget: 32 << 20,
        column_families: vec![("sessions".into(), CfOptions::default())],
        ..Options::default()
    };
    let db = Db::open(&dir, options)?;
    let Some(sessions) = db.column_family("sessions") else { return Ok(()) };

    // User and session appear together or not at all.
    let mut batch = WriteBatch::new();
    batch.put(b"user:7", b"Nguyen");
    batch.put_with_ttl_cf(&sessions, b"token:4f2a", b"user:7", Duration::from_millis(200));
    db.write(batch)?;

    let who = |token: &[u8]| -> terrace::Result<Option<String>> {
        let Some(user) = sessions.get(token)? else { return Ok(None) };
        Ok(db.get(&*user)?.map(|name| String::from_utf8_lossy(&name).into_owned()))
    };
    println!("now: {:?}", who(b"token:4f2a")?);
    std::thread::sleep(Duration::from_millis(250));
    println!("a quarter of a second later: {:?}", who(b"token:4f2a")?);

    drop(sessions);
    db.close()?;
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
