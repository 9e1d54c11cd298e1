//! How the limit on open files of the process is shared: the store has half of it, and clients have the rest but for
//! what everything else takes, so that neither takes the other's.

/// Connections of HTTP, listeners, files of the program itself.
const SPARE: u64 = 96;

/// With fewer descriptors flushes and merges, which open some beside those of the store's share, may find none.
const FEWEST: u64 = 128;

/// What is said at the start where there are too few.
pub(crate) fn warning(limit: u64) -> Option<String> {
    let clients = of_clients(limit);
    (limit < FEWEST).then(|| {
        format!(
            "the process may have {limit} files open, {clients} of them clients: flushes, merges and HTTP may find none left, and writes stop then; allow \
             {FEWEST} or more (ulimit -n, or LimitNOFILE of the service)"
        )
    })
}

/// Files that the store keeps open at most.
pub(crate) fn of_store(limit: u64) -> u64 {
    limit / 2
}

/// Most clients at a time.
pub(crate) fn of_clients(limit: u64) -> u64 {
    let rest = limit - of_store(limit);
    (rest - SPARE.min(rest / 4)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_store_and_clients_may_have_fits_into_the_limit() {
        for limit in [1, 2, 16, 64, 256, 1024, 4096, 20_000, u64::MAX] {
            let (store, clients) = (of_store(limit), of_clients(limit));
            assert!(clients > 0 && store.checked_add(clients).is_some_and(|sum| sum <= limit));
            assert!(limit < 64 || limit - store - clients >= SPARE.min(limit / 8), "{limit}");
        }
        assert_eq!(of_clients(1024), 416);
    }

    #[test]
    fn a_limit_that_is_too_low_is_said() {
        assert!(warning(32).is_some_and(|text| text.contains("32 files") && text.contains("128")));
        assert_eq!(warning(FEWEST), None);
    }
}
