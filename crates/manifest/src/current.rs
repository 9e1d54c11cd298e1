//! The `CURRENT` file: which manifest is in force.
