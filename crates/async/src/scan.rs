//! A scan as a stream of chunks. Between two chunks it holds a snapshot and a key, no iterator and no thread: so a slow
//! reader keeps nobody waiting, and a scan that is dropped ends with its chunk.

use crate::calls::Calls;
use std::future::Future;
use std::ops::{Bound, RangeBounds};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use terrace::{ColumnFamily, Db, Error, ReadOptions, Result, Slice, Snapshot};
use tokio::task::coop;
use tokio_stream::Stream;

/// Entries of a chunk at most.
const CHUNK_ENTRIES: usize = 256;

/// A chunk ends after the entry with which it has this many bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// What a chunk from memory costs of a task's budget, in which a point read is one: it takes as long as many of them.
const CHUNK_UNITS: u8 = 16;

/// Keys and values in the order of keys.
pub type ScanChunk = Vec<(Vec<u8>, Slice)>;

/// A chunk, whether it is the last one, and the moment that it was read at.
struct Read {
    chunk: ScanChunk,
    is_last: bool,
    moment: Moment,
}

/// What all chunks of a scan have in common: what they see, and the time at which it is judged what has expired.
#[derive(Clone)]
struct Moment {
    snapshot: Snapshot,
    now_ms: u64,
}

impl Moment {
    /// That of `options`, as far as they say; the present for the rest.
    fn of(db: &Db, options: &ReadOptions) -> Self {
        let snapshot = options.snapshot.clone().unwrap_or_else(|| db.snapshot());
        let now_ms = options.now_ms.unwrap_or_else(|| db.options().advanced.clock.wall_ms());
        Self { snapshot, now_ms }
    }

    fn put_into(self, options: &mut ReadOptions) {
        options.snapshot = Some(self.snapshot);
        options.now_ms = Some(self.now_ms);
    }
}

type Reading = Pin<Box<dyn Future<Output = Result<Read>> + Send>>;

/// A stream of chunks, made by [`AsyncDb::scan`](crate::AsyncDb::scan). After an error it ends.
///
/// A chunk that is in memory is read by the thread that polls, another one by a blocking thread. Between two chunks it yields
/// from time to time, as tokio's own streams do.
pub struct Scan {
    db: Db,
    cf: ColumnFamily,
    /// From where it goes on, and its moment once the first chunk is read.
    options: ReadOptions,
    calls: Calls,
    reading: Option<Reading>,
    /// Units of the task's budget that the next chunk has had, of [`CHUNK_UNITS`]. They are kept from turn to turn: other
    /// work of the task may leave it few each time.
    units: u8,
    is_over: bool,
}

impl Scan {
    pub(crate) fn new(db: Db, cf: ColumnFamily, options: ReadOptions, calls: Calls) -> Self {
        Self { db, cf, options, calls, reading: None, units: 0, is_over: false }
    }

    /// The next chunk, if it is in memory. The first one takes a snapshot, which may wait.
    fn at_once(&self) -> Option<Result<Read>> {
        self.options.snapshot.as_ref()?;
        let options = ReadOptions { in_memory: true, ..self.options.clone() };
        match read(&self.db, &self.cf, options) {
            Err(Error::NotInMemory) if !self.options.in_memory => None,
            read => Some(read),
        }
    }

    fn begin(&self) -> Reading {
        let (db, cf, calls) = (self.db.clone(), self.cf.clone(), self.calls.clone());
        let options = self.options.clone();
        Box::pin(async move { calls.run(move || read(&db, &cf, options)).await })
    }

    /// What the stream gives for what was read.
    fn take(&mut self, read: Result<Read>) -> Option<Result<ScanChunk>> {
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                self.is_over = true;
                // It keeps what it sees on disk.
                self.options.snapshot = None;
                return Some(Err(error));
            }
        };
        self.is_over = read.is_last;
        match read.is_last {
            true => self.options.snapshot = None,
            false => read.moment.put_into(&mut self.options),
        }
        let (last, _) = read.chunk.last()?;
        self.options.lower_bound = Some([last, &[0][..]].concat());
        Some(Ok(read.chunk))
    }
}

impl Stream for Scan {
    type Item = Result<ScanChunk>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if self.reading.is_none() {
            while self.units < CHUNK_UNITS {
                ready!(coop::poll_proceed(context)).made_progress();
                self.units += 1;
            }
            self.units = 0;
            if let Some(read) = self.at_once() {
                return Poll::Ready(self.take(read));
            }
            self.reading = Some(self.begin());
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let read = ready!(reading.as_mut().poll(context));
        self.reading = None;
        Poll::Ready(self.take(read))
    }
}

/// Reads a chunk from the lower bound of `options` on, at their moment.
fn read(db: &Db, cf: &ColumnFamily, mut options: ReadOptions) -> Result<Read> {
    let moment = Moment::of(db, &options);
    moment.clone().put_into(&mut options);
    let mut iter = cf.iter_with(&options)?;
    iter.seek_to_first()?;
    let (mut chunk, mut bytes) = (ScanChunk::new(), 0);
    while iter.valid() && chunk.len() < CHUNK_ENTRIES && bytes < CHUNK_BYTES {
        bytes += iter.key().len() + iter.value().len();
        chunk.push((iter.key().to_vec(), Slice::from(iter.value())));
        iter.next()?;
    }
    Ok(Read { is_last: !iter.valid(), chunk, moment })
}

/// `options` with the bounds of `range`.
pub(crate) fn bounded<K: AsRef<[u8]>>(
    range: impl RangeBounds<K>,
    options: ReadOptions,
) -> ReadOptions {
    let after = |key: &K| [key.as_ref(), &[0][..]].concat();
    let lower_bound = match range.start_bound() {
        Bound::Unbounded => None,
        Bound::Included(key) => Some(key.as_ref().to_vec()),
        Bound::Excluded(key) => Some(after(key)),
    };
    let upper_bound = match range.end_bound() {
        Bound::Unbounded => None,
        Bound::Excluded(key) => Some(key.as_ref().to_vec()),
        Bound::Included(key) => Some(after(key)),
    };
    ReadOptions { lower_bound, upper_bound, ..options }
}
