//! Address families of a name: which of them are used.
//!
//! Every address is an endpoint of its own, so that a host with an A and an AAAA record has two and, like the others,
//! two shares. A family that cannot be reached from here would then take half of all requests through a time-out. So
//! the addresses of a name that has both families are connected to before they are used, both families at the same
//! time:
//!
//! - A family of which no address accepts a connection, while one of the other family does, is left out: its hosts
//!   count once, by the other family. It is tried again after [`RETRIAL`].
//! - A family has [`DELAY`] after the other's first connection, the Connection Attempt Delay of Happy Eyeballs (RFC
//!   8305, section 5), here for the set of a name's addresses instead of for each connection: no request waits for it.
//! - When neither can be reached, both are used: this says nothing about the families.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;

/// Time that the slower family has after the first connection of the other.
const DELAY: Duration = Duration::from_millis(250);

/// Time for a connection while neither family has one.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Addresses of each family that are tried at most: a few show whether there is a route.
const MAX_TRIED: usize = 4;

/// Time after which families are tried again, while the addresses are the same.
const RETRIAL: Duration = Duration::from_secs(30);

/// Addresses of a name that are used at most: each is an endpoint with connections, probes and metrics of its own, and
/// a name server, or an attacker who answers for it, must not decide how many there are.
pub(super) const MAX_ADDRESSES: usize = 256;

/// Result of trying the families of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trial {
    /// Addresses that the name has.
    offered: BTreeSet<SocketAddr>,
    /// Those that are used.
    pub(super) used: BTreeSet<SocketAddr>,
    /// Number of those that are left out because there are too many.
    pub(super) omitted: usize,
    time: Instant,
}

/// Finds the addresses to use among those that a name has. `last` is the last result for this name, if there is one.
pub(super) async fn try_families(offered: BTreeSet<SocketAddr>, last: Option<Trial>) -> Trial {
    let is_recent = |last: &Trial| last.offered == offered && last.time.elapsed() < RETRIAL;
    if let Some(last) = last.filter(is_recent) {
        return last;
    }
    let (v4, v6): (Vec<SocketAddr>, Vec<SocketAddr>) = offered.iter().partition(|address| address.is_ipv4());
    let mut used = offered.clone();
    if !v4.is_empty() && !v6.is_empty() {
        match race(&v4, &v6).await {
            (true, false) => used = v4.into_iter().collect(),
            (false, true) => used = v6.into_iter().collect(),
            (true, true) | (false, false) => {}
        }
    }
    let omitted = used.len().saturating_sub(MAX_ADDRESSES);
    // The first ones in order, so that all gateways and look-ups use the same.
    while used.len() > MAX_ADDRESSES {
        used.pop_last();
    }
    Trial { offered, used, omitted, time: Instant::now() }
}

/// Returns which of two families can be connected to.
async fn race(v4: &[SocketAddr], v6: &[SocketAddr]) -> (bool, bool) {
    let v4 = pin!(connects(v4));
    let v6 = pin!(connects(v6));
    match select(v4, v6).await {
        Either::Left((first, other)) => (first, second(first, other).await),
        Either::Right((first, other)) => (second(first, other).await, first),
    }
}

/// Waits for the slower family: shortly when the other has a connection.
async fn second(first: bool, other: impl Future<Output = bool>) -> bool {
    if !first {
        return other.await;
    }
    tokio::time::timeout(DELAY, other).await.unwrap_or(false)
}

/// Returns whether one of these addresses accepts a connection.
async fn connects(addresses: &[SocketAddr]) -> bool {
    let attempts = addresses.iter().take(MAX_TRIED).map(|address| async move {
        tokio::time::timeout(TIMEOUT, TcpStream::connect(address)).await.is_ok_and(|connected| connected.is_ok())
    });
    let attempts: FuturesUnordered<_> = attempts.collect();
    attempts.any(std::future::ready).await
}

#[cfg(test)]
impl Trial {
    /// Addresses that are used as they are.
    pub(super) fn untried(addresses: BTreeSet<SocketAddr>) -> Self {
        Self { offered: addresses.clone(), used: addresses, omitted: 0, time: Instant::now() }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Listener on a port of its own.
    fn listener(address: &str) -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Address at which nothing listens.
    fn closed(address: &str) -> SocketAddr {
        listener(address).1
    }

    async fn used<const N: usize>(addresses: [SocketAddr; N]) -> Vec<SocketAddr> {
        try_families(addresses.into(), None).await.used.into_iter().collect()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn family_that_cannot_be_reached_is_left_out() {
        let ((_one, v4), (_two, v6)) = (listener("127.0.0.1"), listener("::1"));
        assert_eq!(used([v4, v6]).await, [v4, v6]);
        assert_eq!(used([v4, closed("::1")]).await, [v4]);
        assert_eq!(used([closed("127.0.0.1"), v6]).await, [v6]);
        let dead = closed("127.0.0.1");
        assert_eq!(used([dead, v4, v6]).await.len(), 3, "one dead host is not a family");
        assert_eq!(used([dead, closed("::1")]).await.len(), 2, "neither says nothing");
        assert_eq!(used([dead]).await, [dead], "a single family is not tried");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn result_is_used_until_the_addresses_change() {
        let ((v4, at_v4), (_v6, at_v6)) = (listener("127.0.0.1"), listener("::1"));
        let first = try_families([at_v4, at_v6].into(), None).await;
        drop(v4);
        let second = try_families([at_v4, at_v6].into(), Some(first.clone())).await;
        assert_eq!(second, first);
        let more = closed("127.0.0.1");
        let third = try_families([at_v4, at_v6, more].into(), Some(second)).await;
        assert_eq!(third.used, [at_v6].into());
    }
}
