//! Two Envoys before three gateways on one Redis: exact slots, through deaths of gateways, and the end of open
//! exchanges when their key is revoked.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::four_gateways::in_flight::Keeping;
use crate::proxy::{Kind, Proxy};
use crate::support::redis::Redis;
use crate::support::{Client, Random, Running, Setup, Upstream, eventually, free_address, head, strict};

/// Exchanges of the load.
const EXCHANGES: usize = 10_000;
/// Clients at a time: more than there are slots.
const CLIENTS: u64 = 150;
const SLOTS: usize = 100;
/// Exchanges that are open when their key is revoked.
const OPEN: usize = 1000;
const PLENTY: &str = "limits: { key: { requests: 1000000000, per: 1s, burst: 1000000000 } }";
/// Time after which a gateway that is gone gives its slots back, and some for a busy machine.
const LEASE: Duration = Duration::from_secs(30);

/// The gateways, each with the address at which it decides.
struct Fleet {
    setups: Vec<(Setup, SocketAddr)>,
    running: Vec<Mutex<Running>>,
    envoys: Vec<Proxy>,
    key: String,
    _redis: Redis,
}

impl Fleet {
    fn start(upstream: &Upstream) -> Self {
        let redis = Redis::start();
        let state = format!("{{ redis: {{ url: '{}', deadline: 2500ms }} }}", redis.url());
        let setups: Vec<_> = (0..3).map(|_| decisions(upstream, &state)).collect();
        let key = setups[0].0.key();
        let running = setups.iter().map(|(setup, _)| Mutex::new(setup.start())).collect();
        let addresses: Vec<SocketAddr> = setups.iter().map(|(_, address)| *address).collect();
        let envoys = (0..2).map(|_| envoy(&addresses, upstream)).collect();
        Self { setups, running, envoys, key, _redis: redis }
    }

    fn kill(&self, number: usize) {
        self.running[number].lock().unwrap().kill();
    }

    fn restart(&self, number: usize) {
        *self.running[number].lock().unwrap() = self.setups[number].0.start();
    }

    fn keygate(&self, arguments: &[&str]) -> String {
        self.setups[0].0.ok(arguments)
    }
}

/// A gateway whose only task is to decide by `ext_proc`; its listener of the API is for the checks of the tests.
fn decisions(upstream: &Upstream, state: &str) -> (Setup, SocketAddr) {
    let setup = Setup::with_state(upstream.address, state, PLENTY);
    let address = free_address();
    let decides = "serves: decisions, decisions: { protocol: envoy, slots: stream }";
    setup.write(&setup.text().replacen("listen: [", &format!("listen: [{{ address: '{address}', {decides} }}, "), 1));
    (setup, address)
}

/// Envoy with all gateways in its cluster.
fn envoy(gateways: &[SocketAddr], upstream: &Upstream) -> Proxy {
    let endpoint = |address: &SocketAddr| {
        let port = address.port();
        format!("- endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}")
    };
    let first = endpoint(&gateways[0]);
    let all = gateways.iter().map(endpoint).collect::<Vec<_>>().join("\n              ");
    Proxy::start_changed(Kind::EnvoyExtProc, gateways[0], upstream.address, |text| {
        let changed = text.replace(&first, &all);
        assert_ne!(changed, text, "the file has an endpoint as it is written here");
        changed
    })
}

