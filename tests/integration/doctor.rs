//! `keygate doctor` of a running gateway: its findings are those of what is really there.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use serde_json::Value;

use platform::tls::{ClientAuth, ServerSettings, ServerTls};

use crate::failing_upstreams::black_hole::BlackHole;
use crate::support::hyper_upstream::ok;
use crate::support::redis::Redis;
use crate::support::{HyperOptions, KEYGATE, Setup, Upstream, eventually, free_address};
use crate::tls::authority::{Authority, settings};

/// Findings of a run, and its exit code.
struct Examined {
    code: i32,
    worst: String,
    items: Vec<Value>,
}

impl Examined {
    fn new(output: &Output) -> Self {
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        Self {
            code: output.status.code().unwrap(),
            worst: report["worst"].as_str().unwrap().to_owned(),
            items: report["items"].as_array().unwrap().clone(),
        }
    }

    fn of(setup: &Setup) -> Self {
        Self::new(&setup.keygate(&["doctor", "--json"]))
    }

    /// The finding whose subject ends like this.
    fn find(&self, check: &str, subject: &str) -> &Value {
        let is_meant = |item: &&Value| {
            item["check"] == check && item["subject"].as_str().is_some_and(|found| found.ends_with(subject))
        };
        self.items.iter().find(is_meant).unwrap_or_else(|| panic!("no {check}: {subject} in {:#?}", self.items))
    }

    fn severity(&self, check: &str, subject: &str) -> &str {
        self.find(check, subject)["severity"].as_str().unwrap()
    }
}

const ROUTES: &str = "routes: [{ name: list, methods: [GET], path: /api/queries, permission: 'queries:read' }]";

#[test]
fn doctor_examines_a_running_gateway() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, ROUTES);
    let gateway = setup.start();
    let examined = Examined::of(&setup);
    assert_eq!(examined.severity("configuration", "active configuration"), "ok");
    assert_eq!(examined.severity("gateway", "readiness"), "ok");
    assert_eq!(examined.severity("routes", "routes"), "ok");
    assert_eq!(examined.severity("listeners", "admin.address"), "ok");
    assert_eq!(examined.severity("files", "keygate.yaml"), "ok");
    assert_eq!(examined.severity("clock", "steps of the clock"), "ok");
    assert_eq!(examined.severity("disk", "audit.durability"), "note");
    // 20,000 connections are the default; the tests run with whatever limit the system has.
    let found = examined.find("process", "limit of open files")["found"].as_str().unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.id())).unwrap();
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
    let expected = match limit.unwrap() {
        "unlimited" => "none".to_owned(),
        limit => format!("{limit}, with http.max_connections: 20000"),
    };
    assert_eq!(found, expected);
    let space = examined.find("disk", "volume of the journal")["found"].as_str().unwrap();
    assert!(space.contains("iB of ") && !space.starts_with("0 B"), "{space}");
    let endpoint = examined.find("upstreams", &upstream.address.to_string());
    assert_eq!(endpoint["severity"], "note", "{endpoint}");
    // The probe carries no identity.
    let received = upstream.last();
    assert_eq!((received.path(), received.header("x-user-id")), ("/api/queries", None));
    assert!(!examined.items.iter().any(|item| item["subject"] == "requests without a route"));
    let key = setup.key();
    assert_eq!(setup.client().get("/nothing", &key).status, 404);
    eventually("the request is counted", || {
        let subject = |item: &Value| item["subject"] == "requests without a route";
        Examined::of(&setup).items.iter().any(subject)
    });
    for item in &examined.items {
        let has_advice = item["advice"].is_string();
        assert_eq!(has_advice, item["severity"] != "ok", "{item}");
    }
}

#[test]
fn doctor_judges_listeners_for_other_proxies() {
    let setup = Setup::new(free_address(), "");
    let decisions = "serves: decisions, decisions: { protocol: envoy, slots: stream, peers: [127.0.0.1, 10.1.0.0/16] }";
    setup.write(&setup.text().replace("http2: prior_knowledge", decisions));
    let _gateway = setup.start();
    let examined = Examined::of(&setup);
    let subject = format!("listener {}", setup.address);
    let found = examined.items.iter().filter(|item| item["subject"] == *subject).map(|item| {
        assert_eq!(item["check"], "listeners");
        (item["severity"].as_str().unwrap(), item["found"].as_str().unwrap())
    });
    let [(plain, readable), (rewrite, path), (breaker, requests)] = found.collect::<Vec<_>>()[..] else {
        panic!("{:#?}", examined.items)
    };
    assert_eq!([plain, rewrite, breaker], ["warning", "note", "note"]);
    assert!(readable.contains("10.1.0.0/16") && path.contains("rewritten") && requests.contains("max_requests"));
}

