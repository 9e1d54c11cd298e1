//! The long-lived crash test: one store that lives through every kill, and what it must hold kept
//! outside of it. Its parts: `driver` draws rounds and judges, `child` is the process that is
//! killed, `script` says what its threads do, `journal` what was begun and acknowledged, `expected`
//! what follows from both, `kill` where a process dies, `beside` reads while it lives, `feed` reads what the log has, `drawn` the options of a round.
//!
//! A binary of its own: it takes minutes, and its child processes are this binary again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod beside;
mod child;
mod drawn;
mod driver;
mod expected;
mod feed;
mod journal;
mod kill;
#[path = "../it/left_over.rs"]
mod left_over;
mod script;
mod usage;
