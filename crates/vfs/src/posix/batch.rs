//! Many reads in one submission to the kernel, through an `io_uring` of the calling thread.
//!
//! A batch runs in waves: up to [`ENTRIES`] reads are submitted together and all of them are
//! waited for before the next wave or the return, so the kernel never holds a buffer that its
//! owner may touch. What the page cache holds is read at once: the ring would cost twice as much.
//! Reads that come back short are sent again for the rest. Whatever the ring
//! cannot do, an error included, is done again by a plain read, which then has the last word.

#![allow(unsafe_code, reason = "submission entries carry raw pointers; each is proven below")]

use super::direct::{ALIGN, align_down, with_bounce};
use crate::ReadRequest;
use crate::counters::count_read;
use io_uring::{IoUring, opcode, types};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::cell::RefCell;
use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Reads in flight at most.
const ENTRIES: u32 = 64;

/// Aligned bytes that the direct reads of one wave may take together.
const WAVE_BOUNCE_BYTES: usize = 1 << 20;

/// Times that the kernel may put a submission off before the ring is given up.
const MAX_REFUSALS: u32 = 1000;

/// Times that the kernel may put one read off before it is left to a plain read.
const MAX_PUT_OFF: u32 = 16;

/// Set once the kernel refuses a ring: no thread tries again.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// The ring of a thread, and the process that made it. What a child inherits by `fork` is its parent's too: both
/// would submit and reap each other's reads.
struct Ring {
    process: u32,
    ring: IoUring,
}

thread_local! {
    static RING: RefCell<Option<Ring>> = const { RefCell::new(None) };
}

