//! What the bindings to other languages share: options by name and text, error codes with messages, and handles
//! that a forked process cannot use.
//!
//! Floor 5: uses the engine's public interface, and of the file system the locks that the child of a fork lets go of. The
//! C library, the Python package and the LevelDB interface stand on it.

mod address;
mod failure;
mod fork;
mod option_text;

pub use address::address;
pub use failure::{Code, Failure, Outcome, guard};
pub use fork::{Kept, generation};
pub use option_text::{encrypted_vfs, plain_options, set_store_option};