#[test]
fn doctor_compares_the_file_with_the_active_configuration() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, ROUTES);
    let _gateway = setup.start();
    // Needs a restart, so that it is not taken.
    setup.write(&format!("{}workers: 7\n", setup.text()));
    eventually("the reload is rejected", || !setup.keygate(&["config", "status"]).status.success());
    eventually("doctor sees it", || Examined::of(&setup).severity("configuration", "active configuration") == "error");
    let examined = Examined::of(&setup);
    assert_eq!((examined.code, &*examined.worst), (1, "error"));
    assert!(examined.find("configuration", "active configuration")["found"].to_string().contains("workers"));
    // A file with errors is the only finding. A key in the wrong place is not shown with its secret.
    let key = setup.key();
    setup.write(&format!("listen: [{{ address: {key} }}]\n"));
    let output = setup.keygate(&["doctor", "--json"]);
    assert!(!String::from_utf8_lossy(&output.stdout).contains(&key), "{output:?}");
    let examined = Examined::new(&output);
    assert_eq!((examined.code, &*examined.worst), (1, "error"));
    assert!(examined.items.iter().all(|item| item["check"] == "configuration"), "{:#?}", examined.items);
}

#[test]
fn doctor_without_a_gateway_examines_the_rest() {
    let setup = Setup::new(free_address(), "");
    let examined = Examined::of(&setup);
    assert_eq!((examined.code, examined.severity("gateway", "running gateway")), (1, "warning"));
    assert_eq!(examined.severity("routes", "routes"), "warning");
    let upstream = examined.items.iter().find(|item| item["check"] == "upstreams").unwrap();
    assert!(upstream["found"].as_str().unwrap().starts_with("cannot be reached"), "{upstream}");
    let only = Examined::new(&setup.keygate(&["doctor", "--json", "--only", "listeners"]));
    assert_eq!((only.code, &*only.worst), (0, "ok"), "{:#?}", only.items);
    assert!(only.items.iter().all(|item| item["check"] == "listeners"));
    let text = setup.keygate(&["doctor", "--problems"]);
    let out = String::from_utf8(text.stdout).unwrap();
    assert!(out.contains("warning  routes") && out.lines().all(|line| !line.starts_with("ok")), "{out}");
    assert!(String::from_utf8(text.stderr).unwrap().contains("warnings"), "no progress without a terminal");
    assert_eq!(setup.keygate(&["doctor", "--only", "nothing"]).status.code(), Some(2));
}

#[test]
fn doctor_finds_bad_settings_of_redis() {
    let redis = Redis::options().arg("protected-mode", "no").start();
    let upstream = Upstream::start();
    let state = format!("{{ redis: {{ url: '{}', deadline: 2s, durability: {{ replicas: 1 }} }} }}", redis.url());
    let setup = Setup::with_state(upstream.address, &state, ROUTES);
    let _: String = redis.cli(&["CONFIG", "SET", "save", ""]);
    let _: String = redis.cli(&["CONFIG", "SET", "maxmemory", "100mb"]);
    let _: String = redis.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let examined = Examined::of(&setup);
    for (subject, severity) in [
        ("maxmemory-policy", "error"),
        (": maxmemory", "ok"),
        ("persistence", "error"),
        ("replicas", "error"),
        ("authentication", "error"),
        ("encryption", "ok"),
        ("version", "ok"),
        ("round trip", "ok"),
        (": clock", "ok"),
    ] {
        // A loaded machine may be late with a reply.
        if subject != "round trip" {
            assert_eq!(examined.severity("redis", subject), severity, "{subject}");
        }
    }
    let _: String = redis.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let _: String = redis.cli(&["CONFIG", "SET", "appendonly", "yes"]);
    let _: String = redis.cli(&["CONFIG", "SET", "appendfsync", "no"]);
    let examined = Examined::of(&setup);
    assert_eq!(examined.severity("redis", "maxmemory-policy"), "ok");
    assert_eq!(examined.severity("redis", "persistence"), "warning");
    let address = redis.address();
    drop(redis);
    let gone = Examined::of(&setup);
    assert_eq!(gone.severity("redis", &format!("Redis {address}")), "error");
}

