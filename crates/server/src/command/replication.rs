//! Replicas, of which there are none: what clients ask about them is answered as by a Redis that has
//! none either.

use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome};

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    group: Group,
    (arguments, summary): (&'static str, &'static str),
    since: &'static str,
    run: fn(&mut Call<'_>) -> Outcome,
) -> CommandSpec {
    let (keys, complexity) = (Keys::None, "O(1)");
    CommandSpec { name, arity, flags, keys, group, arguments, summary, complexity, since, run }
}

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    row(
        "role",
        1,
        Flags::FAST.with(Flags::DANGEROUS),
        Group::Server,
        ("", "Tells that there is no replication."),
        "2.8.12",
        role,
    ),
    row(
        "wait",
        3,
        Flags::NONE,
        Group::Connection,
        ("numreplicas timeout", "Tells at once that no replica has the writes."),
        "3.0.0",
        wait,
    ),
];

fn role(call: &mut Call<'_>) -> Outcome {
    call.reply.array(3);
    call.reply.bulk("master");
    call.reply.integer(0);
    call.reply.array(0);
    Ok(())
}

/// Waiting would not bring a replica about: the answer does not depend on the timeout.
fn wait(call: &mut Call<'_>) -> Outcome {
    call.integer(1)?;
    let timeout = terrace_resp::parse_integer(call.arg(2))
        .ok_or(Failure::line("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(Failure::line("ERR timeout is negative"));
    }
    call.reply.integer(0);
    Ok(())
}
