//! Races of revocations against tunnels that are being opened: none is open a second later, and no slot is lost.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use control::management::{self, Rotation};

use super::upstream::Endless;
use super::{End, LIMIT, ROUTES, end_of, try_open_tunnel};
use crate::support::gateway::{Key, OPERATOR, Operator};
use crate::support::redis::Redis;
use crate::support::{Gateway, Random, eventually};

/// Races of each test, unless `KEYGATE_RACES` says another number.
const RACES: usize = 100;
/// Remainders of the races in which the user is suspended, and of those in which the key is disabled.
const SUSPENSION: u64 = 4;
const DISABLING: u64 = 5;
/// Races at a time.
const CONCURRENT: usize = 8;

/// Result of one race: when the revocation was acknowledged, and the tunnels that were opened.
struct Race {
    acknowledged: Instant,
    tunnels: Vec<TcpStream>,
}

fn races() -> usize {
    std::env::var("KEYGATE_RACES").map_or(RACES, |races| races.parse().expect("KEYGATE_RACES is a number"))
}

/// A gateway, for all threads of a race.
type Node = (SocketAddr, Operator);

/// Opens tunnels at all gateways, and revokes their key at one of them meanwhile.
fn race(nodes: &[Node], key: &Key, seed: u64) -> Race {
    let mut random = Random::new(seed);
    let mut delay = || Duration::from_micros(random.below(6000));
    std::thread::scope(|scope| {
        let openers: Vec<_> = nodes
            .iter()
            .map(|(address, _)| {
                let delay = delay();
                scope.spawn(move || {
                    std::thread::sleep(delay);
                    try_open_tunnel(*address, &key.text)
                })
            })
            .collect();
        std::thread::sleep(delay());
        let (_, operator) = &nodes[usize::try_from(seed).unwrap() % nodes.len()];
        let (org, user) = (key.org.to_string(), key.user.to_string());
        operator.perform(async |to, now| match seed % 6 {
            SUSPENSION => management::suspend_user(to, OPERATOR, &org, &user, now).await.map(drop),
            DISABLING => management::disable_key(to, OPERATOR, key.id, false, now).await.map(drop),
            3 => management::rotate_key(to, OPERATOR, key.id, Rotation::new(None), now).await.map(drop),
            _ => management::revoke_key(to, OPERATOR, key.id, now).await.map(drop),
        });
        let acknowledged = Instant::now();
        Race { acknowledged, tunnels: openers.into_iter().filter_map(|opener| opener.join().unwrap()).collect() }
    })
}

/// Runs the races. Returns how many tunnels were opened, and the longest time from an acknowledgement to the end of a
/// tunnel.
fn run(gateways: &[Gateway]) -> (usize, Duration) {
    let owner = gateways[0].key();
    let nodes: Vec<Node> = gateways.iter().map(|gateway| (gateway.address, gateway.operator())).collect();
    let nodes = nodes.as_slice();
    let (mut opened, mut longest) = (0, Duration::ZERO);
    for first in (0..races()).step_by(CONCURRENT) {
        let seeds = first..(first + CONCURRENT).min(races());
        let results: Vec<Race> = std::thread::scope(|scope| {
            let racers: Vec<_> = seeds
                .map(|seed| {
                    // The other keys of a suspended user would end with it.
                    let is_suspension = seed as u64 % 6 == SUSPENSION;
                    let key = if is_suspension { gateways[0].key() } else { gateways[0].another_key(&owner) };
                    scope.spawn(move || race(nodes, &key, seed as u64))
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        for Race { acknowledged, tunnels } in results {
            opened += tunnels.len();
            for tunnel in tunnels {
                assert_eq!(end_of(tunnel), End::Reset);
                longest = longest.max(acknowledged.elapsed());
            }
        }
    }
    for gateway in gateways {
        eventually("every slot is back", || gateway.metric("keygate_in_flight") == 0.0);
    }
    eventually("no slot is lost", || gateways[0].explain_in_flight(&owner) == 0);
    (opened, longest)
}

fn check(gateways: &[Gateway], upstream: &Endless) {
    let (opened, longest) = run(gateways);
    println!("{} races, {opened} tunnels opened, the last end {longest:?} after its acknowledgement", races());
    assert!(opened > 0, "no tunnel was opened: nothing was tried");
    // In a run of its own. Beside other tests, the time that the clients themselves wait for a processor is in it.
    let limit = if std::env::var_os("KEYGATE_RACES").is_some() { LIMIT } else { 20 * LIMIT };
    assert!(longest < limit, "a tunnel was open for {longest:?} after its revocation was acknowledged");
    upstream.until_all_ended();
}

#[test]
fn no_tunnel_outlives_its_revocation_on_the_embedded_state() {
    let upstream = Endless::start();
    let gateway = Gateway::with(&[upstream.address], ROUTES);
    check(&[gateway], &upstream);
}

#[test]
fn no_tunnel_outlives_its_revocation_over_three_gateways_on_redis() {
    let (redis, upstream) = (Redis::start(), Endless::start());
    let state = format!("\nstate: {{ redis: {{ url: '{}', deadline: 2s }} }}\n{ROUTES}", redis.url());
    let gateways = [(); 3].map(|()| Gateway::with(&[upstream.address], &state));
    check(&gateways, &upstream);
}
