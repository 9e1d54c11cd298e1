//! One reply from those of the parts of a command.

use terrace_resp::{
    Aggregate, Limits, Protocol, Reply, ReplyParser, ReplyStep, ReplyWriter, parse_integer,
};

/// How replies of parts become one. If one of them is an error, that is the reply.
#[derive(Debug)]
pub(crate) enum Merge {
    /// There is one part, and its reply is the reply. Of several, which only announce a command, one has failed: its
    /// error is the reply.
    Only,
    /// All say OK.
    AllOk {
        /// It is a command on all keys.
        all: bool,
    },
    /// The array of a transaction, into which the replies of this node come at their places, in their order. What is no
    /// array is the reply.
    Transaction(Vec<(usize, Vec<u8>)>),
    /// Numbers, added up.
    Sum {
        /// It is a command on all keys.
        all: bool,
    },
    /// Arrays, whose elements belong to these places of one array.
    Places(Vec<Vec<usize>>),
    /// Arrays, one after the other.
    Concatenated,
    /// Pages of `TSCAN`, each of the least keys of a store, whatever the placement: keys alone if `shape.0`, and `shape.1` of
    /// them at most. So the page is of the least keys of all stores, and a client goes on behind the last one.
    Sorted {
        /// See above.
        shape: (bool, usize),
    },
    /// A page of `SCAN` of the store number `at`; its cursor becomes one of the cluster.
    Page {
        /// Which store.
        at: u64,
        /// The store after it.
        next: Option<u64>,
        /// What a store's cursors are multiplied by.
        stores: u64,
    },
    /// Any of them that is not null.
    Any,
}

/// The end of an error that says so of one part, and what is true of the whole then.
const NOTHING_EXECUTED: &[u8] = b"; nothing was executed\r\n";
const OTHERS_EXECUTED: &[u8] = b"; other parts of the command may have been executed\r\n";

/// For what other nodes wrote: as much as a client of theirs would be given.
pub(crate) const LIMITS: Limits = Limits {
    elements: u32::MAX as usize,
    bulk_bytes: u32::MAX as usize,
    message_bytes: u32::MAX as usize,
    line_bytes: u32::MAX as usize,
    depth: 32,
};

impl Merge {
    /// Whether it is that of a command on all keys.
    pub fn is_for_all(&self) -> bool {
        match self {
            Self::Only
            | Self::Transaction(_)
            | Self::Places(_)
            | Self::Sum { all: false }
            | Self::AllOk { all: false } => false,
            Self::Sum { .. }
            | Self::AllOk { .. }
            | Self::Concatenated
            | Self::Sorted { .. }
            | Self::Page { .. }
            | Self::Any => true,
        }
    }

    /// Bytes of replies of this node that it holds.
    pub fn own_bytes(&self) -> usize {
        match self {
            Self::Transaction(own) => own.iter().map(|(_, reply)| reply.len()).sum(),
            _ => 0,
        }
    }

    /// Appends the reply that the `parts` make, in their order, to `out`.
    pub fn write(&self, parts: &[&[u8]], protocol: Protocol, out: &mut Vec<u8>) {
        if let Some(error) = parts.iter().find(|part| is_error(part)) {
            let is_in_parts = match self {
                Self::Only => false,
                Self::Transaction(_) => true,
                _ => parts.len() > 1,
            };
            match error.strip_suffix(NOTHING_EXECUTED).filter(|_| is_in_parts) {
                Some(why) => out.extend_from_slice(&[why, OTHERS_EXECUTED].concat()),
                None => out.extend_from_slice(error),
            }
            return;
        }
        if matches!(self, Self::Only | Self::AllOk { .. }) {
            return out.extend_from_slice(parts.first().copied().unwrap_or_default());
        }
        let mark = out.len();
        let is_written = match self {
            Self::Transaction(own) => interleave(own, parts, out),
            _ => {
                let replies: Option<Vec<_>> = parts.iter().map(|part| decode(part)).collect();
                let mut writer = ReplyWriter::new(out, protocol);
                replies.and_then(|replies| self.combine(replies, &mut writer))
            }
        };
        if is_written.is_none() {
            out.truncate(mark);
            let text = "ERR a node of the cluster answered what is no reply to this command";
            ReplyWriter::new(out, protocol).error(text);
        }
    }

