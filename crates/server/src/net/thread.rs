//! Threads that serve clients: the process ends if one of them panics.
//!
//! Its clients, and those who wait for a key that it has locked, would wait for ever. What was
//! acknowledged is in the log of the store; the next start recovers it.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread.
///
/// # Errors
/// The machine has no room for more threads.
pub(super) fn spawn(
    name: String,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name).spawn(move || {
        let _guard = AbortOnPanic;
        work();
    })
}

/// Aborts the process if a panic unwinds past it. The panic hook has printed what happened.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a thread that serves clients panicked; the server ends");
            std::process::abort();
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// The same on every Unix.
    const SIGABRT: i32 = 6;
    const PLANTED: &str = "TERRACE_TEST_PLANTED_PANIC";

    #[test]
    fn a_thread_that_panics_ends_the_process() {
        if std::env::var_os(PLANTED).is_some() {
            let thread = super::spawn("loop-0".into(), || panic!("a planted panic")).unwrap();
            let _panicked = thread.join();
            return;
        }
        let name = "net::thread::tests::a_thread_that_panics_ends_the_process";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([name, "--exact", "--nocapture"]).env(PLANTED, "1");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("a planted panic"), "{text}");
        assert_eq!(output.status.signal(), Some(SIGABRT), "{:?}", output.status);
    }
}
