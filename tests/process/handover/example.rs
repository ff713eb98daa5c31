//! The worked example of `docs/development/design/hand-over.md`: a gateway with 3 slots and a key with 5 tokens is
//! replaced while requests are in flight. The test prints the steps of the page, and fails when the page has others.

use super::{Backend, Lineage, Tunnel, signal};
use crate::sudden_death::find;
use crate::support::{Client, KEYGATE, Response, Setup, Story, eventually, head};

/// The example: a bucket that does not refill while it lasts, and clients that have time to leave.
const BLOCKS: &str = "
workers: 1
limits: { key: { requests: 5, per: 1h }, org: { concurrent: 3 } }
timeouts: { lame_duck: 60s, drain: 60s }
routes: [{ name: all, path: '/**', upgrade: [websocket] }]
";

struct Example {
    story: Story,
    lineage: Lineage,
    key: String,
}

impl Example {
    /// Tells an event, with the tokens and slots that the gateway shows after it.
    fn tell(&mut self, process: &str, event: &str) {
        let explained = self.lineage.setup.ok(&["explain", &self.key[8..17], "--json"]);
        let explained: serde_json::Value = serde_json::from_str(&explained).unwrap();
        let [tokens, slots] = ["remaining", "in_flight"].map(|name| find(&explained, name).unwrap().to_string());
        self.story.tell(format!("{process:<3}  {event:<63}  {tokens:>6}  {slots:>5}"));
    }

    fn slow(&self) -> Client {
        let mut client = self.lineage.setup.client();
        client.send(head("GET", "/slow", &self.key, &[], 0));
        client
    }

    /// The slots that are taken, as the process that decides counts them.
    fn slots(&self) -> u64 {
        let explained = self.lineage.setup.ok(&["explain", &self.key[8..17], "--json"]);
        let explained: serde_json::Value = serde_json::from_str(&explained).unwrap();
        find(&explained, "in_flight").and_then(serde_json::Value::as_u64).unwrap()
    }
}

fn answer(response: &Response) -> String {
    match response.status {
        200 => "200".to_owned(),
        status => format!("{status} {}", response.code()),
    }
}

#[test]
fn hand_over_goes_as_its_page_tells_it() {
    let backend = Backend::start();
    let (setup, key) = Setup::new(backend.upstream.address, BLOCKS).and_key();
    let lineage = Lineage::start(setup);
    let mut example = Example { story: Story::of("hand-over.md"), lineage, key };
    example.story.tell(format!("{:<3}  {:<63}  tokens  slots", "by", "event"));
    let mut kept = example.lineage.setup.client();
    assert_eq!(kept.get("/", &example.key).status, 200);
    eventually("its slot is free", || example.slots() == 0);
    example.tell("old", "GET / on a connection that stays open: 200");
    let mut slow = example.slow();
    eventually("the request is at the upstream", || backend.slow() == 1);
    example.tell("old", "GET /slow: forwarded");
    let tunnel = Tunnel::open(&example.lineage.setup, &example.key);
    example.tell("old", "GET /tunnel: 101, a tunnel");

    let output = example.lineage.try_upgrade(&[]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}\n{}", example.lineage.log());
    let (old, new) = (example.lineage.first.id(), example.lineage.current());
    let text = text.replace(KEYGATE, "keygate").replace(&new.to_string(), "NEW");
    let text = text.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    text.lines().for_each(|line| example.story.tell(format!("     keygate upgrade: {line}")));
    example.tell("new", "has read the state, and the uses that are open");

    let mut third = example.slow();
    eventually("the request is at the upstream", || backend.slow() == 2);
    example.tell("new", "GET /slow: forwarded");
    let refused = kept.get("/", &example.key);
    assert_eq!(refused.header("connection"), Some("close"));
    example.tell("new", &format!("GET / on the connection of the old one: {}", answer(&refused)));
    backend.release(1);
    assert_eq!(slow.response().status, 200);
    eventually("its slot is free", || example.slots() == 2);
    example.tell("old", "its GET /slow ends: 200");
    for _ in 0..2 {
        let response = example.lineage.setup.client().get("/", &example.key);
        eventually("its slot is free", || example.slots() == 2);
        example.tell("new", &format!("GET /: {}", answer(&response)));
    }
    tunnel.close();
    signal(old, "TERM");
    example.lineage.wait_for_end(old);
    eventually("its slot is free", || example.slots() == 1);
    example.tell("old", "the tunnel ends, and the process with exit code 0");
    backend.release(1);
    assert_eq!(third.response().status, 200);
    eventually("its slot is free", || example.slots() == 0);
    example.tell("new", "its GET /slow ends: 200");
    super::in_flight::reconfigure(&example.lineage, "lame_duck: 60s", "lame_duck: 200ms");
    example.lineage.stop();
    let outcomes = example.lineage.outcomes();
    let outcomes: Vec<String> = outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
    example.story.tell(format!("     audit verify: no problem; records: {}", outcomes.join(", ")));
    example.story.end();
}
