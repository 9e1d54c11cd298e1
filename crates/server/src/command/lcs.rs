//! `LCS`: the longest common subsequence of two strings.

use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome};
use terrace_keyspace::Error;
use terrace_resp::Aggregate;

/// The most bytes of the table of lengths, which has one length for each pair of bytes.
const MAX_TABLE_BYTES: usize = 256 << 20;

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "lcs",
    arity: -3,
    // It can take long: never in a loop.
    flags: Flags::READ.with(Flags::WAITS),
    keys: Keys::FirstTwo,
    group: Group::String,
    arguments: "key1 key2 [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]",
    summary: "Gives the longest text that is part of both strings, with gaps; the product of their \
              lengths is at most 67,108,864.",
    complexity: "O(length times length), in memory too",
    since: "7.0.0",
    run: lcs,
}];

/// For every pair of prefixes how long their longest common subsequence is.
struct Lengths<'a> {
    a: &'a [u8],
    b: &'a [u8],
    table: Vec<u32>,
}

/// Places from the first to the last one.
type Span = (usize, usize);

impl<'a> Lengths<'a> {
    fn of(a: &'a [u8], b: &'a [u8]) -> Result<Self, Failure> {
        let cells = (a.len() + 1).checked_mul(b.len() + 1);
        let cells = cells.filter(|cells| *cells <= MAX_TABLE_BYTES / size_of::<u32>());
        let cells = cells.ok_or(Failure::line(
            "ERR the strings are too long for LCS: the product of their lengths is above 67108864",
        ))?;
        let mut lengths = Self { a, b, table: vec![0; cells] };
        let width = b.len() + 1;
        for (i, x) in a.iter().enumerate() {
            for (j, y) in b.iter().enumerate() {
                lengths.table[(i + 1) * width + j + 1] = match x == y {
                    true => lengths.at(i, j) + 1,
                    false => lengths.at(i, j + 1).max(lengths.at(i + 1, j)),
                };
            }
        }
        Ok(lengths)
    }

    /// Of the first `i` bytes of one and the first `j` of the other.
    fn at(&self, i: usize, j: usize) -> u32 {
        self.table[i * (self.b.len() + 1) + j]
    }

    fn whole(&self) -> u32 {
        self.at(self.a.len(), self.b.len())
    }

    /// The pairs of places that make the subsequence, the last one first.
    fn pairs(&self) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        let (mut i, mut j) = (self.a.len(), self.b.len());
        while i > 0 && j > 0 {
            if self.a[i - 1] == self.b[j - 1] {
                (i, j) = (i - 1, j - 1);
                pairs.push((i, j));
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        pairs
    }

    fn text(&self) -> Vec<u8> {
        self.pairs().iter().rev().map(|(i, _)| self.a[*i]).collect()
    }

    /// The spans of both strings that are equal byte by byte, the last ones first.
    fn matches(&self) -> Vec<(Span, Span)> {
        let mut matches: Vec<(Span, Span)> = Vec::new();
        for (i, j) in self.pairs() {
            match matches.last_mut() {
                Some(((a, _), (b, _))) if *a == i + 1 && *b == j + 1 => (*a, *b) = (i, j),
                _ => matches.push(((i, i), (j, j))),
            }
        }
        matches
    }
}

#[derive(Default)]
struct Options {
    only_length: bool,
    with_places: bool,
    with_lengths: bool,
    least: usize,
}

fn options(call: &Call<'_>) -> Result<Options, Failure> {
    let mut options = Options::default();
    let mut at = 3;
    while at < call.count() {
        match &call.arg(at).to_ascii_lowercase()[..] {
            b"len" => options.only_length = true,
            b"idx" => options.with_places = true,
            b"withmatchlen" => options.with_lengths = true,
            b"minmatchlen" if at + 1 < call.count() => {
                at += 1;
                options.least = usize::try_from(call.integer(at)?.max(0)).unwrap_or(usize::MAX);
            }
            _ => return Err(Failure::SYNTAX),
        }
        at += 1;
    }
    match options.only_length && options.with_places {
        true => {
            Err(Failure::line("ERR If you want both the length and indexes, please just use IDX."))
        }
        false => Ok(options),
    }
}

fn lcs(call: &mut Call<'_>) -> Outcome {
    let mut texts: [Vec<u8>; 2] = Default::default();
    // Both as they are at one moment.
    call.batch.pin_now();
    for (at, text) in texts.iter_mut().enumerate() {
        match call.batch.get(call.session.db, call.arg(at + 1)) {
            Ok(found) => *text = found.map(|found| found.to_vec()).unwrap_or_default(),
            Err(Error::WrongType) => {
                return Err(Failure::line("ERR The specified keys must contain string values"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let options = options(call)?;
    let lengths = Lengths::of(&texts[0], &texts[1])?;
    if options.only_length {
        call.reply.integer(i64::from(lengths.whole()));
    } else if options.with_places {
        let mut matches = lengths.matches();
        matches.retain(|((first, last), _)| last - first + 1 >= options.least);
        call.reply.aggregate(Aggregate::Map, 2);
        call.reply.bulk("matches");
        call.reply.array(matches.len());
        for (a, b) in matches {
            call.reply.array(2 + usize::from(options.with_lengths));
            for (first, last) in [a, b] {
                call.reply.array(2);
                call.reply.integer(first as i64);
                call.reply.integer(last as i64);
            }
            if options.with_lengths {
                call.reply.integer((a.1 - a.0 + 1) as i64);
            }
        }
        call.reply.bulk("len");
        call.reply.integer(i64::from(lengths.whole()));
    } else {
        call.reply.bulk(lengths.text());
    }
    Ok(())
}
