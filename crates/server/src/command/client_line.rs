//! A line of `CLIENT LIST`.

use super::command_table::table;
use crate::session::{ClientInfo, NOT_IN_MULTI};
use std::fmt::Write;
use std::sync::atomic::Ordering;
use terrace_resp::Command;

/// What `CLIENT LIST` says of a client, without a line's end: all fields that Redis 7.0 has, and then those of later versions.
/// `current`: the command that it executes now, where that is known.
pub(crate) fn client_line(
    client: &ClientInfo,
    now_ms: u64,
    current: Option<&Command<'_>>,
) -> String {
    let last = || table().counted_name(client.last_command.load(Ordering::Relaxed));
    let command = match current.and_then(|args| Some((args, table().find(args.name())?.1))) {
        Some((args, spec)) => spec.full_name(args).into_owned(),
        None => last().unwrap_or_else(|| "NULL".into()),
    };
    let in_multi = match client.queued.load(Ordering::Relaxed) {
        NOT_IN_MULTI => -1,
        count => i64::from(count),
    };
    let mut flags = String::new();
    flags.push_str(if in_multi >= 0 { "x" } else { "" });
    flags.push_str(if flags.is_empty() { "N" } else { "" });
    let (library, version) = client.library.lock().clone();
    let mut line = String::new();
    // Writing to a string does not fail. What Terrace does not count is 0.
    let _ = write!(
        line,
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub=0 psub=0 \
         ssub=0 multi={in_multi} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 \
         omem=0 tot-mem=0 events=r cmd={command} user={} redir=-1 resp={} lib-name={library} \
         lib-ver={version}",
        client.id,
        client.origin.peer,
        client.origin.local,
        client.origin.token,
        client.name.lock(),
        now_ms.saturating_sub(client.connected_ms) / 1000,
        now_ms.saturating_sub(client.last_used_ms()) / 1000,
        client.db.load(Ordering::Relaxed),
        client.user.lock(),
        client.protocol.load(Ordering::Relaxed),
    );
    line
}
