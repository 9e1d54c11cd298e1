//! Calls that other nodes execute for clients of this loop. When all of these were killed they are cancelled there. One that
//! ends its connection by itself leaves them alone: what it has sent is executed, as by Redis.

use std::sync::Arc;
use terrace_cluster::Cancellation;

/// So few are not looked through for those that are over.
const FEW: usize = 64;

/// The place of a client in its loop, and its id.
type Client = (usize, u64);

/// See the module.
#[derive(Default)]
pub(super) struct SentCalls {
    /// With their clients, without those that were killed.
    calls: Vec<(Arc<[Client]>, Cancellation)>,
    /// How many were left when they were looked through last.
    left: usize,
}

impl SentCalls {
    /// A call is sent.
    pub fn enter(&mut self, clients: Arc<[Client]>, cancellation: Cancellation) {
        if self.calls.len() >= self.left * 2 + FEW {
            self.calls.retain(|(_, cancellation)| !cancellation.is_alone());
            self.left = self.calls.len();
        }
        self.calls.push((clients, cancellation));
    }

    /// This client is killed: cancels the calls of which all clients were.
    pub fn cancel_of(&mut self, client: Client) {
        self.calls.retain_mut(|(clients, cancellation)| {
            if clients.contains(&client) {
                *clients = clients.iter().copied().filter(|one| *one != client).collect();
                if clients.is_empty() {
                    cancellation.cancel();
                    return false;
                }
            }
            !cancellation.is_alone()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_cancelled_when_all_its_clients_were_killed() {
        let mut sent = SentCalls::default();
        let [own, shared, over] = [(); 3].map(|()| Cancellation::of_call());
        sent.enter(Arc::new([(1, 10)]), own.clone());
        // Whether the other one is still there does not matter: what it has sent is executed.
        sent.enter(Arc::new([(1, 10), (2, 20)]), shared.clone());
        sent.enter(Arc::new([(3, 30)]), over);
        for _ in 0..2 {
            sent.cancel_of((1, 10));
            assert!(own.is_cancelled() && !shared.is_cancelled());
            assert_eq!(sent.calls.len(), 1, "those that are over are forgotten");
        }
        sent.cancel_of((2, 20));
        assert!(shared.is_cancelled() && sent.calls.is_empty());
        for _ in 0..10 * FEW {
            sent.enter(Arc::new([(1, 11)]), Cancellation::of_call());
            assert!(sent.calls.len() <= FEW);
        }
    }
}
