//! Memory straight from the kernel.