    fn combine(&self, replies: Vec<Reply<'_>>, writer: &mut ReplyWriter<'_>) -> Option<()> {
        match self {
            Self::Only | Self::Transaction(_) | Self::AllOk { .. } => {
                replies.first()?.write(writer);
            }
            Self::Sum { .. } => {
                let number =
                    |reply| if let Reply::Integer(value) = reply { Some(value) } else { None };
                let numbers: Option<Vec<i64>> = replies.into_iter().map(number).collect();
                writer.integer(numbers?.into_iter().fold(0, i64::saturating_add));
            }
            Self::Places(places) => in_places(places, replies, writer)?,
            Self::Concatenated => {
                let all: Option<Vec<_>> = replies.into_iter().map(elements).collect();
                let all = all?.concat();
                writer.array(all.len());
                all.iter().for_each(|element| element.write(writer));
            }
            Self::Sorted { shape } => sorted(*shape, replies, writer)?,
            Self::Page { at, next, stores } => page((*at, *next, *stores), replies, writer)?,
            Self::Any => {
                let found: Vec<_> =
                    replies.into_iter().filter(|reply| !matches!(reply, Reply::Null)).collect();
                // The clock's last digits choose well enough: keys are not equally likely anyway.
                let drawn =
                    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |t| t.subsec_nanos());
                match found.get(drawn as usize / 64 % found.len().max(1)) {
                    Some(reply) => reply.write(writer),
                    None => writer.null(),
                }
            }
        }
        Some(())
    }
}

/// Whether a reply is an error.
pub(crate) fn is_error(reply: &[u8]) -> bool {
    matches!(reply.first(), Some(b'-' | b'!'))
}

fn decode(bytes: &[u8]) -> Option<Reply<'_>> {
    match ReplyParser::new(LIMITS).next(bytes) {
        Ok(ReplyStep::Frame(frame)) => frame.decode().ok(),
        _ => None,
    }
}

/// See [`Merge::Transaction`].
fn interleave(own: &[(usize, Vec<u8>)], parts: &[&[u8]], out: &mut Vec<u8>) -> Option<()> {
    let reply = *parts.first()?;
    if reply.starts_with(b"*-") || !reply.starts_with(b"*") {
        decode(reply)?;
        out.extend_from_slice(reply);
        return Some(());
    }
    let header = reply.iter().position(|byte| *byte == b'\n')? + 1;
    let digits = reply.get(1..header.checked_sub(2)?)?;
    let count = usize::try_from(parse_integer(digits)?).ok()?.checked_add(own.len())?;
    out.extend_from_slice(format!("*{count}\r\n").as_bytes());
    let (mut parser, mut at) = (ReplyParser::new(LIMITS), header);
    let mut own = own.iter().peekable();
    for place in 0..count {
        if let Some((_, bytes)) = own.next_if(|(own_place, _)| *own_place == place) {
            out.extend_from_slice(bytes);
            continue;
        }
        let Ok(ReplyStep::Frame(frame)) = parser.next(reply.get(at..)?) else { return None };
        at += frame.bytes().len();
        out.extend_from_slice(frame.bytes());
    }
    (at == reply.len() && own.peek().is_none()).then_some(())
}

fn elements(reply: Reply<'_>) -> Option<Vec<Reply<'_>>> {
    if let Reply::Array(elements) = reply { Some(elements) } else { None }
}

fn bulk<'r>(reply: &'r Reply<'_>) -> Option<&'r [u8]> {
    if let Reply::Bulk(bytes) = reply { Some(bytes) } else { None }
}

fn in_places(
    places: &[Vec<usize>],
    replies: Vec<Reply<'_>>,
    writer: &mut ReplyWriter<'_>,
) -> Option<()> {
    let mut all = vec![None; places.iter().map(Vec::len).sum()];
    for (places, reply) in places.iter().zip(replies) {
        let found = elements(reply)?;
        if found.len() != places.len() {
            return None;
        }
        for (at, element) in places.iter().zip(found) {
            *all.get_mut(*at)? = Some(element);
        }
    }
    writer.array(all.len());
    all.iter().for_each(|element| match element {
        Some(element) => element.write(writer),
        None => writer.null(),
    });
    Some(())
}

/// A key of a page, with what is written of it.
type Row<'r> = (Vec<u8>, Vec<Reply<'r>>);

