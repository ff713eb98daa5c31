//! Events for people, at the receivers that get them: what is sent to try a sink, and each event once over gateways
//! that are killed.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use control::management::{self, NewKeyRequest, PolicyUpdate, SecretSource};
use domain::clock;
use domain::key::KeyId;
use domain::secret::Secret;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use journal::audit::{Filter, Reader, Record, RecordKind};
use journal::shipping::{Destination, ShippedRecords, SinkSettings, TrialError, WebhookSettings, try_sink};
use keygate::app::App;
use keygate::config::Config;
use platform::tls::ClientSettings;
use serde_json::{Value, json};

use crate::support::gateway::OPERATOR;
use crate::support::page::block;
use crate::support::redis::{Clock, Proxy, Redis};
use crate::support::{
    Client, Gateway, HyperOptions, HyperUpstream, Random, Running, Setup, Upstream, eventually, free_address, until,
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A receiver of webhooks that verifies each signature.
struct Receiver {
    server: HyperUpstream,
    taken: Arc<Mutex<Vec<Value>>>,
}

impl Receiver {
    /// Answers like this to the records of each message. Those of a status of 200 are taken.
    fn answering(answer: impl Fn(&[Value]) -> u16 + Send + Sync + 'static) -> Self {
        let (taken, answer) = (Arc::<Mutex<Vec<Value>>>::default(), Arc::new(answer));
        let log = Arc::clone(&taken);
        let server = HyperOptions::http1().start(move |request: Request<Incoming>| {
            let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                assert!(is_signed(&head.headers, &body), "{:?}", head.headers);
                let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                let records: Vec<Value> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
                let status = answer(&records);
                if status == 200 {
                    log.lock().unwrap().extend(records);
                }
                Ok::<_, Infallible>(Response::builder().status(status).body(Full::<Bytes>::default()).unwrap())
            }
        });
        Self { server, taken }
    }

    fn taken(&self) -> Vec<Value> {
        self.taken.lock().unwrap().clone()
    }

    /// A sink of this name for some records.
    fn sink(&self, name: &str, records: &str) -> String {
        let http = format!("{{ url: 'http://{}', secret: {SECRET} }}", self.server.address);
        format!("{{ name: {name}, records: {records}, http: {http} }}")
    }
}

/// Verifies a signature of Standard Webhooks, but for the age of its time.
fn is_signed(headers: &HeaderMap, body: &[u8]) -> bool {
    let [id, time, signature] =
        ["webhook-id", "webhook-timestamp", "webhook-signature"].map(|name| headers[name].to_str().unwrap());
    let key = BASE64_STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
    let signed = [format!("{id}.{time}.").as_bytes(), body].concat();
    let tag = BASE64_STANDARD.decode(signature.strip_prefix("v1,").unwrap()).unwrap();
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &key), &signed, &tag).is_ok()
}

fn ship_to(setup: Setup, sinks: &[String]) -> Setup {
    let ship = format!("path: audit, ship: [{}] }}", sinks.join(", "));
    setup.write(&setup.text().replace("path: audit }", &ship));
    setup
}

#[test]
fn test_events_reach_the_receiver_as_such_and_leave_the_gateway_as_it_is() {
    let upstream = Upstream::start();
    let receiver = Receiver::answering(|records| if records[0]["action"] == "key.unused" { 500 } else { 200 });
    let files = "{ name: archive, files: { path: shipped } }".to_owned();
    let sinks = [receiver.sink("people", "changes"), receiver.sink("watch", "refusals"), files];
    let setup = ship_to(Setup::new(upstream.address, ""), &sinks);
    let gateway = setup.start();
    setup.key();
    let position = setup.path().join("audit/ship/people.json");
    let status = || serde_json::from_str::<Value>(&setup.ok(&["audit", "ship", "status", "--json"])).unwrap();
    eventually("all changes are delivered, and the position is written", || {
        let is_done = |sink: &Value| sink["state"] == "caught_up" && sink["lag_records"] == 0;
        status()["items"].as_array().unwrap().iter().all(is_done) && receiver.taken().len() == 3
    });
    let changes = setup.ok(&["audit", "list", "--json"]);
    let before = std::fs::read(&position).unwrap();

    let tried = setup.keygate(&["events", "test", "--sink", "people", "--json"]);
    let error = String::from_utf8(tried.stderr).unwrap();
    assert_eq!(tried.status.code(), Some(1), "{error}");
    assert!(error.contains("1 of 11 test records not accepted"), "{error}");
    let tried: Value = serde_json::from_slice(&tried.stdout).unwrap();
    let of_tried = |accepted: bool| {
        let items = tried["items"].as_array().unwrap().iter().filter(move |item| item["accepted"] == accepted);
        items.map(|item| item["id"].clone()).collect::<Vec<_>>()
    };
    let arrived: Vec<Value> = receiver.taken().into_iter().filter(|record| record["test"] == true).collect();
    assert_eq!(arrived.iter().map(|record| record["id"].clone()).collect::<Vec<_>>(), of_tried(true));
    assert_eq!(of_tried(false).len(), 1);
    let refused = tried["items"].as_array().unwrap().iter().find(|item| item["accepted"] == false).unwrap();
    assert_eq!(
        (&refused["action"], refused["error"].as_str()),
        (&"key.unused".into(), Some("the server answers with status 500 Internal Server Error"))
    );
    let actions: Vec<&str> = arrived.iter().map(|record| record["action"].as_str().unwrap()).collect();
    let announced = ["key.expiring", "token.expiring", "quota.near", "key.create", "key.disable", "key.revoke"];
    assert!(announced.iter().all(|action| actions.contains(action)), "{actions:?}");
    assert!(arrived.iter().all(|record| record["actor"] == "test" && record["method"] == "ADMIN"), "{arrived:?}");

    assert!(setup.ok(&["events", "test", "--sink", "watch"]).contains("quota_exhausted"));
    let code = |sink: &str| setup.keygate(&["events", "test", "--sink", sink]).status.code();
    assert_eq!((code("archive"), code("nowhere")), (Some(1), Some(2)));
    assert_eq!(setup.ok(&["audit", "list", "--json"]), changes, "nothing is recorded");
    assert_eq!(std::fs::read(&position).unwrap(), before, "the position stays");
    setup.ok(&["key", "list", "--org", "acme"]);
    gateway.stop();
}

