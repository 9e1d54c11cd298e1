//! Calls that other nodes execute for clients of this loop. When the last of these is killed they are cancelled there. One that
//! ends its connection by itself leaves them alone: what it has sent is executed, as by Redis.

use std::sync::Arc;
use terrace_cluster::Cancellation;

/// So few are not looked through for those that are over.
const FEW: usize = 64;

/// See the module.
#[derive(Default)]
pub(super) struct SentCalls {
    /// With the places and ids of the clients that wait for them.
    calls: Vec<(Arc<[(usize, u64)]>, Cancellation)>,
    /// How many were left when they were looked through last.
    left: usize,
}

impl SentCalls {
    /// A call is sent.
    pub fn enter(&mut self, clients: Arc<[(usize, u64)]>, cancellation: Cancellation) {
        if self.calls.len() >= self.left * 2 + FEW {
            self.calls.retain(|(_, cancellation)| !cancellation.is_alone());
            self.left = self.calls.len();
        }
        self.calls.push((clients, cancellation));
    }

    /// This client is killed: cancels the calls for which no other one waits.
    pub fn cancel_of(&mut self, client: (usize, u64), is_here: impl Fn((usize, u64)) -> bool) {
        self.calls.retain(|(clients, cancellation)| {
            let is_over = clients.contains(&client) && !clients.iter().any(|one| is_here(*one));
            if is_over {
                cancellation.cancel();
            }
            !is_over && !cancellation.is_alone()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_cancelled_with_the_last_client_that_waits_for_it() {
        let mut sent = SentCalls::default();
        let [own, shared, over] = [(); 3].map(|()| Cancellation::of_call());
        sent.enter(Arc::new([(1, 10)]), own.clone());
        sent.enter(Arc::new([(1, 10), (2, 20)]), shared.clone());
        sent.enter(Arc::new([(3, 30)]), over);
        sent.cancel_of((1, 10), |one| one == (2, 20));
        assert!(own.is_cancelled() && !shared.is_cancelled());
        assert_eq!(sent.calls.len(), 1, "those that are over are forgotten");
        sent.cancel_of((2, 20), |_| false);
        assert!(shared.is_cancelled() && sent.calls.is_empty());
        for _ in 0..10 * FEW {
            sent.enter(Arc::new([(1, 11)]), Cancellation::of_call());
            assert!(sent.calls.len() <= FEW);
        }
    }
}
