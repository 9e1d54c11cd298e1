//! Garbage collection as a whole, simulated.

mod simulation;
