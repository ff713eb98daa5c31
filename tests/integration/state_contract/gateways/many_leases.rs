//! Leases of many gateways on the slots of one organization: what a report and a decision cost, and leases that the
//! version before wrote.

use std::time::Duration;

use domain::key::OrgTag;

use super::{LIMIT, counted, fill, open, shipped, slot};
use crate::state_contract::fixture::fixture_with_key;
use crate::state_contract::redis::enter_with_server;
use crate::state_contract::runtime::block_on;
use crate::support::redis::Redis;
use crate::support::until;

/// Longer than any test.
const LEASE: Duration = Duration::from_secs(24 * 60 * 60);
const GATEWAYS: u32 = 50;

fn record(tag: OrgTag) -> String {
    format!("keygate:{{{}}}:org", tag.as_str())
}

fn packed(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The server's time in microseconds.
fn time(server: &Redis) -> f64 {
    let [seconds, micros]: [f64; 2] = server.cli::<Vec<f64>>(&["TIME"]).try_into().unwrap();
    seconds * 1e6 + micros
}

/// Writes leases of other gateways with a slot each. They last reported `age` microseconds ago.
fn add_leases(server: &Redis, tag: OrgTag, count: u32, age: f64) {
    let live: Vec<u8> = server.cli(&["HGET", &record(tag), "live"]);
    let (taken, now) = (counted(server, tag).0 + count, time(server));
    let first_end = now - age + LEASE.as_micros() as f64;
    let mut set = ::redis::cmd("HSET");
    set.arg(record(tag)).arg("live").arg([&live[..8], &packed(&[f64::from(taken), first_end, now])].concat());
    for number in 0..count {
        set.arg(format!("h:other{number}")).arg(packed(&[1.0, now - age, LEASE.as_micros() as f64, 1.0]));
    }
    server.query::<()>(&set).unwrap();
}

#[test]
fn report_and_decision_read_no_other_lease_while_none_may_have_ended() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        let gateway = open(&shipped(&server, LEASE)).await;
        let (fixture, key) = fixture_with_key(&gateway).await;
        let mut held = Vec::new();
        fill(&gateway, &key.digest, &mut held, 2, Duration::ZERO).await;
        add_leases(&server, fixture.tag, GATEWAYS, 0.0);
        let mut monitor = server.monitor();
        fill(&gateway, &key.digest, &mut held, 3, Duration::ZERO).await;
        held.clear();
        // Not with HGETALL, which is looked for here.
        let taken = || server.cli::<Vec<u8>>(&["HGET", &record(fixture.tag), "live"])[8..16].to_vec();
        until("the releases are reported", || (taken() == packed(&[f64::from(GATEWAYS)])).then_some(()));
        assert!(slot(&gateway, &key.digest).await.is_some());
        let commands = monitor.commands_on(&record(fixture.tag));
        assert!(!commands.contains(&"hgetall".to_owned()), "a command that reads all leases: {commands:?}");
        assert!(commands.contains(&"hset".to_owned()), "{commands:?}");
    });
}

#[test]
fn read_of_a_key_does_not_carry_the_leases() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        let (gateway, other) = (open(&shipped(&server, LEASE)).await, open(&shipped(&server, LEASE)).await);
        let (fixture, key) = fixture_with_key(&gateway).await;
        let held = slot(&gateway, &key.digest).await;
        add_leases(&server, fixture.tag, 20 * GATEWAYS, 0.0);
        let sent = || server.info("stats", "total_net_output_bytes").parse::<u64>().unwrap();
        let before = sent();
        assert!(slot(&other, &key.digest).await.is_none(), "the limit is exceeded by far");
        let bytes = sent() - before;
        assert!(bytes < u64::from(20 * GATEWAYS) * 10, "{bytes} bytes: the key was not cached there");
        drop(held);
    });
}

#[test]
fn leases_of_other_gateways_count_and_end() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        let gateway = open(&shipped(&server, LEASE)).await;
        let (fixture, key) = fixture_with_key(&gateway).await;
        let all = usize::try_from(LIMIT).unwrap();
        let mut held = Vec::new();
        fill(&gateway, &key.digest, &mut held, 10, Duration::ZERO).await;
        add_leases(&server, fixture.tag, GATEWAYS, 0.0);
        fill(&gateway, &key.digest, &mut held, all - 50, Duration::ZERO).await;
        assert!(slot(&gateway, &key.digest).await.is_none());
        // This gateway has reported meanwhile, so the others have really ended.
        let lease = LEASE.as_micros() as f64;
        add_leases(&server, fixture.tag, 0, lease);
        let ended = packed(&[1.0, time(&server) - lease - 1e6, lease, 1.0]);
        for number in 0..GATEWAYS {
            let mut set = ::redis::cmd("HSET");
            set.arg(record(fixture.tag)).arg(format!("h:other{number}")).arg(&ended);
            server.query::<()>(&set).unwrap();
        }
        fill(&gateway, &key.digest, &mut held, all, Duration::ZERO).await;
        assert_eq!(counted(&server, fixture.tag), (LIMIT, vec![LIMIT]));
    });
}
