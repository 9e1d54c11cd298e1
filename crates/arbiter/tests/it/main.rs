//! The arbiter from outside: what it says to scripts, and how it fares in workloads of which all is known.

mod scripts;
mod simulation;
mod world;