fn sorted(
    (keys_only, limit): (bool, usize),
    replies: Vec<Reply<'_>>,
    writer: &mut ReplyWriter<'_>,
) -> Option<()> {
    let is_nested = writer.protocol() == Protocol::Resp3 && !keys_only;
    let mut rows: Vec<Row<'_>> = Vec::new();
    for reply in replies {
        let mut found = elements(reply)?.into_iter();
        while let Some(first) = found.next() {
            let row = match (is_nested, keys_only) {
                (true, _) => elements(first)?,
                (false, true) => vec![first],
                (false, false) => vec![first, found.next()?],
            };
            rows.push((bulk(row.first()?)?.to_vec(), row));
        }
    }
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
    // One that was moved meanwhile.
    rows.dedup_by(|(a, _), (b, _)| a == b);
    rows.truncate(limit);
    let width = if is_nested || keys_only { 1 } else { 2 };
    writer.array(rows.len() * width);
    for (_, row) in rows {
        if is_nested {
            writer.array(row.len());
        }
        row.iter().for_each(|element| element.write(writer));
    }
    Some(())
}

fn page(
    (at, next, stores): (u64, Option<u64>, u64),
    replies: Vec<Reply<'_>>,
    writer: &mut ReplyWriter<'_>,
) -> Option<()> {
    let mut parts = elements(replies.into_iter().next()?)?.into_iter();
    let (cursor, keys) = (parts.next()?, elements(parts.next()?)?);
    let inner: u64 = std::str::from_utf8(bulk(&cursor)?).ok()?.parse().ok()?;
    let cursor = match inner {
        0 => next.unwrap_or(0),
        inner => inner.checked_mul(stores)?.checked_add(at)?,
    };
    writer.array(2);
    writer.bulk(cursor.to_string());
    writer.aggregate(Aggregate::Array, keys.len());
    keys.iter().for_each(|key| key.write(writer));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(merge: &Merge, protocol: Protocol, parts: &[&str]) -> String {
        let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
        let mut out = b"before ".to_vec();
        merge.write(&parts, protocol, &mut out);
        String::from_utf8(out).unwrap().strip_prefix("before ").unwrap().to_string()
    }

    #[test]
    fn parts_make_one_reply() {
        let two = |merge: &Merge, parts: &[&str]| merged(merge, Protocol::Resp2, parts);
        assert_eq!(two(&Merge::Sum { all: false }, &[":1\r\n", ":41\r\n"]), ":42\r\n");
        assert_eq!(two(&Merge::AllOk { all: true }, &["+OK\r\n", "+OK\r\n"]), "+OK\r\n");
        assert_eq!(two(&Merge::Any, &["$-1\r\n", "$1\r\nk\r\n"]), "$1\r\nk\r\n");
        assert_eq!(two(&Merge::Any, &["$-1\r\n"]), "$-1\r\n");
        let places = Merge::Places(vec![vec![2, 0], vec![1]]);
        let parts = ["*2\r\n$1\r\nc\r\n$-1\r\n", "*1\r\n$1\r\nb\r\n"];
        assert_eq!(two(&places, &parts), "*3\r\n$-1\r\n$1\r\nb\r\n$1\r\nc\r\n");
        let three = merged(&places, Protocol::Resp3, &["*2\r\n$1\r\nc\r\n_\r\n", parts[1]]);
        assert_eq!(three, "*3\r\n_\r\n$1\r\nb\r\n$1\r\nc\r\n");
        let all = Merge::Concatenated;
        assert_eq!(two(&all, &["*0\r\n", "*1\r\n$1\r\nb\r\n"]), "*1\r\n$1\r\nb\r\n");
    }

    #[test]
    fn a_part_of_which_nothing_was_executed_says_nothing_of_the_others() {
        let refused = "-TRYAGAIN x; nothing was executed\r\n";
        let in_part = "-TRYAGAIN x; other parts of the command may have been executed\r\n";
        let two = |merge: &Merge, parts: &[&str]| merged(merge, Protocol::Resp2, parts);
        assert_eq!(two(&Merge::AllOk { all: false }, &["+OK\r\n", refused]), in_part);
        assert_eq!(two(&Merge::Transaction(Vec::new()), &[refused]), in_part);
        assert_eq!(two(&Merge::Only, &[refused]), refused);
        assert_eq!(two(&Merge::Only, &["+OK\r\n", refused]), refused, "only announcements");
        assert_eq!(two(&Merge::Sum { all: false }, &[":1\r\n", "-ERR x\r\n"]), "-ERR x\r\n");
    }

    #[test]
    fn a_transaction_has_the_replies_of_two_nodes() {
        let own = [(0, b":1\r\n".to_vec()), (3, b"*2\r\n+a\r\n+b\r\n".to_vec())].to_vec();
        let transaction = Merge::Transaction(own);
        let written = |reply: &str| merged(&transaction, Protocol::Resp2, &[reply]);
        let both = written("*2\r\n+OK\r\n$3\r\nx\r\n\r\n");
        assert_eq!(both, "*4\r\n:1\r\n+OK\r\n$3\r\nx\r\n\r\n*2\r\n+a\r\n+b\r\n");
        for whole in ["*-1\r\n", "_\r\n", "-EXECABORT x\r\n"] {
            assert_eq!(written(whole), whole);
        }
        // Too few for its places, too many, and none.
        for nonsense in ["*0\r\n", "*1\r\n+a\r\n", "*2\r\n+a\r\n", "*2\r\n+a\r\n+b\r\n+c\r\n", ""] {
            assert!(written(nonsense).starts_with("-ERR"), "{nonsense}: {}", written(nonsense));
        }
    }

    #[test]
    fn cursors_lead_through_all_stores() {
        let page = |at, next, cursor: &str| {
            let merge = Merge::Page { at, next, stores: 1024 };
            let part = format!("*2\r\n${}\r\n{cursor}\r\n*0\r\n", cursor.len());
            merged(&merge, Protocol::Resp2, &[&part])
        };
        assert_eq!(page(0, Some(1), "0"), "*2\r\n$1\r\n1\r\n*0\r\n");
        assert_eq!(page(1, Some(2), "3"), "*2\r\n$4\r\n3073\r\n*0\r\n");
        assert_eq!(page(2, None, "0"), "*2\r\n$1\r\n0\r\n*0\r\n");
        assert!(page(0, None, &u64::MAX.to_string()).starts_with("-ERR"), "no cursor is wrapped");
    }

    #[test]
    fn pages_in_order_become_one_in_order() {
        let merge = Merge::Sorted { shape: (false, 2) };
        let row = |key: &str| format!("$1\r\n{key}\r\n$1\r\nv\r\n");
        let (one, other) =
            (format!("*2\r\n{}", row("c")), format!("*4\r\n{}{}", row("a"), row("d")));
        let wanted = format!("*4\r\n{}{}", row("a"), row("c"));
        assert_eq!(merged(&merge, Protocol::Resp2, &[&one, &other]), wanted);
        let nested = |rows: &[&str]| {
            let rows: Vec<_> = rows.iter().map(|key| format!("*2\r\n{}", row(key))).collect();
            format!("*{}\r\n{}", rows.len(), rows.concat())
        };
        let parts = [nested(&["c"]), nested(&["a", "c"])];
        let three = merged(&merge, Protocol::Resp3, &[&parts[0], &parts[1]]);
        assert_eq!(three, nested(&["a", "c"]), "a key that was moved is shown once");
    }

    #[test]
    fn an_error_of_a_part_is_the_reply_and_nonsense_is_an_error() {
        let two = |merge: &Merge, parts: &[&str]| merged(merge, Protocol::Resp2, parts);
        assert_eq!(
            two(&Merge::Sum { all: false }, &[":1\r\n", "-CLUSTERDOWN x\r\n"]),
            "-CLUSTERDOWN x\r\n"
        );
        for nonsense in ["", "+OK\r\n", ":x\r\n", "*1\r\n"] {
            assert!(
                two(&Merge::Sum { all: false }, &[":1\r\n", nonsense]).starts_with("-ERR"),
                "{nonsense}"
            );
        }
        let short = Merge::Places(vec![vec![0, 1]]);
        assert!(two(&short, &["*1\r\n:1\r\n"]).starts_with("-ERR"));
    }
}
