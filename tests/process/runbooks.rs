//! Runbooks, followed word by word with their fault induced.

use std::fs;
use std::path::PathBuf;

use crate::support::redis::Redis;
use crate::support::{Client, Setup, Upstream, client, eventually};

/// The paragraph of one alert.
fn runbook(alert: &str) -> String {
    let page = fs::read_to_string("docs/monitoring.md").unwrap();
    let paragraph = page.split(&format!("\n### {alert}\n")).nth(1).unwrap();
    // Its lines may break anywhere.
    paragraph.split("\n### ").next().unwrap().replace('\n', " ")
}

fn metric(setup: &Setup, name: &str) -> f64 {
    let page = String::from_utf8(Client::connect(setup.admin).get("/metrics", "").body).unwrap();
    page.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap().parse().unwrap()
}

#[test]
fn disk_low_is_cured_by_a_smaller_retention_and_a_restart() {
    let text = runbook("KeygateDiskLow");
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "limits: { key: { requests: 1000000, per: 1s } }");
    // More than any disk has.
    setup.write(&setup.text().replace(
        "low_water: 0%, path: audit",
        "low_water: 1024TiB, path: audit, segment_size: 1MiB, retention: { age: 366d }",
    ));
    let key = setup.key();
    let gateway = setup.start_logged();
    let segments = || -> Vec<PathBuf> {
        let files = fs::read_dir(setup.path().join("audit")).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.to_str().unwrap().ends_with(".jsonl.zst")).collect()
    };
    // Text that is hardly compressed, so that the segments stay large.
    let mut seed = 1_u64;
    let mut request = || {
        let words = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{:08x}", seed >> 32)
        });
        client::head("GET", &format!("/{}", words.take(200).collect::<String>()), &key, &[], 0)
    };
    let mut client = setup.client();
    eventually("several segments are closed", || {
        for _ in 0..200 {
            client.try_send(request()).unwrap();
            assert_eq!(client.try_response_to("GET").unwrap().status, 200);
        }
        segments().len() >= 4
    });
    eventually("the alert fires", || metric(&setup, "keygate_audit_disk_low") == 1.0);

    // `audit.retention: { size: SIZE }`, at least the size of a segment; a reload refuses it, a restart applies it.
    assert!(text.contains("set `audit.retention: { size: SIZE }`") && text.contains("a reload refuses the change"));
    setup.write(&setup.text().replace("{ age: 366d }", "{ size: 1MiB }"));
    gateway.hang_up();
    eventually("the reload is refused", || !setup.keygate(&["config", "status"]).status.success());
    let before = segments().len();
    gateway.stop();
    let gateway = setup.start_logged();
    let log = || fs::read_to_string(setup.path().join("log")).unwrap();
    assert!(text.contains("`removing an audit segment`"));
    eventually("segments are removed", || log().contains("removing an audit segment") && segments().len() < before);
    gateway.stop();
    setup.ok(&["audit", "verify"]);
}

#[test]
fn organization_is_refused_at_the_balancer_by_the_tag_of_its_keys_while_redis_is_away() {
    let text = runbook("KeygateKnownKeysInForce");
    let (upstream, redis) = (Upstream::start(), Redis::start());
    let state = format!("{{ redis: {{ url: '{}', deadline: 2s, on_unavailable: known_keys }} }}", redis.url());
    let (setup, key) = Setup::with_state(upstream.address, &state, "").and_key();
    let second = setup.ok(&["key", "create", "--org", "acme", "--user", "ada@example.com", "phone"]);
    let gateway = setup.start_logged();
    assert_eq!(setup.client().get("/", &key).status, 200);
    let shown = setup.ok(&["org", "show", "acme"]);
    redis.kill();
    eventually("Redis is away", || metric(&setup, "keygate_state_connected") == 0.0);

    assert!(text.contains("`keygate audit list --since 1h`"));
    let listed = setup.ok(&["audit", "list", "--since", "1h"]);
    assert!(listed.contains(&key[8..17]), "{listed}");
    let tag = &key[8..11];
    assert!(shown.contains(tag), "{shown}");
    // The expression of the page, with the tag of this organization, fits its keys and no other ones.
    let expression = text.split("~ \"").nth(1).unwrap().split('"').next().unwrap().replace("aB3", tag);
    let fits = |key: &str| {
        let script = format!("printf '%s' 'Bearer {key}' | grep -Eq '{expression}'");
        std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success()
    };
    assert!(fits(&key) && fits(&second), "{expression}");
    assert!(!fits(&format!("sk_live_{}", "~".repeat(20))));
    gateway.stop();
}
