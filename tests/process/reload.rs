//! Configuration reload: a new content of the file is applied as a whole, or not at all.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use control::admin::{CONFIG_PATH, ConfigReport};
use keygate::config::ContentHash;

use crate::support::{Client, Setup, Upstream, eventually, head, until};

/// A route whose permission no key has.
const FORBIDDEN: &str = "routes: [{ name: all, path: '/**', permission: 'nobody:may' }]\n";

impl Setup {
    /// The configuration status that the gateway reports on its admin socket.
    fn report(&self) -> ConfigReport {
        let mut socket = std::os::unix::net::UnixStream::connect(self.path().join("admin.sock")).unwrap();
        write!(socket, "GET {CONFIG_PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut socket, &mut answer).unwrap();
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// Waits until the content of the file is in force.
    fn applied(&self) {
        let hash = ContentHash::from_content(self.text().as_bytes()).to_string();
        self.until("the configuration is in force", |report| report.sha256 == hash && report.last_error.is_none());
    }

    /// Waits until the content of the file is rejected; returns the reason.
    fn refused(&self) -> String {
        let hash = ContentHash::from_content(self.text().as_bytes()).to_string();
        let refused = |report: &ConfigReport| {
            report.last_error.as_ref().is_some_and(|refusal| refusal.sha256.as_ref() == Some(&hash))
        };
        self.until("the configuration is rejected", refused).last_error.unwrap().error
    }

    fn until(&self, what: &str, holds: impl Fn(&ConfigReport) -> bool) -> ConfigReport {
        until(what, || Some(self.report()).filter(&holds))
    }

    fn metrics(&self) -> String {
        String::from_utf8(Client::connect(self.admin).get("/metrics", "").body).unwrap()
    }

    fn metric(&self, line: &str) -> bool {
        self.metrics().lines().any(|told| told == line)
    }
}

pub(super) fn ok() -> Upstream {
    Upstream::answering(|_, stream| drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")))
}

/// Upstream that answers `/slow` when the test releases it, and all other paths at once.
fn slow() -> (Upstream, mpsc::Sender<()>) {
    let (release, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::answering(move |request, stream| {
        if request.path() == "/slow" {
            wait.lock().unwrap().recv().ok();
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok();
    });
    (upstream, release)
}

#[test]
fn reload_on_sighup_takes_effect_on_open_connections() {
    let upstream = ok();
    let (setup, key) = Setup::new(upstream.address, "").and_key();
    let gateway = setup.start();
    let mut client = setup.client();
    assert_eq!(client.get("/", &key).status, 200);
    setup.ok(&["config", "status"]);

    let before = setup.text();
    setup.write(&format!("{before}{FORBIDDEN}"));
    gateway.hang_up();
    setup.applied();
    assert_eq!(client.get("/", &key).status, 403, "on the open connection");
    let status: serde_json::Value = serde_json::from_str(&setup.ok(&["config", "status", "--json"])).unwrap();
    assert_eq!((&status["current"], &status["on_disk"]), (&true.into(), &status["sha256"]));
    setup.write(&before);
    gateway.hang_up();
    setup.applied();
    assert_eq!(client.get("/", &key).status, 200);
    assert_eq!(upstream.connections(), 1, "the connection to the endpoint is reused");
    gateway.stop();
}

#[test]
fn reload_works_with_a_relative_configuration_path() {
    let upstream = ok();
    let (setup, key) = Setup::new(upstream.address, "").and_key();
    let gateway = setup.start_within();
    assert_eq!(setup.client().get("/", &key).status, 200);
    setup.write(&format!("{}{FORBIDDEN}", setup.text()));
    gateway.hang_up();
    setup.applied();
    assert_eq!(setup.client().get("/", &key).status, 403);
    gateway.stop();
}

#[test]
fn changed_file_is_reloaded_however_it_is_changed() {
    let upstream = ok();
    let (setup, key) = Setup::new(upstream.address, "").and_key();
    let (file, before) = (setup.path().join("keygate.yaml"), setup.text());
    // As in a Kubernetes volume: the file is a link into a directory that is itself swapped by a link.
    let version = |name: &str, text: &str| {
        std::fs::create_dir(setup.path().join(name)).unwrap();
        std::fs::write(setup.path().join(name).join("keygate.yaml"), text).unwrap();
    };
    let link = |to: &str, name: &str| {
        let new = setup.path().join("link");
        std::os::unix::fs::symlink(to, &new).unwrap();
        std::fs::rename(new, setup.path().join(name)).unwrap();
    };
    version("v1", &before);
    link("v1", "..data");
    link("..data/keygate.yaml", "keygate.yaml");
    let gateway = setup.start();
    let mut client = setup.client();
    assert_eq!(client.get("/", &key).status, 200);

    version("v2", &format!("{before}{FORBIDDEN}"));
    link("v2", "..data");
    setup.applied();
    assert_eq!(client.get("/", &key).status, 403);
    std::fs::write(&file, &before).unwrap();
    setup.applied();
    assert_eq!(client.get("/", &key).status, 200, "written in place");
    gateway.stop();
}

#[test]
fn rejected_configuration_changes_nothing_and_is_reported() {
    let upstream = ok();
    let (setup, key) = Setup::new(upstream.address, "").and_key();
    let gateway = setup.start();
    let before = setup.text();
    assert!(setup.metric("keygate_config_last_reload_successful 1"));

    setup.write(&format!("{before}{FORBIDDEN}htpp: {{ max_fields: 5 }}\n"));
    gateway.hang_up();
    let why = setup.refused();
    assert!(why.contains("htpp: is not a known key; did you mean `http`?"), "{why}");
    assert_eq!(setup.client().get("/", &key).status, 200, "the routes next to the error are not in force either");
    let status = setup.keygate(&["config", "status"]);
    let told = String::from_utf8(status.stdout).unwrap();
    assert_eq!(status.status.code(), Some(1), "{told}");
    assert!(
        told.contains(&ContentHash::from_content(before.as_bytes()).to_string())
            && told.contains("did you mean `http`?"),
        "{told}"
    );
    assert!(setup.metric("keygate_config_last_reload_successful 0"));
    assert!(setup.metric("keygate_config_reload_failures_total 1"));

    // A file that is not YAML names no socket: it is looked for beside the file.
    setup.write("listen: [");
    gateway.hang_up();
    setup.refused();
    let socket = setup.path().join("admin.sock");
    let status = setup.keygate(&["config", "status"]);
    assert_eq!(status.status.code(), Some(1));
    let said = format!("using the admin socket {}", socket.display());
    assert!(String::from_utf8(status.stderr).unwrap().contains(&said));
    let status = setup.keygate(&["config", "status", "--socket", socket.to_str().unwrap()]);
    assert_eq!(status.status.code(), Some(1));

    setup.write(&before);
    gateway.hang_up();
    setup.applied();
    setup.ok(&["config", "status"]);
    assert!(setup.metric("keygate_config_last_reload_successful 1"));
    gateway.stop();
    setup.write(&before);
    assert_eq!(setup.keygate(&["config", "status"]).status.code(), Some(69));
}

#[test]
fn restart_only_keys_are_rejected_by_name() {
    let upstream = ok();
    let (setup, key) = Setup::new(upstream.address, "").and_key();
    let gateway = setup.start();
    let before = setup.text();
    let another = crate::support::free_address();
    let changed = before
        .replace(&setup.address.to_string(), &another.to_string())
        .replace("path: state.db", "path: other.db")
        .replace("path: audit", "path: audit, durability: synced");
    setup
        .write(&format!("{changed}{FORBIDDEN}workers: 7\ngateway: renamed\ntelemetry: {{ log: json, level: warn }}\n"));
    gateway.hang_up();
    let why = setup.refused();
    let named = "gateway, workers, listen, state.embedded.path, audit.durability, telemetry.log";
    assert!(why.contains(named) && why.contains("restart"), "{why}");
    assert_eq!(setup.client().get("/", &key).status, 200);
    assert!(std::net::TcpStream::connect(another).is_err());
    gateway.stop();
}

#[test]
fn changed_limits_apply_at_once_and_counts_stay() {
    let (upstream, release) = slow();
    let limits = |burst: u32, concurrent: u32| {
        format!("limits: {{ key: {{ requests: 1, per: 1h, burst: {burst} }}, org: {{ concurrent: {concurrent} }} }}\n")
    };
    let setup = Setup::new(upstream.address, &limits(10, 100));
    let (key, before) = (setup.key(), setup.text());
    let own = setup.ok(&["key", "create", "--org", "acme", "--user", "ada@example.com", "own"]);
    setup.ok(&["key", "limits", &own[8..17], "--requests", "50", "--per", "1h"]);
    let gateway = setup.start();
    let left = |key: &str| setup.client().get("/", key).header("ratelimit").unwrap().to_owned();
    assert!(left(&key).starts_with("\"key\";r=9;"));
    let mut held = setup.client();
    held.send(head("GET", "/slow", &key, &[], 0));
    eventually("both requests are at the upstream", || upstream.count() == 2);

    setup.write(&before.replace(&limits(10, 100), &limits(5, 2)));
    gateway.hang_up();
    setup.applied();
    assert!(left(&key).starts_with("\"key\";r=4;"), "eight were left, and five fit in now");
    assert!(left(&own).starts_with("\"key\";r=9;"), "the key has its own limits, and its ten tokens are kept");
    setup.write(&before.replace(&limits(10, 100), &limits(5, 1)));
    gateway.hang_up();
    setup.applied();
    assert_eq!(setup.client().get("/", &key).code(), "too_many_in_flight", "the request in flight is still counted");
    release.send(()).unwrap();
    assert_eq!(held.response().status, 200);
    let explained = setup.ok(&["explain", &key[8..17], "--json"]);
    assert!(explained.contains("\"in_flight\":0"), "{explained}");
    assert_eq!(setup.client().get("/", &key).status, 200);
    gateway.stop();
}

#[test]
fn changed_endpoint_gets_new_requests_and_the_old_one_finishes() {
    let (old, release) = slow();
    let new = ok();
    let (setup, key) = Setup::new(old.address, "workers: 1").and_key();
    let gateway = setup.start();
    let mut client = setup.client();
    client.send(head("GET", "/slow", &key, &[], 0));
    eventually("the request is at the old endpoint", || old.count() == 1);
    let up = |upstream: &Upstream| {
        format!("keygate_upstream_endpoint_up{{endpoint=\"{}\",upstream=\"default\"}}", upstream.address)
    };
    assert!(setup.metric(&format!("{} 1", up(&old))));

    setup.write(&setup.text().replace(&old.address.to_string(), &new.address.to_string()));
    gateway.hang_up();
    setup.applied();
    assert_eq!(setup.client().get("/", &key).status, 200);
    assert_eq!((old.count(), new.count()), (1, 1));
    release.send(()).unwrap();
    assert_eq!(client.response().status, 200);
    assert_eq!(client.get("/", &key).status, 200);
    assert_eq!((old.count(), new.count()), (1, 2));
    let told = setup.metrics();
    assert!(told.contains(&up(&new)) && !told.contains(&up(&old)), "{told}");
    gateway.stop();
}

#[test]
fn changed_log_level_applies_at_once_and_a_rejection_is_logged_once() {
    let upstream = ok();
    let setup = Setup::new(upstream.address, "telemetry: { level: error }");
    let before = setup.text();
    let gateway = setup.start_logged();
    let log = || std::fs::read_to_string(setup.path().join("log")).unwrap();
    setup.write(&before.replace("level: error", "level: info"));
    setup.applied();
    setup.write("nonsense");
    setup.refused();
    setup.write(&before);
    setup.applied();
    gateway.stop();
    let log = log();
    let told = |what: &str| log.matches(what).count();
    assert_eq!((told("serving"), told("reloaded the configuration"), told("draining")), (0, 1, 0), "{log}");
    assert_eq!(told("cannot reload the configuration"), 1, "{log}");
}

/// Contents for many reloads: every fourth is invalid, and the valid ones differ in everything but the limits.
fn content(base: &str, at: usize, second: &Upstream) -> String {
    let text = base.replace("'] }", &format!("', 'http://{}'] }}", second.address));
    let timeouts = |text: &str, more: &str| text.replace("lame_duck: 0s", &format!("lame_duck: 0s, {more}"));
    match at % 4 {
        0 => timeouts(base, &format!("response: {at}")),
        1 => format!("{base}# {at}\nroutes: [{{ name: all, path: '/**' }}]\n"),
        2 => format!("{}# {at}\nhttp: {{ max_fields: 50 }}\n", timeouts(&text, "response: 9s")),
        _ => format!("{base}# {at}\ntrusted_proxies: [127.0.0.0/8]\n"),
    }
}

#[test]
fn hundred_reloads_under_load_lose_no_request_and_no_count() {
    const TOKENS: usize = 100_000;
    let (first, second) = (ok(), ok());
    let limits = format!("limits: {{ key: {{ requests: 1, per: 1d, burst: {TOKENS} }} }}");
    let setup = Setup::new(first.address, &limits);
    let (key, base) = (setup.key(), setup.text());
    let gateway = setup.start();
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (mut client, key) = (setup.client(), key.clone());
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let response = client.get("/", &key);
                    assert_eq!((response.status, &*response.body), (200, &b"ok"[..]));
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for at in 0..100 {
        setup.write(&content(&base, at, &second));
        gateway.hang_up();
        if at % 4 == 0 { drop(setup.refused()) } else { setup.applied() }
    }
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("no request failed"));

    assert!(setup.metric("keygate_config_reload_failures_total 25"), "{}", setup.metrics());
    let answered = answered.load(Ordering::Relaxed);
    assert!(answered > 100, "only {answered} requests were made");
    assert_eq!(first.count() + second.count(), answered);
    assert!(second.count() > 0, "the second endpoint was used when it was there");
    let last = setup.client().get("/", &key);
    let left = format!("\"key\";r={};", TOKENS - answered - 1);
    assert!(last.header("ratelimit").unwrap().starts_with(&left), "{left} {last:?}");
    let explained = setup.ok(&["explain", &key[8..17], "--json"]);
    assert!(explained.contains("\"in_flight\":0"), "{explained}");
    gateway.stop();
}

/// The values of a plan are the file's: a reload changes them for the next request of each key, and a plan that is gone
/// is counted, found by `doctor`, and gives the limits for all others.
#[test]
fn plan_of_a_reloaded_file_holds_for_the_next_request() {
    let upstream = ok();
    let plans = |requests: u32| format!("plans: {{ pro: {{ requests: {requests}, per: 366d }} }}\n");
    let (setup, key) = Setup::new(upstream.address, &plans(8)).and_key();
    setup.ok(&["org", "set", "acme", "--plan", "pro"]);
    let text = setup.text();
    let gateway = setup.start();
    let mut client = setup.client();
    let mut policy = || {
        let response = client.get("/", &key);
        (response.status, response.header("ratelimit-policy").unwrap().split(';').nth(1).unwrap().to_owned())
    };
    assert_eq!(policy(), (200, "q=8".to_owned()));
    let mut reload = |text: &str| {
        setup.write(text);
        gateway.hang_up();
        setup.applied();
        policy()
    };
    assert_eq!(reload(&text.replace(&plans(8), &plans(2))), (200, "q=2".to_owned()), "one of two tokens is left");
    assert_eq!(reload(&text.replace(&plans(8), &plans(9))), (200, "q=9".to_owned()));
    assert_eq!(reload(&text), (429, "q=8".to_owned()), "no request beyond the smaller plan's tokens");

    assert!(setup.metric("keygate_missing_plan_decisions_total 0"));
    setup.ok(&["check", "--state"]);
    let doctor = || setup.keygate(&["doctor", "--only", "plans", "--json"]);
    assert!(doctor().status.success());
    assert_eq!(reload(&text.replace(&plans(8), "")).1, "q=1000");
    assert!(setup.metric("keygate_missing_plan_decisions_total 1"));
    let found = String::from_utf8(doctor().stdout).unwrap();
    assert!(found.contains("\"subject\":\"plan pro\"") && found.contains("organization acme"), "{found}");
    let checked = setup.keygate(&["check", "--state"]);
    assert!(String::from_utf8(checked.stderr).unwrap().contains("organization acme has the plan pro"));
    gateway.stop();
}
