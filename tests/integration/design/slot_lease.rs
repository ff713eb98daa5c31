//! `docs/development/design/slot-lease.md`: the slots of two gateways over a failover of Redis, and after the death of
//! one.

use std::net::SocketAddr;

use super::LIMITS;
use super::held_upstream::{HeldUpstream, Sent};
use super::records::{Numbers, Records};
use super::stage::{Stage, state};
use crate::support::redis::{Proxy, Redis};
use crate::support::{Gateway, Key, Setup, Story, eventually, until};

struct Example<'a> {
    story: Story,
    stage: &'a Stage,
    records: Records,
    upstream: &'a HeldUpstream,
    key: &'a Key,
}

impl Example<'_> {
    fn get(&mut self, second: u64, gateway: (&str, SocketAddr), path: &str, server: &Redis) -> Sent {
        let sent = self.upstream.send(gateway.1, path, &self.key.text);
        self.tell(second, &format!("{}: GET {path}: {}", gateway.0, sent.words()), server);
        sent
    }

    /// Moves to a second of the story.
    fn move_to(&mut self, second: u64) -> &mut Self {
        self.stage.at(second);
        self
    }

    /// Waits until the heartbeats of these gateways have renewed their leases in this second.
    fn renew(&mut self, second: u64, gateways: &[usize], server: &Redis) {
        let renewed = |numbers: &Numbers, gateway: usize| {
            numbers.leases[gateway].as_ref().is_some_and(|lease| lease.renewed == second as f64)
        };
        eventually("the leases are renewed", || {
            let numbers = self.records.read(server);
            gateways.iter().all(|gateway| renewed(&numbers, *gateway))
        });
    }

    fn tell(&mut self, second: u64, event: &str, server: &Redis) {
        let numbers = self.records.read(server);
        let [a, b] = [0, 1].map(|gateway| self.records.words(gateway, numbers.leases[gateway].as_ref()));
        let (taken, tokens) = (numbers.taken, format!("{} (at {})", numbers.tokens, numbers.measured));
        self.story.tell(format!("{second:>2}  {event:<42} {taken:>5}  {a:<16}  {b:<16}  {tokens}"));
    }
}

/// Cuts replication off: the replica runs on, with what it has.
fn cut_replication(primary: &Redis, replica: &Redis) {
    primary.cli::<u64>(&["WAIT", "1", "0"]);
    replica.cli::<()>(&["CONFIG", "SET", "masterauth", "wrong"]);
    primary.cli::<u64>(&["CLIENT", "KILL", "TYPE", "replica"]);
    until("the replica is cut off", || (replica.info("replication", "master_link_status") == "down").then_some(()));
}

#[test]
fn slot_lease_outlasts_a_failover_as_its_page_tells_it() {
    let (stage, upstream) = (Stage::start(2), HeldUpstream::start());
    let [old, new] = &*stage.servers else { panic!("two servers") };
    new.cli::<()>(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    until("the replica follows", || (new.info("replication", "master_link_status") == "up").then_some(()));
    // As a virtual address, which moves with the primary.
    let proxy = Proxy::to(old.address());
    let state = state(proxy.address(), "8s");
    let one = Gateway::with(&[upstream.address()], &format!("{LIMITS}workers: 1\nstate: {state}\n"));
    let other = Setup::with_state(upstream.address(), &state, &format!("{LIMITS}workers: 1"));
    let mut process = other.start();
    let key = one.key();
    let (a, b) = (("A", one.address), ("B", other.address));
    let records = Records::of(&key, stage.zero());
    let mut example =
        Example { story: Story::of("slot-lease.md"), stage: &stage, records, upstream: &upstream, key: &key };
    example.story.tell(format!("{:>2}  {:<42} taken  {:<16}  {:<16}  tokens", "s", "event", "A holds", "B holds"));

    let first = example.get(0, a, "/1", old).forwarded();
    let second = example.get(0, b, "/2", old).forwarded();
    example.move_to(3).renew(3, &[0, 1], old);
    example.move_to(5).renew(5, &[0, 1], old);
    example.tell(5, "A, B: heartbeats renew the leases", old);
    cut_replication(old, new);
    example.tell(5, "replica: its link to the primary breaks", new);
    example.move_to(6).renew(6, &[0, 1], old);
    let third = example.get(6, a, "/3", old).forwarded();

    example.move_to(7);
    let links = proxy.connections();
    proxy.refuse(true);
    old.kill();
    new.cli::<()>(&["REPLICAOF", "NO", "ONE"]);
    example.tell(7, "the primary dies, the replica is promoted", new);
    eventually("all links are down", || proxy.connections() == 0);
    proxy.redirect(new.address());
    proxy.refuse(false);
    // Each link that comes to another server puts the leases in doubt.
    eventually("all links are up", || proxy.connections() == links);
    example.renew(7, &[0, 1], new);

    example.move_to(8).renew(8, &[0, 1], new);
    example.tell(8, "A, B: are resynced, as a new generation", new);
    drop(example.get(8, b, "/4", new));
    upstream.release("/1", first);
    eventually("the released slot is reported", || example.records.read(new).taken == 2);
    example.renew(8, &[0, 1], new);
    example.tell(8, "A: /1 ends", new);
    let fifth = example.get(8, b, "/5", new).forwarded();

    example.move_to(9).renew(9, &[0, 1], new);
    process.kill();
    example.tell(9, "B: renews its lease, and is killed", new);
    for (at, path) in [(13, "/6"), (17, "/7")] {
        example.move_to(at).renew(at, &[0], new);
        drop(example.get(at, a, path, new));
    }
    example.move_to(18);
    let eighth = example.get(18, a, "/8", new).forwarded();
    drop((second, third, fifth, eighth));
    example.story.end();
}
