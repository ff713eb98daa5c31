//! Look-ups of names in DNS.
//!
//! - A look-up asks for A and AAAA records, or for SRV records and then for the addresses of their targets. The hosts
//!   file is read, as is `resolv.conf` unless servers are configured, each time: their changes take effect at the next
//!   look-up.
//! - A name that is in the hosts file has the addresses there, and DNS is not asked for those of the other family: a
//!   name server that does not answer must not hide the file.
//! - Without configured servers, a name that DNS does not have is looked up as the system does it (`getaddrinfo`): it
//!   may have names of other origin.
//! - Of a name [`MAX_ADDRESSES`] addresses are used, and of a service as many targets looked up.
//! - A name is looked up again when its shortest TTL has passed, though within [`MIN_INTERVAL`] and [`MAX_INTERVAL`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::{Hosts, TokioResolver};

use super::families::{MAX_ADDRESSES, Trial, try_families};
use super::source::{Source, SourceKind};
use super::weights::{Target, Weights, weights};

/// Shortest time between two look-ups of a name: a TTL of 0 must not become a load on the name server.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Longest time between two look-ups of a name: an endpoint that was added is used, and one that was removed is left,
/// within this time. Ten seconds are HAProxy's `hold valid`.
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
    /// Weights of those addresses.
    pub(super) weights: Weights,
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

/// Looks up the addresses of a source. `servers` are the name servers to ask; none: those of the system. `last` is the
/// last trial of this source's families.
pub(super) async fn look_up(
    source: Source,
    servers: Vec<SocketAddr>,
    last: Option<Trial>,
) -> (Source, Result<Answer, LookupError>) {
    let origins = Origins { hosts: Hosts::from_system().unwrap_or_default(), servers };
    let answer = match origins.find(&source).await {
        Ok(found) => choose_addresses(found, last).await,
        Err(error) => Err(error),
    };
    (source, answer)
}

/// Addresses to use among those that were found, with their weights.
async fn choose_addresses(found: Found, last: Option<Trial>) -> Result<Answer, LookupError> {
    let addresses: BTreeSet<SocketAddr> = found.targets.iter().flat_map(|target| target.addresses.clone()).collect();
    if addresses.is_empty() {
        return Err(LookupError::NoAddress);
    }
    let trial = try_families(addresses, last).await;
    let weights = weights(&found.targets, &trial.used);
    Ok(Answer { trial, weights, interval: interval(found.valid_until) })
}

/// Time until the next look-up of what is valid until then.
fn interval(valid_until: Instant) -> Duration {
    valid_until.saturating_duration_since(Instant::now()).clamp(MIN_INTERVAL, MAX_INTERVAL)
}

/// Targets with their addresses, and the time until which they are valid.
struct Found {
    targets: Vec<Target>,
    valid_until: Instant,
}

/// Origins of addresses.
struct Origins {
    /// The hosts file.
    hosts: Hosts,
    /// Name servers to ask; none: those of the system.
    servers: Vec<SocketAddr>,
}

impl Origins {
    async fn find(&self, source: &Source) -> Result<Found, LookupError> {
        let found = async {
            match source.kind {
                SourceKind::Service => self.find_service(source.host()).await,
                SourceKind::Host | SourceKind::Fixed => self.find_host(source.host(), source.port()).await,
            }
        };
        tokio::time::timeout(TIMEOUT, found).await.unwrap_or(Err(LookupError::TimedOut))
    }

    async fn find_host(&self, host: &str, port: u16) -> Result<Found, LookupError> {
        let listed = listed_addresses(&self.hosts, host);
        if !listed.is_empty() {
            let addresses = listed.into_iter().map(|address| (address, port).into());
            return Ok(Found::of_host(addresses, Instant::now() + MAX_INTERVAL));
        }
        let answered = async { resolver(&self.servers)?.lookup_ip(host).await }.await;
        match answered {
            Ok(found) => {
                let addresses = found.iter().map(|address| (address, port).into());
                Ok(Found::of_host(addresses, found.valid_until()))
            }
            Err(dns) if self.servers.is_empty() => match tokio::net::lookup_host((host, port)).await {
                Ok(addresses) => Ok(Found::of_host(addresses, Instant::now() + MAX_INTERVAL)),
                Err(system) => Err(LookupError::System { dns, system }),
            },
            Err(dns) => Err(dns.into()),
        }
    }

    async fn find_service(&self, name: &str) -> Result<Found, LookupError> {
        let found = resolver(&self.servers)?.srv_lookup(name).await?;
        let records = found.answers().iter().filter_map(|record| match &record.data {
            RData::SRV(service) => Some(service),
            _ => None,
        });
        // Each target is looked up, and has an address at least.
        let targets = best_targets(records)
            .into_iter()
            .take(MAX_ADDRESSES)
            .map(|((target, port), weight)| async move { (weight, self.find_host(&target, port).await) });
        let mut all = Found { targets: Vec::new(), valid_until: found.valid_until() };
        for (weight, found) in join_all(targets).await {
            // A target without addresses costs no other target its own.
            let Ok(found) = found else { continue };
            all.targets.extend(found.targets.into_iter().map(|target| Target { weight, ..target }));
            all.valid_until = all.valid_until.min(found.valid_until);
        }
        Ok(all)
    }
}