/// Executes every request.
pub(super) fn read(requests: &mut [ReadRequest<'_>]) {
    for request in &mut *requests {
        request.result = None;
    }
    if requests.len() > 1 && !REFUSED.load(Relaxed) {
        // The ring is taken out while in use: a batch inside a batch would find none and make
        // its own.
        let process = std::process::id();
        let kept = RING.try_with(RefCell::take).ok().flatten();
        let own = kept.filter(|kept| kept.process == process).map(|kept| kept.ring);
        if let Some(mut ring) = own.or_else(set_up_ring) {
            let sound = read_by_ring(&mut ring, requests);
            if sound {
                let _ = RING.try_with(|kept| kept.replace(Some(Ring { process, ring })));
            } else {
                REFUSED.store(true, Relaxed);
            }
        }
    }
    for request in requests {
        if request.result.is_none() {
            request.result = Some(request.file.read_at(request.offset, request.buf));
        }
    }
}

fn set_up_ring() -> Option<IoUring> {
    // Completions run when the thread enters the kernel anyway; older kernels do not know this.
    let mut builder = IoUring::builder();
    let ring = builder.setup_coop_taskrun().build(ENTRIES).or_else(|_| IoUring::new(ENTRIES)).ok();
    if ring.is_none() {
        REFUSED.store(true, Relaxed);
    }
    ring
}

/// One read on its way.
struct Flight {
    /// Its index among the requests.
    request: usize,
    fd: i32,
    offset: u64,
    /// Where the kernel writes, and how many bytes it may.
    target: *mut u8,
    len: usize,
    /// Bytes without which the read has not succeeded.
    needed: usize,
    done: usize,
    /// Times that the kernel put it off.
    put_off: u32,
    /// For direct reads: where in the bounce buffer the wanted bytes start.
    bounce_at: Option<usize>,
}

impl Flight {
    /// Takes the result of a read; says whether the rest must be read.
    fn goes_on_after(&mut self, result: i32) -> bool {
        let Ok(len) = usize::try_from(result) else {
            self.put_off += 1;
            let passing = [Errno::INTR, Errno::AGAIN].map(|errno| -errno.raw_os_error());
            return passing.contains(&result) && self.put_off < MAX_PUT_OFF;
        };
        self.done += len;
        // A direct read stops between two blocks only at the end of the file.
        let may_go_on = self.bounce_at.is_none() || (self.done as u64).is_multiple_of(ALIGN);
        len > 0 && self.done < self.needed && may_go_on
    }
}

/// Executes what it can; false if the ring must not be used again.
fn read_by_ring(ring: &mut IoUring, requests: &mut [ReadRequest<'_>]) -> bool {
    let mut next = 0;
    while next < requests.len() {
        let sound = with_bounce(WAVE_BOUNCE_BYTES, |bounce| {
            let bounce = &mut bounce[..WAVE_BOUNCE_BYTES];
            let mut flights = Vec::with_capacity(ENTRIES as usize);
            next = plan_wave(requests, next, bounce, &mut flights);
            let sound = fly(ring, &mut flights);
            land(requests, bounce, &flights);
            sound
        });
        if !sound {
            return false;
        }
    }
    true
}

/// Chooses the requests of a wave from `first` on; returns the first one left for the next.
fn plan_wave(
    requests: &mut [ReadRequest<'_>],
    first: usize,
    bounce: &mut [u8],
    flights: &mut Vec<Flight>,
) -> usize {
    let (base, mut bounce_used) = (bounce.as_mut_ptr(), 0);
    for (index, request) in requests.iter_mut().enumerate().skip(first) {
        if flights.len() == ENTRIES as usize {
            return index;
        }
        let wanted = request.buf.len();
        let end = request.offset.checked_add(wanted as u64);
        let (Some((fd, direct)), Some(_), 1..=WAVE_BOUNCE_BYTES) =
            (request.file.direct_fd(), end.filter(|end| *end <= i64::MAX as u64), wanted)
        else {
            continue;
        };
        let mut flight = Flight {
            request: index,
            fd,
            offset: request.offset,
            target: request.buf.as_mut_ptr(),
            len: wanted,
            needed: wanted,
            done: 0,
            put_off: 0,
            bounce_at: None,
        };
        if direct {
            flight.offset = align_down(request.offset);
            let skip = (request.offset - flight.offset) as usize;
            flight.needed = skip + wanted;
            flight.len = flight.needed.next_multiple_of(ALIGN as usize);
            if flight.len > WAVE_BOUNCE_BYTES {
                continue;
            }
            if flight.len > WAVE_BOUNCE_BYTES - bounce_used {
                return index;
            }
            // SAFETY: `bounce` has WAVE_BOUNCE_BYTES, of which fewer are used.
            flight.target = unsafe { base.add(bounce_used) };
            flight.bounce_at = Some(bounce_used + skip);
            bounce_used += flight.len;
        }
        if !direct {
            flight.done = read_cached(fd, request.offset, request.buf);
            if flight.done == wanted {
                count_read(wanted);
                request.result = Some(Ok(()));
                continue;
            }
        }
        flights.push(flight);
    }
    requests.len()
}

/// Reads what the page cache holds without waiting for the device; says how much that was.
fn read_cached(fd: i32, offset: u64, buf: &mut [u8]) -> usize {
    // SAFETY: the file of the request keeps its descriptor open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    preadv2(fd, &mut [IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT).unwrap_or(0)
}

/// Submits the flights and waits until none is under way; false if the ring failed.
fn fly(ring: &mut IoUring, flights: &mut [Flight]) -> bool {
    let mut to_submit: Vec<usize> = (0..flights.len()).collect();
    let mut under_way = 0;
    let mut sound = true;
    let mut refusals = 0;
    while under_way > 0 || (sound && !to_submit.is_empty()) {
        if sound {
            under_way += push(ring, flights, &mut to_submit);
            if let Err(error) = ring.submit_and_wait(under_way) {
                refusals += 1;
                let passing = [Errno::INTR, Errno::AGAIN, Errno::BUSY]
                    .map(|errno| Some(errno.raw_os_error()))
                    .contains(&error.raw_os_error());
                if !passing || refusals > MAX_REFUSALS {
                    sound = false;
                    // These the kernel has not taken; nothing submits them any more.
                    under_way -= ring.submission().len();
                }
            }
        } else {
            // The ring takes no more orders, but what it took still ends, and until then its
            // buffers are the kernel's.
            std::thread::yield_now();
        }
        for completion in ring.completion() {
            under_way -= 1;
            let index = completion.user_data() as usize;
            if flights[index].goes_on_after(completion.result()) {
                to_submit.push(index);
            }
        }
    }
    sound
}

/// Queues as many of `to_submit` as the ring has room for; says how many.
fn push(ring: &mut IoUring, flights: &[Flight], to_submit: &mut Vec<usize>) -> usize {
    let mut queue = ring.submission();
    let mut pushed = 0;
    while let Some(index) = to_submit.last().copied() {
        let flight = &flights[index];
        // SAFETY: `done` is below `len`, and `target` has `len` bytes.
        let target = unsafe { flight.target.add(flight.done) };
        let entry =
            opcode::Read::new(types::Fd(flight.fd), target, (flight.len - flight.done) as u32)
                .offset(flight.offset + flight.done as u64)
                .build()
                .user_data(index as u64);
        // SAFETY: the bytes at `target` belong to a buffer that nobody touches before `fly`
        // returns, and `fly` returns only when nothing is under way. The request keeps the
        // descriptor open as long.
        if unsafe { queue.push(&entry) }.is_err() {
            break;
        }
        to_submit.pop();
        pushed += 1;
    }
    pushed
}

/// Settles the flights that got what they needed; the others are left to plain reads.
fn land(requests: &mut [ReadRequest<'_>], bounce: &[u8], flights: &[Flight]) {
    for flight in flights.iter().filter(|flight| flight.done >= flight.needed) {
        let request = &mut requests[flight.request];
        if let Some(at) = flight.bounce_at {
            request.buf.copy_from_slice(&bounce[at..at + request.buf.len()]);
        }
        count_read(request.buf.len());
        request.result = Some(Ok(()));
    }
}
