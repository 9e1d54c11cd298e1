//! The rows of the commands on several sorted sets.

use super::algebra::{self, Algebra};
use super::ranges;
use crate::command::{CommandSpec, Flags, Group, Keys};

const OF_UNION: &str = "O(members of all)";
const OF_INTERSECTION: &str = "O(members of the smallest times sorted sets)";
const OF_DIFFERENCE: &str = "O(members of the first times sorted sets)";

/// What most rows have.
const ROW: CommandSpec = CommandSpec {
    name: "",
    arity: -3,
    flags: Flags::READ.with(Flags::MOVABLE_KEYS),
    keys: Keys::Counted,
    group: Group::SortedSet,
    arguments: "",
    summary: "",
    complexity: OF_INTERSECTION,
    since: "6.2.0",
    run: algebra::zintercard,
};

/// What the rows that store have.
const STORE: CommandSpec = CommandSpec {
    arity: -4,
    flags: Flags::WRITE.with(Flags::MOVABLE_KEYS),
    keys: Keys::FirstAndCounted,
    ..ROW
};

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "zrangestore",
        arity: -5,
        flags: Flags::WRITE,
        keys: Keys::FirstTwo,
        arguments: "dst src min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]",
        summary: "Stores the members in a range.",
        complexity: "O(offset + members stored); by rank, O(distance to the nearer end + members stored)",
        since: "6.2.0",
        run: ranges::zrangestore,
        ..ROW
    },
    CommandSpec {
        name: "zmpop",
        arity: -4,
        flags: Flags::WRITE.with(Flags::READS_LATE).with(Flags::MOVABLE_KEYS),
        keys: Keys::Counted,
        arguments: "numkeys key [key ...] MIN | MAX [COUNT count]",
        summary: "Takes members out of the first sorted set that has any.",
        complexity: "O(keys + members taken)",
        since: "7.0.0",
        run: algebra::zmpop,
        ..ROW
    },
    CommandSpec {
        name: "zintercard",
        arguments: "numkeys key [key ...] [LIMIT limit]",
        summary: "Counts what is in all sorted sets, up to a limit.",
        complexity: OF_INTERSECTION,
        since: "7.0.0",
        run: algebra::zintercard,
        ..ROW
    },
    CommandSpec {
        name: "zunion",
        arguments: "numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]",
        summary: "Gives what is in any of the sorted sets.",
        complexity: OF_UNION,
        run: |call| algebra::show(call, Algebra::Union),
        ..ROW
    },
    CommandSpec {
        name: "zunionstore",
        arguments: "destination numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM | MIN | MAX]",
        summary: "Stores what is in any of the sorted sets.",
        complexity: OF_UNION,
        since: "2.0.0",
        run: |call| algebra::store(call, Algebra::Union),
        ..STORE
    },
    CommandSpec {
        name: "zinter",
        arguments: "numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]",
        summary: "Gives what is in all sorted sets.",
        complexity: OF_INTERSECTION,
        run: |call| algebra::show(call, Algebra::Intersection),
        ..ROW
    },
    CommandSpec {
        name: "zinterstore",
        arguments: "destination numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM | MIN | MAX]",
        summary: "Stores what is in all sorted sets.",
        complexity: OF_INTERSECTION,
        since: "2.0.0",
        run: |call| algebra::store(call, Algebra::Intersection),
        ..STORE
    },
    CommandSpec {
        name: "zdiff",
        arguments: "numkeys key [key ...] [WITHSCORES]",
        summary: "Gives what is in the first sorted set and in no other.",
        complexity: OF_DIFFERENCE,
        run: |call| algebra::show(call, Algebra::Difference),
        ..ROW
    },
    CommandSpec {
        name: "zdiffstore",
        arguments: "destination numkeys key [key ...]",
        summary: "Stores what is in the first sorted set and in no other.",
        complexity: OF_DIFFERENCE,
        since: "6.2.0",
        run: |call| algebra::store(call, Algebra::Difference),
        ..STORE
    },
];