/// Environment variable that names the configuration of [`gateway_that_always_looks`].
const CONFIG: &str = "KEYGATE_TEST_CONFIG";
/// File in which that gateway notes a look that found nothing new.
const IDLE: &str = "idle";
const GATEWAYS: usize = 3;
const KEYS: u64 = 500;
/// In each round, all gateways are killed.
const ROUNDS: u32 = 17;
const HOUR: Duration = Duration::from_secs(3600);
/// Time from one round to the next, by the wall clocks: claims of gateways that were killed run out within it.
const STEP: Duration = Duration::from_secs(15 * 3600);

/// A gateway as a process, which looks for what ends all the time instead of once a day.
#[test]
#[ignore = "a process of the test below"]
fn gateway_that_always_looks() {
    let Some(file) = std::env::var_os(CONFIG) else { return };
    let app = App::start(Config::load(Path::new(&file)).unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut pace = runtime.block_on(async { tokio::time::interval(Duration::from_millis(20)) });
    loop {
        runtime.block_on(pace.tick());
        match runtime.block_on(management::announce_ends(&app.management, clock::now())) {
            Ok(0) => std::fs::write(Path::new(&file).with_file_name(IDLE), "").unwrap(),
            Ok(_) => {}
            Err(error) => println!("{error:?}"),
        }
    }
}

fn start(setup: &Setup, clock: &Clock) -> Running {
    let log = std::fs::File::options().create(true).append(true).open(setup.path().join("stderr")).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "events::gateway_that_always_looks", "--nocapture"]);
    command.env(CONFIG, setup.path().join("keygate.yaml")).envs(clock.environment());
    Running::of(command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
}

/// Waits for a whole look of a gateway that finds nothing new.
fn wait_until_idle(setup: &Setup) {
    for _ in 0..2 {
        let idle = setup.path().join(IDLE);
        std::fs::remove_file(&idle).ok();
        eventually("a look finds nothing new", || idle.exists());
    }
}

/// The records of the announcements in all journals.
fn announced(setups: &[Setup]) -> Vec<Record> {
    let mut records = Vec::new();
    for setup in setups {
        let filter = Filter { kind: Some(RecordKind::Change), ..Filter::default() };
        let mut add = |record: Record| {
            records.extend(Some(record).filter(|record| record.action == "key.expiring"));
            Ok(())
        };
        // One that has not started yet has none.
        let Ok(reader) = Reader::open(&setup.path().join("audit")) else { continue };
        reader.export(&filter, &mut add).unwrap();
    }
    records
}

fn is_open(record: &Record) -> bool {
    record.outcome.name() == "in_progress"
}

