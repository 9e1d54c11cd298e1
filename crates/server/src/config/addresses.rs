//! Addresses to listen on as words of an option, as in Redis: `localhost`, `*` for all of IPv4, and a `-` in front of one
//! that is left out if the machine does not have it.

use std::net::IpAddr;

/// The address that a word means, and whether it may be left out; `None` if it means none.
pub fn listen_address(word: &str) -> Option<(IpAddr, bool)> {
    let (name, is_optional) = match word.strip_prefix('-') {
        Some(name) => (name, true),
        None => (word, false),
    };
    let ip = match name {
        "*" => IpAddr::from([0, 0, 0, 0]),
        "localhost" => IpAddr::from([127, 0, 0, 1]),
        other => other.parse().ok()?,
    };
    Some((ip, is_optional))
}

/// An address that stands among these words twice, the second time as one that must be listened on.
pub(super) fn given_twice(words: &[String]) -> Option<IpAddr> {
    let mut before = Vec::new();
    for (ip, is_optional) in words.iter().filter_map(|word| listen_address(word)) {
        if !is_optional && before.contains(&ip) {
            return Some(ip);
        }
        before.push(ip);
    }
    None
}
