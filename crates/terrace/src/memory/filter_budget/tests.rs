//! Both allocators as a whole, simulated.

mod simulation;
