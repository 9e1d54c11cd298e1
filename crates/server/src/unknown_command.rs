//! Words that are no command: what is answered, and whether a browser may have been made to send them.

use terrace_resp::Command;

/// Whether a web page may have made a browser send this: what follows would be its text.
pub(crate) fn is_of_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// What is answered to a command that there is not.
pub(crate) fn unknown(args: &Command<'_>) -> String {
    /// As much of the arguments as Redis shows.
    const SHOWN: usize = 128;
    let name = String::from_utf8_lossy(&args.name()[..args.name().len().min(SHOWN)]).into_owned();
    let mut shown = String::new();
    for arg in args.iter().skip(1) {
        if shown.len() >= SHOWN {
            break;
        }
        let part = &arg[..arg.len().min(SHOWN - shown.len())];
        shown.push_str(&format!("'{}' ", String::from_utf8_lossy(part)));
    }
    format!("ERR unknown command '{name}', with args beginning with: {shown}")
}
