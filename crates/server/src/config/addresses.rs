//! Addresses to listen on as words of an option, as in Redis: `localhost`, `*` for all of IPv4, `::*` for all of IPv6, and a `-`
//! in front of one that is left out if the machine does not have it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The address that a word means, and whether it may be left out; `None` if it means none.
pub fn listen_address(word: &str) -> Option<(IpAddr, bool)> {
    let (name, is_optional) = match word.strip_prefix('-') {
        Some(name) => (name, true),
        None => (word, false),
    };
    let ip = match name {
        "*" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        "::*" => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        "localhost" => IpAddr::from([127, 0, 0, 1]),
        other => other.parse().ok()?,
    };
    Some((ip, is_optional))
}

/// Why not all of these words can be listened on at one port: an address is there twice, or one of two includes the other, and
/// the second of them must be listened on. Sockets of IPv6 take no connections of IPv4, so that no address of the one includes
/// one of the other.
pub(super) fn overlap(words: &[String]) -> Option<String> {
    let is_overlap = |a: IpAddr, b: IpAddr| {
        a == b || a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified())
    };
    let mut before: Vec<(&String, IpAddr)> = Vec::new();
    for word in words {
        let Some((ip, is_optional)) = listen_address(word) else { continue };
        let overlapping = before.iter().find(|(_, other)| is_overlap(*other, ip));
        if let Some((first, other)) = overlapping
            && !is_optional
        {
            let what = match (*other == ip, ip.is_unspecified()) {
                (true, _) => format!("{ip} is there twice"),
                (false, true) => format!("{word} includes {first}"),
                (false, false) => format!("{first} includes {word}"),
            };
            return Some(format!("{what}; leave one of them out"));
        }
        before.push((word, ip));
    }
    None
}