#[test]
fn doctor_finds_the_lag_of_a_replica() {
    let primary = Redis::start();
    let replica = Redis::start();
    let _: String = replica.cli(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let replica_of_primary = format!("replica 127.0.0.1:{}", replica.port());
    let state = format!("{{ redis: {{ url: '{}', deadline: 2s }} }}", primary.url());
    let setup = Setup::with_state(free_address(), &state, ROUTES);
    let redis = || Examined::new(&setup.keygate(&["doctor", "--json", "--only", "redis"]));
    eventually("the replica is connected", || primary.info("replication", "connected_slaves") == "1");
    eventually("the replica is in step", || primary.info("replication", "slave0").contains("state=online"));
    let examined = redis();
    assert_eq!(examined.severity("redis", &replica_of_primary), "ok");
    assert_eq!(examined.severity("redis", ": replicas"), "warning", "no change waits for it");
    assert_eq!(examined.severity("redis", "min-replicas-to-write"), "warning");
    replica.stop_process();
    let lags = || {
        let examined = redis();
        let found = examined.items.iter().find(|item| item["subject"].as_str().unwrap().ends_with(&replica_of_primary));
        found.is_some_and(|item| item["severity"] == "warning")
    };
    eventually("the replica lags", lags);
    replica.resume();
}

#[test]
fn doctor_finds_misconfigured_files() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let path = |name: &str| dir.path().join(name);
    let certified = rcgen::generate_simple_self_signed(["api.example.com".to_owned()]).unwrap();
    std::fs::write(path("chain.pem"), certified.cert.pem()).unwrap();
    std::fs::write(path("key.pem"), certified.signing_key.serialize_pem()).unwrap();
    std::fs::write(path("ticket"), "0123456789abcdef0123456789abcdef").unwrap();
    std::fs::write(path("secret"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let authority = Authority::new();
    authority.write(&path("ca.pem"));
    let issued = authority.certify_with(&["gateway"], &rcgen::PKCS_ECDSA_P256_SHA256, |params| {
        params.not_after = rcgen::date_time_ymd(2026, 1, 1);
    });
    issued.write(dir.path(), "client");
    let upstream = Upstream::start();
    let text = format!(
        "listen:\n\
         - address: 0.0.0.0:0\n  \
         tls: {{ certificates: [{{ chain: chain.pem, key: key.pem }}], ticket_key: {{ file: ticket }} }}\n\
         admin: {{ socket: admin.sock, address: 0.0.0.0:9091 }}\n\
         upstream: {{ endpoints: ['http://{}'] }}\n\
         state: {{ embedded: {{ path: state.db }} }}\n\
         audit:\n  \
         path: audit\n  \
         retention: {{ size: never }}\n  \
         ship: [{{ http: {{ url: 'https://logs.example.com', secret: {{ file: secret }}, \
         tls: {{ ca: ca.pem, certificate: client.pem, key: client.key }} }} }}, \
         {{ otlp: {{ endpoint: 'http://logs.example.com' }} }}]\n\
         session: {{ origin: 'https://keys.example.com' }}\n\
         routes:\n\
         - {{ name: all, path: '/api/**' }}\n\
         - {{ name: list, methods: [GET], path: /api/queries, permission: 'queries:read' }}\n",
        upstream.address
    );
    std::fs::write(path("keygate.yaml"), text).unwrap();
    for (name, mode) in
        [("key.pem", 0o644), ("client.key", 0o644), ("secret", 0o600), ("ticket", 0o666), ("keygate.yaml", 0o644)]
    {
        std::fs::set_permissions(path(name), Permissions::from_mode(mode)).unwrap();
    }
    let output =
        Command::new(KEYGATE).args(["doctor", "--json", "--config"]).arg(path("keygate.yaml")).output().unwrap();
    let examined = Examined::new(&output);
    assert_eq!((examined.code, &*examined.worst), (1, "error"));
    assert_eq!(examined.severity("files", "key.pem"), "warning");
    assert_eq!(examined.severity("files", "ticket"), "error");
    assert_eq!(examined.severity("files", "keygate.yaml"), "ok");
    assert_eq!(examined.severity("files", "client.key"), "warning");
    assert_eq!(examined.severity("files", "secret"), "ok");
    assert_eq!(examined.severity("certificates", "chain.pem"), "note");
    let dates = |name: &str| {
        let of_file = |item: &&Value| item["subject"].as_str().unwrap().contains(&format!("/{name} ("));
        examined.items.iter().find(of_file).unwrap_or_else(|| panic!("no {name} in {:#?}", examined.items))
    };
    assert_eq!([dates("chain.pem"), dates("ca.pem")].map(|dates| &dates["severity"]), ["ok", "ok"]);
    assert_eq!(
        [&dates("client.pem")["severity"], &dates("client.pem")["found"]],
        ["error", "expired at 2026-01-01T00:00:00Z"]
    );
    assert_eq!(examined.severity("sinks", "sink `otlp`"), "warning");
    assert_eq!(examined.severity("certificates", "names of listener 0.0.0.0:0"), "error");
    assert_eq!(examined.severity("listeners", "origin of the dashboard"), "warning");
    assert_ne!(examined.severity("listeners", "admin.address"), "ok");
    assert_eq!(examined.severity("routes", "route `list`"), "warning");
}

/// A sink that fails is one for both, from the same report and in the same words.
#[test]
fn doctor_says_of_sinks_what_ship_status_says() {
    let upstream = Upstream::start();
    let ship = format!(
        "audit: {{ low_water: 0%, path: audit, ship: [{{ name: away, otlp: {{ endpoint: 'http://{}' }} }}, \
         {{ name: archive, files: {{ path: shipped }} }}] }}\n",
        free_address()
    );
    let setup = Setup::new(upstream.address, ROUTES);
    setup.write(&setup.text().replace("audit: { low_water: 0%, path: audit }\n", &ship));
    let _gateway = setup.start();
    setup.key();
    let status = || {
        let output = setup.keygate(&["audit", "ship", "status", "--json"]);
        let page: Value = serde_json::from_slice(&output.stdout).unwrap();
        page["items"].as_array().unwrap().clone()
    };
    let sink = |name: &str| status().into_iter().find(|item| item["sink"] == name).unwrap();
    eventually("one sink fails, and one has all", || {
        sink("away")["state"] == "failing" && sink("archive")["state"] == "caught_up"
    });
    let examined = Examined::new(&setup.keygate(&["doctor", "--only", "sinks", "--json"]));
    assert_eq!((examined.code, &*examined.worst, examined.items.len()), (1, "error", 2), "{:?}", examined.items);
    let failing = examined.find("sinks", "sink `away`");
    let found = failing["found"].as_str().unwrap();
    let error = sink("away")["error"].as_str().unwrap().to_owned();
    assert!(failing["severity"] == "error" && found.starts_with("failing, "), "{failing}");
    assert!(found.ends_with(&format!(" s behind: {error}")), "{failing}: {error}");
    assert_eq!(examined.severity("sinks", "sink `archive`"), "ok");
    let shown = String::from_utf8(setup.keygate(&["audit", "ship", "status"]).stdout).unwrap();
    assert!(shown.contains(&format!("away: {error}\n")), "{shown}");
}

#[test]
fn doctor_names_the_endpoints_that_do_not_answer_and_examines_the_rest() {
    let (hole, silent) = (BlackHole::start(), Upstream::answering(|_, _| {}));
    let setup = Setup::new(hole.address, ROUTES);
    let other = format!("'http://{}', 'http://{}'", hole.address, silent.address);
    setup.write(&setup.text().replace(&format!("'http://{}'", hole.address), &other));
    let examined = Examined::of(&setup);
    let found = |endpoint: &str| {
        let finding = examined.find("upstreams", endpoint);
        (finding["severity"].as_str().unwrap(), finding["found"].as_str().unwrap())
    };
    assert_eq!(found(&hole.address.to_string()), ("warning", "cannot be reached: no connection in time"));
    assert_eq!(found(&silent.address.to_string()), ("warning", "does not answer: no response within 3s"));
    assert_eq!(examined.severity("files", "keygate.yaml"), "ok");
}

#[test]
fn doctor_probes_without_the_certificate_of_the_gateway() {
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let ca = authority.write(&dir.path().join("ca.pem"));
    let pair = authority.certify(&["127.0.0.1"]).write(dir.path(), "upstream");
    let own = authority.certify(&["gateway"]).write(dir.path(), "own");
    let client_auth = Some(ClientAuth { ca: ca.clone(), required: true });
    let required = ServerSettings { client_auth, ..settings(vec![pair.clone()]) };
    let start = |settings: &ServerSettings| {
        let tls = ServerTls::open(settings).unwrap().acceptor();
        HyperOptions::http1().over_tls(tls.config()).start(ok)
    };
    let (closed, open) = (start(&required), start(&settings(vec![pair])));
    let setup = Setup::new(closed.address, ROUTES);
    let upstream = format!(
        "upstream: {{ endpoints: ['https://{}', 'https://{}'], tls: {{ ca: {}, certificate: {}, key: {} }} }}",
        closed.address,
        open.address,
        ca.display(),
        own.chain.display(),
        own.key.display()
    );
    let plain = format!("upstream: {{ endpoints: ['http://{}'] }}", closed.address);
    setup.write(&setup.text().replace(&plain, &upstream));
    let examined = Examined::new(&setup.keygate(&["doctor", "--json", "--only", "upstreams"]));
    let found = |endpoint: String| examined.find("upstreams", &endpoint)["found"].as_str().unwrap().to_owned();
    assert_eq!(found(closed.address.to_string()), "requires a client certificate");
    assert!(found(open.address.to_string()).starts_with("answers 200"), "{:#?}", examined.items);
    assert_eq!(examined.severity("upstreams", &format!("{}: certificate", open.address)), "ok");
}