/// Creates keys with random expiries. Returns the announcements that each is to have.
fn create_keys(gateway: &Gateway, random: &mut Random) -> Vec<(KeyId, String)> {
    let key = gateway.key();
    let (org, user, now) = (key.org.to_string(), key.user.to_string(), clock::now());
    let mut expected = Vec::new();
    for _ in 0..KEYS {
        let expires = now.after(36 * HOUR + Duration::from_secs(random.below(10 * 24 * 3600)));
        let policy = PolicyUpdate { expires: Some(Some(expires)), ..PolicyUpdate::default() };
        let request = NewKeyRequest { user: &user, name: "test", policy, plan: None };
        let created = gateway.perform(async |to, now| {
            management::create_key(to, OPERATOR, &org, request, SecretSource::Generated, now).await
        });
        let notices = [(7 * 24, "7d"), (24, "1d")].into_iter();
        let due = notices.filter(|(hours, _)| expires.before(*hours * HOUR) > created.key.created);
        expected.extend(due.map(|(_, notice)| (created.key.id, format!("key.expiring/{notice}/{expires}"))));
    }
    expected.sort();
    expected
}

#[test]
fn each_end_is_recorded_once_and_delivered_over_kills_of_gateways() {
    let (shared, ahead) = (Clock::new(), Clock::new());
    let (redis, upstream) = (Redis::options().clock(&shared).start(), Upstream::start());
    let answers = Mutex::new(Random::new(7));
    let receiver = Receiver::answering(move |_| if answers.lock().unwrap().below(2) == 0 { 500 } else { 200 });
    let network = Proxy::to(redis.address());
    let state = format!("{{ redis: {{ url: '{}', deadline: 2s }} }}", network.url());
    let mut random = Random::new(53);
    let expected = {
        let gateway = Gateway::with(&[upstream.address], &format!("\nstate: {state}\n"));
        create_keys(&gateway, &mut random)
    };
    let sinks = [receiver.sink("people", "changes")];
    let setups: Vec<Setup> = (0..GATEWAYS)
        .map(|number| Setup::with_state(upstream.address, &state, &format!("gateway: gw-{number}")))
        .map(|setup| ship_to(setup, &sinks))
        .collect();
    let clocks = [&shared, &shared, &ahead];
    let start_all = |round: u32| {
        shared.set_ahead(round * STEP);
        ahead.set_ahead(round * STEP + HOUR);
        setups.iter().zip(clocks).map(|(setup, clock)| start(setup, clock)).collect::<Vec<Running>>()
    };
    let mut left = 0;
    for round in 0..ROUNDS {
        // A round trip takes so long that a kill right behind a record comes before the answer to what follows it.
        network.delay(Duration::from_millis(40));
        let known: HashSet<_> = announced(&setups).into_iter().map(|record| record.id).collect();
        let is_new = |record: &Record| is_open(record) && !known.contains(&record.id);
        setups.iter().for_each(|setup| drop(std::fs::remove_file(setup.path().join(IDLE))));
        let mut running = start_all(round);
        let first = until("there is a new record without an outcome", || {
            let open = (0..GATEWAYS).find(|place| announced(&setups[*place..=*place]).iter().any(is_new));
            // On a busy machine they may all have got their outcomes between two looks of this test.
            let is_idle = || setups.iter().all(|setup| setup.path().join(IDLE).exists());
            let is_missed = || is_idle() && announced(&setups).iter().any(|record| !known.contains(&record.id));
            open.or_else(|| is_missed().then_some(0))
        });
        running[first].kill();
        let [second, last] = [1, 2].map(|next| (first + next) % GATEWAYS);
        std::thread::sleep(Duration::from_micros(random.below(50_000)));
        running[second].kill();
        network.delay(Duration::ZERO);
        wait_until_idle(&setups[last]);
        running[last].kill();
        left += announced(&setups).iter().filter(|record| is_open(record)).count();
    }
    let _running = start_all(ROUNDS);
    let completed = || {
        let records = announced(&setups).into_iter().filter(|record| record.outcome.name() == "completed");
        records.map(|record| ((record.key_id.unwrap(), record.path.clone()), record)).collect::<Vec<_>>()
    };
    eventually("all are announced", || completed().len() >= expected.len());
    eventually("none is left open", || !announced(&setups).iter().any(is_open));
    let mut found: Vec<_> = completed().into_iter().map(|(about, _)| about).collect();
    found.sort();
    assert!(found == expected, "{} of {}", found.len(), expected.len());
    eventually("all are delivered", || {
        let taken = receiver.taken();
        let taken: BTreeMap<&str, &Value> =
            taken.iter().map(|record| (record["id"].as_str().unwrap(), record)).collect();
        completed().iter().all(|(_, record)| taken.contains_key(&*record.id.to_string()))
    });
    assert!(left >= ROUNDS as usize / 2, "kills behind a record leave it open: {left}");
    let by_gateway = |setup: &Setup| announced(std::slice::from_ref(setup)).len();
    let aborted = announced(&setups).len() - expected.len();
    println!(
        "{:?}, of which {left} were left open, {aborted} aborted",
        setups.iter().map(by_gateway).collect::<Vec<_>>()
    );
}

/// A program that verifies messages of webhooks by the library of Standard Webhooks.
struct Verifier {
    child: Child,
    address: SocketAddr,
}

