//! Look-ups of names in DNS.
//!
//! - A look-up asks for A and AAAA records, or for SRV records and then for the addresses of their targets. The hosts file is
//!   read, as is `resolv.conf` unless servers are configured, each time: their changes take effect at the next look-up.
//! - Without configured servers, a name that DNS does not have is looked up as the system does it (`getaddrinfo`): it may
//!   have names of other origin.
//! - A name is looked up again when its shortest TTL has passed, though within [`MIN_INTERVAL`] and [`MAX_INTERVAL`].

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use hickory_resolver::proto::rr::rdata::SRV;

use super::families::{Trial, try_families};
use super::source::{Source, SourceKind};

/// Shortest time between two look-ups of a name: a TTL of 0 must not become a load on the name server.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Longest time between two look-ups of a name: an endpoint that was added is used, and one that was removed is left, within
/// this time. Ten seconds are HAProxy's `hold valid`.
const MAX_INTERVAL: Duration = Duration::from_secs(10);

/// Time for a whole look-up, of all records of a source.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Time for one server to answer, before the next try.
const SERVER_TIMEOUT: Duration = Duration::from_secs(1);

/// Answer to a look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Addresses in order, at least one: those that are to be used.
    pub(super) trial: Trial,
    /// Time until the next look-up.
    pub(super) interval: Duration,
}

/// Reason why a look-up brought no address.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookupError {
    /// The name server refused, failed, or has no such name.
    #[error(transparent)]
    Dns(#[from] NetError),
    /// The system does not have the name, either.
    #[error("DNS: {dns}; the system: {system}")]
    System { dns: NetError, system: io::Error },
    /// No answer in time.
    #[error("the name servers did not answer in time")]
    TimedOut,
    /// There are records, and none has an address.
    #[error("the name has no addresses")]
    NoAddress,
}

/// Looks up the addresses of a source. `servers` are the name servers to ask; none: those of the system. `last` is the last
/// trial of this source's families.
pub(super) async fn look_up(
    source: Source,
    servers: Vec<SocketAddr>,
    last: Option<Trial>,
) -> (Source, Result<Answer, LookupError>) {
    let lookup = async {
        match source.kind {
            SourceKind::Service => look_up_service(&source, &servers).await,
            SourceKind::Host | SourceKind::Fixed => look_up_host(source.host(), source.port(), &servers).await,
        }
    };
    let found = tokio::time::timeout(TIMEOUT, lookup).await.unwrap_or(Err(LookupError::TimedOut));
    let answer = match found {
        Ok((addresses, _)) if addresses.is_empty() => Err(LookupError::NoAddress),
        Ok((addresses, valid_until)) => {
            Ok(Answer { trial: try_families(addresses, last).await, interval: interval(valid_until) })
        }
        Err(error) => Err(error),
    };
    (source, answer)
}

/// Time until the next look-up of what is valid until then.
fn interval(valid_until: Instant) -> Duration {
    valid_until.saturating_duration_since(Instant::now()).clamp(MIN_INTERVAL, MAX_INTERVAL)
}

/// Addresses, and the time until which they are valid.
type Found = (BTreeSet<SocketAddr>, Instant);

async fn look_up_host(host: &str, port: u16, servers: &[SocketAddr]) -> Result<Found, LookupError> {
    let answered = async { resolver(servers)?.lookup_ip(host).await }.await;
    match answered {
        Ok(found) => {
            let addresses: BTreeSet<IpAddr> = found.iter().collect();
            Ok((addresses.into_iter().map(|address| (address, port).into()).collect(), found.valid_until()))
        }
        Err(dns) if servers.is_empty() => match tokio::net::lookup_host((host, port)).await {
            Ok(addresses) => Ok((addresses.collect(), Instant::now() + MAX_INTERVAL)),
            Err(system) => Err(LookupError::System { dns, system }),
        },
        Err(dns) => Err(dns.into()),
    }
}

async fn look_up_service(source: &Source, servers: &[SocketAddr]) -> Result<Found, LookupError> {
    let found = resolver(servers)?.srv_lookup(source.host()).await?;
    let records = found.answers().iter().filter_map(|record| match &record.data {
        RData::SRV(service) => Some(service),
        _ => None,
    });
    let targets = best_targets(records)
        .into_iter()
        .map(|(target, port)| async move { look_up_host(&target, port, servers).await });
    let (mut addresses, mut valid_until) = (BTreeSet::new(), found.valid_until());
    // A target without addresses costs no other target its own.
    for (of_target, until) in join_all(targets).await.into_iter().flatten() {
        addresses.extend(of_target);
        valid_until = valid_until.min(until);
    }
    Ok((addresses, valid_until))
}

/// Targets of the records with the lowest priority, which are to be used as long as one can be reached (RFC 2782).
fn best_targets<'a>(records: impl Iterator<Item = &'a SRV> + Clone) -> BTreeSet<(String, u16)> {
    let best = records.clone().map(|record| record.priority).min();
    let best = records.filter(|record| Some(record.priority) == best);
    // A target of `.` says that there is no such service.
    best.filter(|record| !record.target.is_root()).map(|record| (record.target.to_string(), record.port)).collect()
}

/// Resolver that asks these servers, or those of the system.
fn resolver(servers: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    let mut builder = match servers {
        [] => TokioResolver::builder_tokio()?,
        servers => {
            let servers = servers.iter().map(|server| name_server(*server)).collect();
            let config = ResolverConfig::from_name_servers(servers);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        }
    };
    let options = builder.options_mut();
    // Names are looked up when they have expired, so that an answer is never asked for twice.
    (options.cache_size, options.timeout) = (0, SERVER_TIMEOUT);
    options.ip_strategy = hickory_resolver::config::LookupIpStrategy::Ipv4AndIpv6;
    builder.build()
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let on_port = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    let connections = vec![on_port(ConnectionConfig::udp()), on_port(ConnectionConfig::tcp())];
    NameServerConfig::new(address.ip(), true, connections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttl_is_kept_within_bounds() {
        let interval = |seconds| interval(Instant::now() + Duration::from_secs(seconds));
        assert_eq!((interval(0), interval(86_400)), (MIN_INTERVAL, MAX_INTERVAL));
        assert!(interval(5) <= Duration::from_secs(5) && interval(5) > MIN_INTERVAL);
    }

    #[test]
    fn targets_of_the_lowest_priority_are_used() {
        let record = |priority, port, target: &str| SRV::new(priority, 0, port, target.parse().unwrap());
        let records =
            [record(2, 1, "a."), record(1, 2, "b."), record(1, 3, "c."), record(1, 3, "c."), record(1, 4, ".")];
        let expected = [("b.".to_owned(), 2), ("c.".to_owned(), 3)];
        assert_eq!(best_targets(records.iter()), expected.into());
    }
}
