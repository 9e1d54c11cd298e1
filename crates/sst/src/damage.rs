//! What is damage, and what another attempt may not meet.

use terrace_base::Error;
use terrace_vfs::is_unreadable;

/// Whether `error` says that bytes are not what was written, or that the device does not give them.
/// Not a lack of memory, descriptors or rights, which another attempt may not meet.
pub fn is_damage(error: &Error) -> bool {
    match error {
        Error::Io { source, .. } => {
            source.kind() == std::io::ErrorKind::UnexpectedEof || is_unreadable(error)
        }
        error => error.is_corruption(),
    }
}