impl Verifier {
    fn start(program: &Path, script: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(root.join(program).exists(), "{} is missing: run `make setup` (deploy/setup.sh)", program.display());
        let mut command = Command::new(if program.is_dir() { Path::new("node") } else { program });
        command.current_dir(root).arg(script).env("SECRET", SECRET).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { child, address: ([127, 0, 0, 1], port.trim().parse().unwrap()).into() }
    }

    /// Numbers of messages that it has verified, and refused.
    fn counts(&self) -> (usize, usize) {
        let counts = String::from_utf8(Client::connect(self.address).get("/", "").body).unwrap();
        let (verified, refused) = counts.split_once(' ').unwrap();
        (verified.parse().unwrap(), refused.parse().unwrap())
    }

    fn sink(&self, secret: &str) -> SinkSettings {
        let webhook = WebhookSettings {
            url: format!("http://{}/", self.address).parse().unwrap(),
            secret: Secret::new(secret.to_owned()),
            tls: ClientSettings { ca: None, identity: None },
            timeout: Duration::from_secs(60),
        };
        let destination = Destination::Webhook(webhook);
        SinkSettings { name: "people".to_owned(), destination, records: ShippedRecords::Changes }
    }
}

impl Drop for Verifier {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A record whose texts have any characters.
fn varied(random: &mut Random) -> Record {
    let letters = ['a', '"', '\\', '\n', '\u{7f}', 'é', '€', '\u{1f511}', '\u{2028}', '/'];
    let text: String = (0..random.below(200)).map(|_| letters[random.index(letters.len())]).collect();
    let record = json!({
        "id": uuid::Uuid::new_v4(), "time": clock::now().to_string(), "key_id": null, "user_id": null, "org_id": null,
        "auth_method": "admin-socket", "actor": "gateway", "ip": null, "user_agent": text, "action": "key.expiring",
        "method": "ADMIN", "path": text, "outcome": "completed", "status": 200, "duration_us": 1, "request_bytes": 0,
        "response_bytes": 0, "gateway": "gw-1",
    });
    serde_json::from_value(record).unwrap()
}

#[test]
fn libraries_verify_ten_thousand_messages_of_which_half_are_sent_again() {
    const MESSAGES: usize = 10_000;
    let verifiers = [
        (Path::new("target/webhooks/bin/python"), "tests/webhooks/receiver.py"),
        (Path::new("tests/oidc-provider/node_modules/standardwebhooks"), "tests/oidc-provider/webhook_receiver.js"),
    ];
    std::thread::scope(|scope| {
        for (program, script) in verifiers {
            scope.spawn(move || {
                let verifier = Verifier::start(program, script);
                let sink = verifier.sink(SECRET);
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let (mut random, mut sent, mut taken) = (Random::new(10), 0, 0);
                while sent < MESSAGES {
                    let record = varied(&mut random);
                    sent += 1;
                    while let Err(error) = runtime.block_on(try_sink(&sink, record.clone())) {
                        let TrialError::Delivery(error) = error else { panic!("{error}") };
                        assert!(error.to_string().contains("status 500"), "{error}");
                        sent += 1;
                    }
                    taken += 1;
                }
                assert_eq!(verifier.counts(), (sent, 0), "{script}");
                assert!(taken > MESSAGES / 3, "{taken} of {sent} are taken");
                let forged = verifier.sink("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx");
                runtime.block_on(try_sink(&forged, varied(&mut random))).expect_err("another secret");
                assert_eq!(verifier.counts(), (sent, 1), "{script}");
            });
        }
    });
}

#[test]
fn relay_of_the_page_posts_a_line_for_each_event() {
    let (upstream, chat) = (Upstream::start(), Upstream::start());
    let relay = free_address();
    let sink = format!("{{ name: people, records: changes, http: {{ url: 'http://{relay}', secret: {SECRET} }} }}");
    let setup = ship_to(Setup::new(upstream.address, ""), &[sink]);
    let script = setup.path().join("relay.py");
    std::fs::write(&script, block("# relay.py: needs `pip install standardw")).unwrap();
    let gateway = setup.start();
    setup.key();
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("target/webhooks/bin/python"));
    command.arg(script).env("SECRET", SECRET).env("CHAT", format!("http://{}/services/T0", chat.address));
    // The gateway sends again what it sent before the relay listens.
    let child = command.env("PORT", relay.port().to_string()).stderr(Stdio::null()).spawn().unwrap();
    let _relay = Verifier { child, address: relay };
    eventually("the chat has a line for each change", || {
        let lines: Vec<Value> =
            chat.received().iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect();
        ["org.create (", "user.create (", "key.create ("]
            .iter()
            .all(|action| lines.iter().any(|line| line["text"].as_str().unwrap().starts_with(action)))
    });
    gateway.stop();
}