/// Addresses of a name in the hosts file, of both families.
fn listed_addresses(hosts: &Hosts, host: &str) -> Vec<IpAddr> {
    let Ok(name) = Name::from_utf8(host) else { return Vec::new() };
    let of_type = |of_type| hosts.lookup_static_host(&Query::query(name.clone(), of_type));
    let lists = [RecordType::A, RecordType::AAAA].into_iter().filter_map(of_type);
    lists
        .flat_map(|list| list.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>())
        .collect()
}

/// Targets of the records with the lowest priority, which are to be used as long as one can be reached (RFC 2782), with
/// their weights.
fn best_targets<'a>(records: impl Iterator<Item = &'a SRV> + Clone) -> BTreeMap<(String, u16), u32> {
    let best = records.clone().map(|record| record.priority).min();
    let best = records.filter(|record| Some(record.priority) == best);
    // A target of `.` says that there is no such service.
    let targets = best.filter(|record| !record.target.is_root());
    // The same record twice is one (RFC 2181, section 5).
    let records: BTreeSet<_> = targets.map(|record| (record.target.to_string(), record.port, record.weight)).collect();
    let mut weights = BTreeMap::new();
    for (target, port, weight) in records {
        *weights.entry((target, port)).or_default() += u32::from(weight);
    }
    weights
}

impl Found {
    /// Addresses of a host, which have equal parts of its requests.
    fn of_host(addresses: impl Iterator<Item = SocketAddr>, valid_until: Instant) -> Self {
        Self { targets: vec![Target { weight: 0, addresses: addresses.collect() }], valid_until }
    }
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
    // A name that is in the file does not come here.
    options.use_hosts_file = ResolveHosts::Never;
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

    /// Addresses that are found for an entry, with this hosts file and a name server that does not answer.
    async fn found_without_dns(entry: &str, file: &str) -> Result<Vec<SocketAddr>, LookupError> {
        let silent = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut hosts = Hosts::default();
        hosts.read_hosts_conf(file.as_bytes()).unwrap();
        let origins = Origins { hosts, servers: vec![silent.local_addr().unwrap()] };
        let found = origins.find(&entry.parse().unwrap()).await?;
        Ok(found.targets.into_iter().flat_map(|target| target.addresses).collect())
    }

    #[tokio::test(flavor = "current_thread")]
    async fn name_in_the_hosts_file_needs_no_name_server() {
        let file = "127.0.0.1 localhost\n192.0.2.1 store Store.test # the upstream\n2001:db8::1 six\n192.0.2.2 \
                    both\n2001:db8::2 both\n";
        for (entry, expected) in [
            ("http://store:81", vec!["192.0.2.1:81"]),
            ("http://STORE.TEST:81", vec!["192.0.2.1:81"]),
            ("http://six:81", vec!["[2001:db8::1]:81"]),
            ("http://both:81", vec!["192.0.2.2:81", "[2001:db8::2]:81"]),
        ] {
            let found = found_without_dns(entry, file).await.unwrap();
            assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{entry}");
        }
        let missing = found_without_dns("http://other:81", file).await;
        assert!(matches!(missing, Err(LookupError::TimedOut | LookupError::Dns(_))), "{missing:?}");
    }

    #[test]
    fn ttl_is_kept_within_bounds() {
        let interval = |seconds| interval(Instant::now() + Duration::from_secs(seconds));
        assert_eq!((interval(0), interval(86_400)), (MIN_INTERVAL, MAX_INTERVAL));
        assert!(interval(5) <= Duration::from_secs(5) && interval(5) > MIN_INTERVAL);
    }

    #[test]
    fn targets_of_the_lowest_priority_are_used() {
        let record = |priority, weight, port, target: &str| SRV::new(priority, weight, port, target.parse().unwrap());
        let records = [
            record(2, 9, 1, "a."),
            record(1, 5, 2, "b."),
            record(1, 7, 3, "c."),
            record(1, 7, 3, "c."),
            record(1, 1, 3, "c."),
            record(1, 4, 4, "."),
        ];
        let expected = [(("b.".to_owned(), 2), 5), (("c.".to_owned(), 3), 8)];
        assert_eq!(
            best_targets(records.iter()),
            expected.into(),
            "the same record counts once, and the same target whole"
        );
    }

    #[tokio::test(flavor = "current_thread")]
    async fn name_with_too_many_addresses_has_the_first_ones() {
        let addresses: Vec<SocketAddr> = (0..300_u16).map(|number| ([10, 0, 0, 1], number + 1).into()).collect();
        let found = Found::of_host(addresses.iter().copied(), Instant::now());
        let answer = choose_addresses(found, None).await.unwrap();
        assert_eq!(answer.trial.used, addresses[..MAX_ADDRESSES].iter().copied().collect());
        assert_eq!((answer.weights.len(), answer.trial.omitted), (MAX_ADDRESSES, 300 - MAX_ADDRESSES));
    }
}
