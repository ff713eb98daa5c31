//! `docs/development/design/decision-on-redis.md`: who is asked, what is checked, and what is written.

use super::LIMITS;
use super::held_upstream::{HeldUpstream, Sent};
use super::monitor::Monitor;
use super::records::{Lease, Records};
use super::stage::{Stage, state};
use crate::support::redis::Redis;
use crate::support::{Gateway, Key, Story, eventually};

/// Two gateways on one Redis, and what they do with one key.
struct Example<'a> {
    story: Story,
    server: &'a Redis,
    monitor: Monitor<'a>,
    records: Records,
    upstream: &'a HeldUpstream,
    key: &'a Key,
}

impl Example<'_> {
    /// Sends a request, and tells what came of it.
    fn get(&mut self, second: u64, gateway: (&str, &Gateway), path: &str) -> Sent {
        let sent = self.upstream.send(gateway.1.address, path, &self.key.text);
        self.tell(second, &format!("{}: GET {path}", gateway.0), &sent.words());
        sent
    }

    /// Ends a request that is in flight, and waits until Redis knows that its slot is free.
    fn end(&mut self, second: u64, gateway: &str, path: &str, sent: Sent) {
        let before = self.records.read(self.server).taken;
        self.upstream.release(path, sent.forwarded());
        eventually("the released slot is reported", || self.records.read(self.server).taken < before);
        self.tell(second, &format!("{gateway}: {path} ends"), "200");
    }

    fn tell(&mut self, second: u64, event: &str, answer: &str) {
        let numbers = self.records.read(self.server);
        let [a, b] = numbers.leases.each_ref().map(|lease| Lease::held(lease.as_ref()));
        let (tokens, uses, taken) = (numbers.tokens, numbers.uses, numbers.taken);
        self.story.tell(format!(
            "{second:>2}  {event:<19} {answer:<35} {tokens:>6.1}  {uses:>4}  {taken:>5}  {a:>2}  {b:>2}"
        ));
    }

    /// Tells the calls of a second all together: a busy gateway may read changed records before it is asked.
    fn tell_calls(&mut self, second: u64) {
        let calls = self.monitor.decide_calls();
        self.story.tell(format!("{second:>2}  calls of decide.lua in this second: {calls}"));
    }
}

#[test]
fn decision_on_redis_goes_as_its_page_tells_it() {
    let (stage, upstream) = (Stage::start(1), HeldUpstream::start());
    let server = &stage.servers[0];
    let blocks = format!("{LIMITS}workers: 1\nstate: {}\n", state(server.address(), "10s"));
    let [one, other] = [(); 2].map(|()| Gateway::with(&[upstream.address()], &blocks));
    let (a, b) = (("A", &one), ("B", &other));
    let key = one.key();
    let mut example = Example {
        story: Story::of("decision-on-redis.md"),
        server,
        monitor: Monitor::start(server),
        records: Records::of(&key, stage.zero()),
        upstream: &upstream,
        key: &key,
    };
    example.story.tell(format!(
        "{:>2}  {:<19} {:<35} {}  {}  {}  {:>2}  {:>2}",
        "s", "event", "answer", "tokens", "uses", "taken", "A", "B"
    ));
    let first = example.get(0, a, "/1");
    let second = example.get(0, b, "/2");
    example.tell_calls(0);
    stage.at(1);
    let third = example.get(1, a, "/3");
    drop(example.get(1, b, "/4"));
    example.tell_calls(1);
    stage.at(2);
    example.end(2, "A", "/1", first);
    let fifth = example.get(2, b, "/5");
    example.tell_calls(2);
    stage.at(3);
    one.limit_org(&key, 4);
    example.tell(3, "A: limit is 4 slots", "done");
    let sixth = example.get(3, a, "/6");
    drop(example.get(3, a, "/7"));
    example.end(3, "B", "/2", second);
    let eighth = example.get(3, b, "/8");
    example.end(3, "A", "/3", third);
    drop(example.get(3, a, "/9"));
    example.tell_calls(3);
    drop((fifth, sixth, eighth));
    example.story.end();
}
