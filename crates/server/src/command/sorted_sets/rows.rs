//! The rows of the commands on sorted sets.

use super::{
    ranges, zadd, zcard, zincrby, zmscore, zpopmax, zpopmin, zrandmember, zrank, zrem, zrevrank,
    zscan, zscore,
};
use crate::command::{CommandSpec, Flags, Group, Keys};

/// What most rows have.
const ROW: CommandSpec = CommandSpec {
    name: "",
    arity: 4,
    flags: Flags::READ,
    keys: Keys::First,
    group: Group::SortedSet,
    arguments: "key",
    summary: "",
    complexity: "O(1)",
    since: "1.2.0",
    run: zcard,
};

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "zadd",
        arity: -4,
        flags: Flags::WRITE.with(Flags::FAST),
        arguments: "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
        summary: "Adds members or changes their scores.",
        complexity: "O(members named)",
        run: zadd,
        ..ROW
    },
    CommandSpec {
        name: "zincrby",
        flags: Flags::WRITE.with(Flags::FAST),
        arguments: "key increment member",
        summary: "Adds to the score of a member.",
        run: zincrby,
        ..ROW
    },
    CommandSpec {
        name: "zrem",
        arity: -3,
        flags: Flags::WRITE.with(Flags::FAST),
        arguments: "key member [member ...]",
        summary: "Removes members, and gives how many were there.",
        complexity: "O(members named)",
        run: zrem,
        ..ROW
    },
    CommandSpec {
        name: "zcard",
        arity: 2,
        flags: Flags::READ.with(Flags::FAST),
        summary: "Gives the number of members.",
        ..ROW
    },
    CommandSpec {
        name: "zscore",
        arity: 3,
        flags: Flags::READ.with(Flags::FAST),
        arguments: "key member",
        summary: "Gives the score of a member.",
        run: zscore,
        ..ROW
    },
    CommandSpec {
        name: "zmscore",
        arity: -3,
        flags: Flags::READ.with(Flags::FAST),
        arguments: "key member [member ...]",
        summary: "Gives the scores of members.",
        complexity: "O(members named)",
        since: "6.2.0",
        run: zmscore,
        ..ROW
    },
    CommandSpec {
        name: "zrank",
        arity: -3,
        flags: Flags::READ.with(Flags::FAST),
        arguments: "key member [WITHSCORE]",
        summary: "Gives the place of a member, the lowest score being first.",
        complexity: "O(rank); of more than 8,192 members O(distance to the nearer end)",
        since: "2.0.0",
        run: zrank,
        ..ROW
    },
    CommandSpec {
        name: "zrevrank",
        arity: -3,
        flags: Flags::READ.with(Flags::FAST),
        arguments: "key member [WITHSCORE]",
        summary: "Gives the place of a member, the highest score being first.",
        complexity: "O(rank); of more than 8,192 members O(distance to the nearer end)",
        since: "2.0.0",
        run: zrevrank,
        ..ROW
    },
    CommandSpec {
        name: "zcount",
        flags: Flags::READ.with(Flags::FAST),
        arguments: "key min max",
        summary: "Counts the members with scores in a range.",
        complexity: "O(members counted)",
        since: "2.0.0",
        run: ranges::zcount,
        ..ROW
    },
    CommandSpec {
        name: "zlexcount",
        flags: Flags::READ.with(Flags::FAST),
        arguments: "key min max",
        summary: "Counts the members in a range of members.",
        complexity: "O(members counted)",
        since: "2.8.9",
        run: ranges::zlexcount,
        ..ROW
    },
    CommandSpec {
        name: "zrange",
        arity: -4,
        arguments: "key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
        summary: "Gives the members in a range.",
        complexity: "O(offset + members shown); by rank, O(distance to the nearer end + members shown)",
        run: ranges::zrange,
        ..ROW
    },
    CommandSpec {
        name: "zrevrange",
        arity: -4,
        arguments: "key start stop [WITHSCORES]",
        summary: "Gives the members in a range of places, the highest score first.",
        complexity: "O(distance to the nearer end + members shown)",
        run: ranges::zrevrange,
        ..ROW
    },
    CommandSpec {
        name: "zrangebyscore",
        arity: -4,
        arguments: "key min max [WITHSCORES] [LIMIT offset count]",
        summary: "Gives the members with scores in a range.",
        complexity: "O(offset + members shown)",
        since: "1.0.5",
        run: ranges::zrangebyscore,
        ..ROW
    },
    CommandSpec {
        name: "zrevrangebyscore",
        arity: -4,
        arguments: "key max min [WITHSCORES] [LIMIT offset count]",
        summary: "Gives the members with scores in a range, the highest score first.",
        complexity: "O(offset + members shown)",
        since: "2.2.0",
        run: ranges::zrevrangebyscore,
        ..ROW
    },
    CommandSpec {
        name: "zrangebylex",
        arity: -4,
        arguments: "key min max [LIMIT offset count]",
        summary: "Gives the members in a range of members that have equal scores.",
        complexity: "O(offset + members shown)",
        since: "2.8.9",
        run: ranges::zrangebylex,
        ..ROW
    },
    CommandSpec {
        name: "zrevrangebylex",
        arity: -4,
        arguments: "key max min [LIMIT offset count]",
        summary: "Gives the members in a range of members that have equal scores, the last first.",
        complexity: "O(offset + members shown)",
        since: "2.8.9",
        run: ranges::zrevrangebylex,
        ..ROW
    },
    CommandSpec {
        name: "zpopmin",
        arity: -2,
        flags: Flags::WRITE.with(Flags::FAST),
        arguments: "key [count]",
        summary: "Takes out the members with the lowest scores.",
        complexity: "O(members taken)",
        since: "5.0.0",
        run: zpopmin,
        ..ROW
    },
    CommandSpec {
        name: "zpopmax",
        arity: -2,
        flags: Flags::WRITE.with(Flags::FAST),
        arguments: "key [count]",
        summary: "Takes out the members with the highest scores.",
        complexity: "O(members taken)",
        since: "5.0.0",
        run: zpopmax,
        ..ROW
    },
    CommandSpec {
        name: "zremrangebyrank",
        flags: Flags::WRITE,
        arguments: "key start stop",
        summary: "Removes the members in a range of places.",
        complexity: "O(distance to the nearer end + members removed)",
        since: "2.0.0",
        run: ranges::zremrangebyrank,
        ..ROW
    },
    CommandSpec {
        name: "zremrangebyscore",
        flags: Flags::WRITE,
        arguments: "key min max",
        summary: "Removes the members with scores in a range.",
        complexity: "O(members removed)",
        run: ranges::zremrangebyscore,
        ..ROW
    },
    CommandSpec {
        name: "zremrangebylex",
        flags: Flags::WRITE,
        arguments: "key min max",
        summary: "Removes the members in a range of members that have equal scores.",
        complexity: "O(members removed)",
        since: "2.8.9",
        run: ranges::zremrangebylex,
        ..ROW
    },
    CommandSpec {
        name: "zrandmember",
        arity: -2,
        arguments: "key [count [WITHSCORES]]",
        summary: "Gives random members.",
        complexity: "O(members asked for), or O(members) if more than a third of them",
        since: "6.2.0",
        run: zrandmember,
        ..ROW
    },
    CommandSpec {
        name: "zscan",
        arity: -3,
        arguments: "key cursor [MATCH pattern] [COUNT count]",
        summary: "Gives some members with their scores, and the cursor of the next ones.",
        complexity: "O(members looked at)",
        since: "2.8.0",
        run: zscan,
        ..ROW
    },
];
