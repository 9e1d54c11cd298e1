//! How many connections every peer has, so that one of them does not take all. `wire.rs` asks for each.
//!
//! Peers on this machine are not bounded: a proxy in front of the server, a tunnel, the browser and Prometheus
//! beside it all come from the same addresses, and with a bound any of them would lock out the others sooner.

use super::MAX_PEER_CONNECTIONS;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// The connections of every peer that has any. A peer is an address, or the first half of one of IPv6: who has
/// one of these mostly has all that begin so.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<HashMap<IpAddr, usize>>);

impl Peers {
    /// One more connection from this address to the address `local`, until what it gives is dropped; `None`: it has
    /// enough.
    pub fn enter(
        self: &Arc<Self>,
        address: IpAddr,
        local: Option<IpAddr>,
    ) -> Option<PeerConnection> {
        let address = address.to_canonical();
        if address.is_loopback() || local.is_some_and(|local| local.to_canonical() == address) {
            return Some(PeerConnection(None));
        }
        let peer = match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(six) => {
                IpAddr::V6(Ipv6Addr::from_bits(six.to_bits() & !u128::from(u64::MAX)))
            }
        };
        let mut all = self.0.lock();
        let count = all.entry(peer).or_default();
        if *count >= MAX_PEER_CONNECTIONS {
            return None;
        }
        *count += 1;
        Some(PeerConnection(Some((self.clone(), peer))))
    }
}

/// A connection that is counted, or one from this machine.
#[derive(Debug)]
pub(super) struct PeerConnection(Option<(Arc<Peers>, IpAddr)>);

impl Drop for PeerConnection {
    fn drop(&mut self) {
        let Some((peers, peer)) = &self.0 else { return };
        let mut all = peers.0.lock();
        if let Some(count) = all.get_mut(peer) {
            *count -= 1;
            if *count == 0 {
                all.remove(peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_a_bound_of_its_own() {
        let peers = Arc::new(Peers::default());
        let enter = |address: &str| peers.enter(address.parse().unwrap(), None);
        let mut held: Vec<_> =
            (0..MAX_PEER_CONNECTIONS).map(|_| enter("192.0.2.7").unwrap()).collect();
        assert!(enter("192.0.2.7").is_none());
        assert!(enter("::ffff:192.0.2.7").is_none(), "the same address");
        assert!(enter("192.0.2.8").is_some());
        held.pop();
        assert!(enter("192.0.2.7").is_some());
        drop(held);
        assert!(peers.0.lock().is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let peers = Arc::new(Peers::default());
        let enter = |address: String| peers.enter(address.parse().unwrap(), None);
        let held: Vec<_> =
            (0..MAX_PEER_CONNECTIONS).map(|n| enter(format!("2001:db8::{n:x}")).unwrap()).collect();
        assert!(enter("2001:db8::ffff:1:2".into()).is_none());
        assert!(enter("2001:db8:0:1::1".into()).is_some());
        drop(held);
    }

    #[test]
    fn this_machine_has_none() {
        let peers = Arc::new(Peers::default());
        for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let enter = |_| peers.enter(address.parse().unwrap(), None).unwrap();
            drop((0..2 * MAX_PEER_CONNECTIONS).map(enter).collect::<Vec<_>>());
        }
        let own = "192.0.2.7".parse().unwrap();
        let enter = |_| peers.enter("::ffff:192.0.2.7".parse().unwrap(), Some(own)).unwrap();
        drop((0..2 * MAX_PEER_CONNECTIONS).map(enter).collect::<Vec<_>>());
    }
}
