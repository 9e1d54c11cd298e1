//! Other names for keys, and copies.

use super::connection::database_number;
use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome};

const SAME: Failure = Failure::line("ERR source and destination objects are the same");

/// What most rows have.
const ROW: CommandSpec = CommandSpec {
    name: "",
    arity: 3,
    flags: Flags::WRITE,
    keys: Keys::FirstTwo,
    group: Group::Generic,
    arguments: "key newkey",
    summary: "",
    complexity: "O(length of the string), O(1) for other types",
    since: "1.0.0",
    run: rename,
};

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "rename",
        summary: "Gives what is under a key another name, in the place of what is there.",
        ..ROW
    },
    CommandSpec {
        name: "renamenx",
        flags: Flags::WRITE.with(Flags::FAST),
        summary: "Gives what is under a key another name, if nothing is there.",
        run: renamenx,
        ..ROW
    },
    CommandSpec {
        name: "copy",
        arity: -3,
        keys: Keys::FirstTwoAcross,
        arguments: "source destination [DB database] [REPLACE]",
        summary: "Copies what is under a key.",
        complexity: "O(elements), in memory too, until the commit",
        since: "6.2.0",
        run: copy,
        ..ROW
    },
    CommandSpec {
        name: "move",
        flags: Flags::WRITE.with(Flags::FAST),
        keys: Keys::FirstTwice,
        arguments: "key database",
        summary: "Moves what is under a key to another database, if nothing is there.",
        complexity: "O(elements), in memory too, until the commit",
        run: move_key,
        ..ROW
    },
];

fn rename(call: &mut Call<'_>) -> Outcome {
    call.batch.rename(call.session.db, call.arg(1), call.arg(2), false)?;
    call.reply.ok();
    Ok(())
}

fn renamenx(call: &mut Call<'_>) -> Outcome {
    let done = call.batch.rename(call.session.db, call.arg(1), call.arg(2), true)?;
    call.reply.integer(i64::from(done));
    Ok(())
}

/// Argument number `at` as a database.
fn database(call: &Call<'_>, at: usize) -> Result<u8, Failure> {
    let index = database_number(call, at)?;
    let db = u8::try_from(index).ok().filter(|db| usize::from(*db) < call.server.databases());
    db.ok_or(Failure::line("ERR DB index is out of range"))
}

fn copy(call: &mut Call<'_>) -> Outcome {
    let (mut to_db, mut replace, mut at) = (call.db(), false, 3);
    while at < call.count() {
        if call.arg(at).eq_ignore_ascii_case(b"replace") {
            replace = true;
        } else if call.arg(at).eq_ignore_ascii_case(b"db") && at + 1 < call.count() {
            to_db = database(call, at + 1)?;
            at += 1;
        } else {
            return Err(Failure::SYNTAX);
        }
        at += 1;
    }
    let (from, to) = ((call.db(), call.arg(1)), (to_db, call.arg(2)));
    if from == to {
        return Err(SAME);
    }
    let done = call.batch.copy(from, to, replace)?;
    call.reply.integer(i64::from(done));
    Ok(())
}

fn move_key(call: &mut Call<'_>) -> Outcome {
    let to = database(call, 2)?;
    if to == call.db() {
        return Err(SAME);
    }
    let done = call.batch.move_key(call.session.db, to, call.arg(1))?;
    call.reply.integer(i64::from(done));
    Ok(())
}
