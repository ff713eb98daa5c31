//! Shipping of the audit by real gateways: kills of gateways, connections and the database under load, and a database
//! that is away. The figures are printed at full size: `KEYGATE_SHIP_KILLS=200`, `KEYGATE_SHIP_AWAY=600` (seconds).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use domain::identity::AuthMethod;
use journal::audit::{Filter, Reader, Record};

use crate::support::redis::Redis;
use crate::support::{Client, Postgresql, Random, Running, SetOnDrop, Setup, Upstream, client, eventually};

/// Clients of each gateway; each has one request in flight.
const CLIENTS: usize = 2;
/// Responses between two kills.
const RESPONSES: usize = 40;
/// No limit is met.
const LIMITS: &str = "limits: { key: { requests: 10000000, per: 1s } }";

fn size(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// A configuration that ships to a database.
pub fn ship_to(setup: Setup, server: &Postgresql) -> Setup {
    let ship = format!("path: audit, ship: [{{ name: central, postgresql: {{ url: '{}' }} }}] }}", server.url());
    setup.write(&setup.text().replace("path: audit }", &ship));
    setup
}

/// Sends requests until it is told to stop, and reconnects to a gateway that comes back. Counts the answers.
fn send(setup: &Setup, key: &str, answered: &AtomicUsize, stop: &AtomicBool) {
    let request = client::head("GET", "/", key, &[], 0);
    while !stop.load(Ordering::SeqCst) {
        let Ok(mut client) = Client::try_connect(setup.address) else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        while !stop.load(Ordering::SeqCst) && one(&mut client, &request) {
            answered.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn one(client: &mut Client, request: &str) -> bool {
    client.try_send(request).is_ok() && client.try_response_to("GET").is_ok_and(|response| response.status == 200)
}

/// Kills what the random number says: a gateway, the connection of a shipper, or the database.
fn kill_one(random: &mut Random, setups: &[Setup], running: &mut [Running], server: &mut Postgresql) {
    match random.below(10) {
        0..5 => {
            let place = random.index(setups.len());
            running[place].kill();
            running[place] = setups[place].start();
        }
        5..8 => {
            // A shipper loses its connection, wherever its transaction is.
            let shippers =
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'keygate-audit'";
            server.sql(shippers);
        }
        _ => server.restart(),
    }
}

#[test]
fn kills_under_load_leave_one_row_for_each_forwarded_request() {
    let kills = size("KEYGATE_SHIP_KILLS", 6);
    let (upstream, redis, mut server) = (Upstream::start(), Redis::start(), Postgresql::start_on_disk());
    let state = format!("{{ redis: {{ url: '{}', deadline: 2s }} }}", redis.url());
    let setups: Vec<Setup> = (0..3)
        .map(|number| {
            let blocks = format!("gateway: gw-{number}\n{LIMITS}");
            ship_to(Setup::with_state(upstream.address, &state, &blocks), &server)
        })
        .collect();
    let mut keys = vec![setups[0].key()];
    keys.push(setups[0].ok(&["key", "create", "--org", "acme", "--user", "ada@example.com", "second"]));
    let mut running: Vec<Running> = setups.iter().map(Setup::start).collect();
    let (answered, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut random = Random::new(16);
    std::thread::scope(|scope| {
        let _over = SetOnDrop(&stop);
        for setup in &setups {
            for key in keys.iter().cycle().take(CLIENTS) {
                let (answered, stop) = (&answered, &stop);
                scope.spawn(move || send(setup, key, answered, stop));
            }
        }
        for _ in 0..kills {
            let before = answered.load(Ordering::SeqCst);
            eventually("requests are answered", || answered.load(Ordering::SeqCst) >= before + RESPONSES);
            kill_one(&mut random, &setups, &mut running, &mut server);
        }
        stop.store(true, Ordering::SeqCst);
    });
    // A clean stop ships what is left.
    running.into_iter().for_each(Running::stop);
    check(&setups, &upstream, &server, answered.load(Ordering::SeqCst));
    println!("{kills} kills, {} requests answered", answered.load(Ordering::SeqCst));
}

/// Compares the rows with what the upstream received, and with the journals.
fn check(setups: &[Setup], upstream: &Upstream, server: &Postgresql, answered: usize) {
    let rows = server.sql(
        "SELECT id, key_id, outcome, to_char(time AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24') \
        FROM keygate.records WHERE auth_method = 'api-key'",
    );
    let mut found: HashMap<&str, (&str, &str, &str)> = HashMap::new();
    for row in &rows {
        let [id, key, outcome, hour] = row.split('|').collect::<Vec<_>>()[..] else { panic!("{row}") };
        assert!(found.insert(id, (key, outcome, hour)).is_none(), "two rows of {id}");
        assert_ne!(outcome, "in_progress", "{row}");
    }
    let received = upstream.received();
    let seen: HashSet<&str> = received.iter().map(|request| request.header("x-request-id").unwrap()).collect();
    assert!(seen.len() >= answered, "every answer came from the upstream");
    let missing = seen.iter().filter(|id| !found.contains_key(**id)).count();
    assert_eq!(missing, 0, "of {} forwarded requests have no row", seen.len());
    // Requests that the upstream did not get were not forwarded: its gateway was killed before.
    assert!(found.iter().all(|(id, (_, outcome, _))| seen.contains(id) || *outcome == "aborted"));
    let mut by_client: BTreeMap<&str, usize> = BTreeMap::new();
    received.iter().for_each(|request| *by_client.entry(request.header("x-key-id").unwrap()).or_default() += 1);
    let mut by_row: BTreeMap<&str, usize> = BTreeMap::new();
    found.iter().filter(|(id, _)| seen.contains(*id)).for_each(|(_, (key, ..))| *by_row.entry(key).or_default() += 1);
    assert_eq!(by_row, by_client, "counts by key");
    let mut journals: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    for setup in setups {
        // The journal itself: the command shows the records of all gateways.
        let mut count = |record: Record| {
            if let (AuthMethod::ApiKey, Some(key)) = (record.auth_method, record.key_id) {
                let hour = record.time.to_string()[..13].to_owned();
                *journals.entry((key.to_string(), hour, record.outcome.name().to_owned())).or_default() += 1;
            }
            Ok(())
        };
        Reader::open(&setup.path().join("audit")).unwrap().export(&Filter::default(), &mut count).unwrap();
    }
    let mut in_rows: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    for (key, outcome, hour) in found.values() {
        *in_rows.entry(((*key).into(), (*hour).into(), (*outcome).into())).or_default() += 1;
    }
    assert_eq!(in_rows, journals, "counts by key, hour and outcome");
}

/// Sends requests until it is told to stop; returns their durations. Every one is answered with 200.
fn measure(setup: &Setup, key: &str, stop: &AtomicBool) -> Vec<Duration> {
    let request = client::head("GET", "/", key, &[], 0);
    let (mut client, mut durations) = (setup.client(), Vec::new());
    while !stop.load(Ordering::SeqCst) {
        let began = Instant::now();
        assert!(one(&mut client, &request), "no request is refused while the database is away");
        durations.push(began.elapsed());
    }
    durations
}

/// Sends requests with some clients until `done`; returns the durations in order of size.
fn load(setup: &Setup, key: &str, mut done: impl FnMut() -> bool) -> Vec<Duration> {
    let stop = AtomicBool::new(false);
    let mut durations: Vec<Duration> = std::thread::scope(|scope| {
        let _over = SetOnDrop(&stop);
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| measure(setup, key, &stop))).collect();
        eventually("the load has done its part", &mut done);
        stop.store(true, Ordering::SeqCst);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    durations.sort_unstable();
    durations
}

#[test]
fn database_that_is_away_refuses_no_request_and_gets_all_in_the_end() {
    let away = Duration::from_secs(size("KEYGATE_SHIP_AWAY", 1));
    let (upstream, mut server) = (Upstream::start(), Postgresql::start_on_disk());
    let setup = ship_to(Setup::new(upstream.address, LIMITS), &server);
    let key = setup.key();
    let gateway = setup.start();
    // Counting the rows themselves would take a processor from the database.
    let count = |server: &Postgresql| {
        let rows = server.try_sql("SELECT coalesce(sum(records), 0) FROM keygate.journals");
        rows.map_or(0, |rows| rows[0].parse::<usize>().unwrap())
    };
    let until = |duration: Duration| {
        let began = Instant::now();
        move || began.elapsed() >= duration
    };
    let phase = away.min(Duration::from_secs(50));
    let with = load(&setup, &key, until(phase));
    server.crash();
    let mut without = Vec::new();
    let began = Instant::now();
    while began.elapsed() < away {
        without.extend(load(&setup, &key, until(phase)));
    }
    without.sort_unstable();
    let status = setup.keygate(&["audit", "ship", "status", "--json"]);
    assert_eq!(status.status.code(), Some(1), "the sink fails");
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["items"][0]["state"], "failing", "{status}");
    assert!(status["items"][0]["lag_records"].as_u64().unwrap() > 0, "{status}");
    server.restart();
    let restarted = Instant::now();
    let all = with.len() + without.len();
    let mut delivered = 0;
    while delivered < all {
        // However many there are: it is to go on.
        delivered =
            crate::support::until("more records are there", || Some(count(&server)).filter(|now| *now > delivered));
    }
    let caught_up = restarted.elapsed();
    let p99 = |sorted: &[Duration]| sorted[sorted.len() * 99 / 100];
    println!(
        "p99 {:?} with the database, {:?} without; {} records in {caught_up:?}",
        p99(&with),
        p99(&without),
        without.len()
    );
    assert!(setup.ok(&["audit", "ship", "status"]).contains("central"));
    gateway.stop();
    assert_eq!(
        server.sql("SELECT count(*), count(DISTINCT id) FROM keygate.records WHERE auth_method = 'api-key'"),
        [format!("{all}|{all}")]
    );
}