#[test]
fn ten_thousand_exchanges_over_two_envoys_and_dying_gateways_never_exceed_the_slots() {
    let keeping = Keeping::default();
    let upstream = keeping.start();
    let fleet = Fleet::start(&upstream);
    let (begun, admitted) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let statuses = Mutex::new(std::collections::BTreeMap::<u16, usize>::new());
    std::thread::scope(|scope| {
        for seed in 0..CLIENTS {
            let (fleet, begun, admitted, statuses) = (&fleet, &begun, &admitted, &statuses);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while begun.fetch_add(1, Ordering::SeqCst) < EXCHANGES {
                    let path = format!("/for/{}", random.below(60));
                    // A connection for each: one whose exchange was reset is gone.
                    let mut client = fleet.envoys[random.index(2)].client();
                    client.send(head("GET", &path, &fleet.key, &[], 0));
                    let status = client.try_response_to("GET").map_or(0, |response| response.status);
                    if status == 200 {
                        admitted.fetch_add(1, Ordering::SeqCst);
                    }
                    *statuses.lock().unwrap().entry(status).or_default() += 1;
                }
            });
        }
        // Each dies once, and comes back, while the others decide.
        for (number, at) in [(0, 2000), (1, 5000), (2, 8000)] {
            eventually("the load goes on", || begun.load(Ordering::SeqCst) >= at);
            fleet.kill(number);
            eventually("the load goes on", || begun.load(Ordering::SeqCst) >= at + 500);
            fleet.restart(number);
        }
    });
    let statuses = statuses.into_inner().unwrap();
    println!("statuses: {statuses:?}; at most {} at a time", keeping.most());
    assert!(keeping.most() <= SLOTS, "{} exchanges were at the upstream at once", keeping.most());
    assert!(statuses.contains_key(&429), "the limit was reached: {statuses:?}");
    assert!(admitted.load(Ordering::SeqCst) > EXCHANGES / 10, "{statuses:?}");
    // Resets, and answers of an Envoy whose gateway is gone, are as many as exchanges were open or begun then.
    let others: usize =
        statuses.iter().filter(|(status, _)| ![200, 429].contains(*status)).map(|(_, count)| count).sum();
    assert!(others < EXCHANGES / 5, "{statuses:?}");
    keeping.has(0);

    // No slot is lost: all of them can be taken again, once those of the dead have ended.
    let began = Instant::now();
    let mut held: Vec<Client> = Vec::new();
    while held.len() < SLOTS {
        let mut client = fleet.envoys[held.len() % 2].client();
        client.send(head("GET", "/until", &fleet.key, &[], 0));
        match client.head().unwrap().0 {
            200 => held.push(client),
            _ => assert!(began.elapsed() < strict::lenient(LEASE), "{} of {SLOTS} slots", held.len()),
        }
    }
    println!("all slots were free after {:?}", began.elapsed());
    let refused = fleet.envoys[0].client().get("/for/0", &fleet.key);
    assert_eq!((refused.status, refused.code()), (429, "too_many_in_flight".to_owned()));
}

#[test]
fn thousand_open_exchanges_end_when_their_key_is_revoked() {
    let keeping = Keeping::default();
    let upstream = keeping.start();
    let fleet = Fleet::start(&upstream);
    fleet.keygate(&["org", "limits", "acme", "--concurrent", &OPEN.to_string()]);
    let mut open: Vec<Client> = Vec::new();
    while open.len() < OPEN {
        let mut client = fleet.envoys[open.len() % 2].client();
        client.send(head("GET", "/until", &fleet.key, &[], 0));
        let (status, _) = client.head().unwrap();
        assert_eq!(status, 200, "exchange {}", open.len());
        open.push(client);
    }
    keeping.has(OPEN);
    let id = fleet.key["sk_live_".len()..][..9].to_owned();
    fleet.keygate(&["key", "revoke", &id]);
    let revoked = Instant::now();
    let ended = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for client in &mut open {
            let ended = &ended;
            scope.spawn(move || {
                // The response is cut off: its last chunk does not come.
                assert!(!client.rest().ends_with(b"0\r\n\r\n"));
                ended.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    let elapsed = revoked.elapsed();
    println!("{} of {OPEN} exchanges ended within {elapsed:?}", ended.load(Ordering::SeqCst));
    assert_eq!(ended.load(Ordering::SeqCst), OPEN);
    assert!(elapsed < strict::lenient(Duration::from_secs(1)), "{elapsed:?}");
    keeping.has(0);
}
