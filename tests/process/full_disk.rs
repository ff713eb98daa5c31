//! Full disk: requests get 503 and the gateway is not ready, or requests are served and lost records counted, as
//! configured; the gateway recovers by itself.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::redis::Redis;
use crate::support::{Client, KEYGATE, Response, Running, Setup, SmallDisk, Upstream, eventually};

/// File size limit of the gateway process, which makes its writes fail as on a full disk.
const ROOM: u64 = 512 << 10;

/// Requests whose records need three times the space.
const ATTEMPTS: usize = 5000;

fn start(setup: &Setup) -> Running {
    // SIGXFSZ would end the process; on a full disk, only the write fails.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec prlimit --fsize=$0: \"$@\"", &ROOM.to_string(), KEYGATE]);
    setup.start_by(&mut shell)
}

fn make_room(gateway: &Running) {
    let status = Command::new("prlimit").args(["--pid", &gateway.id().to_string(), "--fsize=unlimited:"]).status();
    assert!(status.unwrap().success(), "prlimit (package util-linux) changes the limit");
}

/// Requests in succession that must be refused before the journal counts as full. At the very end of the space one
/// record may fail and a shorter one after it still fit.
const REFUSALS: usize = 10;

/// Uses the key until several requests in succession get a response other than 200, and returns the last of them.
fn use_up(client: &mut Client, key: &str) -> Option<Response> {
    use_up_by(client, key, "/")
}

/// The same with requests for this path, which is in each record.
fn use_up_by(client: &mut Client, key: &str, path: &str) -> Option<Response> {
    let mut refused = 0;
    (0..ATTEMPTS).map(|_| client.get(path, key)).find(|response| {
        refused = if response.status == 200 { 0 } else { refused + 1 };
        refused == REFUSALS
    })
}

#[test]
fn full_disk_refuses_requests_until_there_is_space() {
    let upstream = Upstream::start();
    let (setup, key) = Setup::new(upstream.address, "limits: { key: { requests: 1000000, per: 1s } }").and_key();
    let gateway = start(&setup);
    let mut client = setup.client();
    let refused = use_up(&mut client, &key).expect("the journal is full at some time");
    assert_eq!((refused.status, refused.code().as_str()), (503, "audit_unavailable"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    let forwarded = upstream.count();
    assert_eq!(client.get("/", &key).status, 503);
    assert_eq!(upstream.count(), forwarded, "a request without a record is not forwarded");
    // A short line that still fits, such as an outcome, makes the gateway ready until the next request.
    eventually("the gateway is not ready", || {
        let refused = client.get("/", &key).status == 503;
        let ready = Client::connect(setup.admin).get("/ready", "");
        refused && ready.status == 503 && String::from_utf8(ready.body).unwrap().contains("audit")
    });

    make_room(&gateway);
    let deadline = Instant::now() + Duration::from_secs(20);
    while Client::connect(setup.admin).get("/ready", "").status != 200 {
        assert!(Instant::now() < deadline, "the gateway did not recover");
    }
    assert_eq!(client.get("/", &key).status, 200);
    gateway.stop();
    setup.ok(&["audit", "verify"]);
    let records = setup.ok(&["audit", "export"]).lines().filter(|line| line.contains("\"api-key\"")).count();
    assert!(records > forwarded, "{records} records for {forwarded} requests");
}

#[test]
fn full_disk_with_serve_unrecorded_serves_requests_and_counts_lost_records() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "limits: { key: { requests: 1000000, per: 1s } }");
    let path = setup.path().join("keygate.yaml");
    let old = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, old.replace("path: audit }", "path: audit, on_unavailable: serve_unrecorded }")).unwrap();
    let key = setup.key();
    let gateway = start(&setup);
    let mut client = setup.client();
    for _ in 0..ATTEMPTS {
        assert_eq!(client.get("/", &key).status, 200);
    }
    assert_eq!(Client::connect(setup.admin).get("/ready", "").status, 200);
    let metrics = String::from_utf8(Client::connect(setup.admin).get("/metrics", "").body).unwrap();
    let dropped =
        metrics.lines().find_map(|line| line.strip_prefix("keygate_audit_records_total{result=\"dropped\"} "));
    assert!(dropped.unwrap().parse::<u64>().unwrap() > 0, "{metrics}");
    make_room(&gateway);
    gateway.stop();
}

/// A gateway whose state and journal are on a small disk, with this policy.
fn setup_on(disk: &SmallDisk, upstream: &Upstream, policy: &str) -> Setup {
    let state = format!("{{ embedded: {{ path: {}/state.db }} }}", disk.path().display());
    setup_with_state(disk, upstream, &state, policy)
}

/// The same with another state.
fn setup_with_state(disk: &SmallDisk, upstream: &Upstream, state: &str, policy: &str) -> Setup {
    let path = disk.path().display();
    let setup = Setup::with_state(upstream.address, state, "limits: { key: { requests: 1000000, per: 1s } }");
    let audit = format!("audit: {{ path: {path}/audit, segment_size: 1MiB, on_unavailable: {policy} }}");
    setup.write(&setup.text().replace("audit: { low_water: 0%, path: audit }", &audit));
    setup
}

/// Starts the gateway, and waits until it takes management commands: on a full disk it is not ready.
fn start_on_full_disk(setup: &Setup) -> std::process::Child {
    let mut command = Command::new(KEYGATE);
    command.args(["serve", "--config"]).arg(setup.path().join("keygate.yaml"));
    let child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    eventually("the gateway takes management commands", || Client::try_connect(setup.admin).is_ok());
    child
}

/// Actions of changes by management that were recorded with an outcome.
fn completed_changes(setup: &Setup) -> Vec<String> {
    let records = setup.ok(&["audit", "export"]);
    let records = records.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let changes = records.filter(|record| record["method"] == "ADMIN" && record["outcome"] == "completed");
    changes.map(|record| record["action"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn revocation_succeeds_with_no_byte_free() {
    let Some(disk) = SmallDisk::mount("full_disk::revocation_succeeds_with_no_byte_free", 40) else { return };
    let upstream = Upstream::start();
    revoke_on_full_disk(&disk, &setup_on(&disk, &upstream, "refuse"));
}

#[test]
fn revocation_on_redis_succeeds_with_no_byte_free_for_the_journal() {
    let test = "full_disk::revocation_on_redis_succeeds_with_no_byte_free_for_the_journal";
    let Some(disk) = SmallDisk::mount(test, 40) else { return };
    let (upstream, redis) = (Upstream::start(), Redis::start());
    let state = format!("{{ redis: {{ url: '{}', deadline: 2s }} }}", redis.url());
    revoke_on_full_disk(&disk, &setup_with_state(&disk, &upstream, &state, "refuse"));
}

fn revoke_on_full_disk(disk: &SmallDisk, setup: &Setup) {
    let key = setup.key();
    setup.ok(&["user", "create", "--org", "acme", "bob@example.com"]);
    let bobs = setup.ok(&["key", "create", "--org", "acme", "--user", "bob@example.com", "laptop"]);
    setup.ok(&["org", "create", "globex"]);
    setup.ok(&["user", "create", "--org", "globex", "eve@example.com"]);
    let eves = setup.ok(&["key", "create", "--org", "globex", "--user", "eve@example.com", "laptop"]);
    let mut gateway = setup.start();
    let mut client = setup.client();
    assert!([&key, &bobs, &eves].iter().all(|key| client.get("/", key).status == 200));
    disk.fill();
    // Space that is allocated already is used first.
    let refused =
        use_up_by(&mut client, &key, &format!("/{}", "x".repeat(1000))).expect("the journal is full at some time");
    assert_eq!((refused.status, refused.code().as_str(), disk.free()), (503, "audit_unavailable", 0));

    setup.ok(&["key", "revoke", &key[8..17]]);
    setup.ok(&["user", "remove", "--org", "acme", "bob@example.com"]);
    setup.ok(&["org", "suspend", "globex"]);
    eventually("the outcomes are recorded", || completed_changes(setup).contains(&"org.suspend".to_owned()));
    // Also after a start on the full disk. The gateway is not ready until there is room, which it may make by
    // compressing a segment.
    gateway.kill();
    let mut gateway = start_on_full_disk(setup);
    let ready = Client::connect(setup.admin).get("/ready", "").status;
    assert!([200, 503].contains(&ready), "{ready}");
    // Space that the start has given back, such as the index of a journal whose gateway was killed, is not needed.
    disk.fill();
    for _ in 0..20 {
        setup.ok(&["org", "resume", "globex"]);
        setup.ok(&["org", "suspend", "globex"]);
    }
    disk.make_room();
    eventually("the gateway recovers", || Client::connect(setup.admin).get("/ready", "").status == 200);
    let mut client = setup.client();
    let statuses = [&key, &bobs, &eves].map(|key| client.get("/", key).status);
    assert_eq!(statuses, [401, 401, 403]);
    let counts = || {
        let changes = completed_changes(setup);
        ["key.revoke", "user.remove", "org.suspend"]
            .map(|action| changes.iter().filter(|change| *change == action).count())
    };
    // The last outcome is written up to a tenth of a second after a write that failed, and a kill before that loses it.
    eventually("all changes are recorded", || counts() == [1, 1, 21]);
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    assert_eq!(counts(), [1, 1, 21]);
}

#[test]
fn log_of_the_state_does_not_grow_while_the_disk_is_full() {
    let test = "full_disk::log_of_the_state_does_not_grow_while_the_disk_is_full";
    let Some(disk) = SmallDisk::mount(test, 40) else { return };
    let upstream = Upstream::start();
    let setup = setup_on(&disk, &upstream, "serve_unrecorded");
    let key = setup.key();
    let gateway = setup.start();
    let state = rusqlite::Connection::open(disk.path().join("state.db")).unwrap();
    let pages = |pragma: &str| state.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).unwrap();
    // Keys that need new pages take spare ones, and the next key brings them back to 256. The disk
    // becomes full in between.
    let mut numbers = 0..1000;
    while pages("freelist_count") >= 256 {
        let name = format!("laptop-{}", numbers.next().expect("some key needs a new page"));
        setup.ok(&["key", "create", "--org", "acme", "--user", "ada@example.com", &name]);
    }
    disk.fill();
    // Only now, as the keys may take longer than a connection may stay without a request.
    let mut client = setup.client();
    let log = || std::fs::metadata(disk.path().join("state.db-wal")).unwrap();
    let length = log().len();
    // Until the journal is full.
    let path = format!("/{}", "x".repeat(1000));
    assert!((0..ATTEMPTS).all(|_| client.get(&path, &key).status == 200));
    let mut written = log().modified().unwrap();
    for _ in 0..4 {
        // Each second, as the journal does not have the uses.
        eventually("the usage of keys is written", || {
            client.get("/", &key);
            log().modified().unwrap() > written
        });
        written = log().modified().unwrap();
    }
    let growth = log().len().saturating_sub(length);
    assert!(growth < 1 << 20, "{growth} bytes");
    setup.ok(&["key", "revoke", &key[8..17]]);
    assert_eq!((client.get("/", &key).status, disk.free()), (401, 0));
    drop(state);
    gateway.stop();
}

#[test]
fn gateway_starts_and_serves_on_a_full_disk_when_records_may_be_dropped() {
    let test = "full_disk::gateway_starts_and_serves_on_a_full_disk_when_records_may_be_dropped";
    let Some(disk) = SmallDisk::mount(test, 40) else { return };
    let upstream = Upstream::start();
    let setup = setup_on(&disk, &upstream, "serve_unrecorded");
    let key = setup.key();
    disk.fill();
    let gateway = setup.start();
    assert_eq!(setup.client().get("/", &key).status, 200);
    setup.ok(&["key", "revoke", &key[8..17]]);
    assert_eq!((setup.client().get("/", &key).status, disk.free()), (401, 0));
    gateway.stop();
    setup.ok(&["audit", "verify"]);
    assert!(completed_changes(&setup).contains(&"key.revoke".to_owned()));
}

#[test]
fn low_water_mark_is_logged_once_and_retention_goes_by_the_volume() {
    let test = "full_disk::low_water_mark_is_logged_once_and_retention_goes_by_the_volume";
    // State, index and log are on it as well: what is not the journal has taken 19 MiB for a moment on a busy machine.
    let Some(disk) = SmallDisk::mount(test, 64) else { return };
    let upstream = Upstream::start();
    let setup = setup_on(&disk, &upstream, "refuse");
    setup.write(&setup.text().replace("segment_size: 1MiB", "segment_size: 1MiB, low_water: 1MiB"));
    let key = setup.key();
    // Compressed segments would not fill the disk. A directory has the name of the file.
    for number in 1..100 {
        std::fs::create_dir_all(disk.path().join(format!("audit/{number:010}.jsonl.zst.tmp"))).unwrap();
    }
    let gateway = setup.start_logged();
    let mut client = setup.client();
    let path = format!("/{}", "x".repeat(1000));
    let size = || -> u64 {
        let files = std::fs::read_dir(disk.path().join("audit")).unwrap().map(|entry| entry.unwrap());
        files.map(|file| file.metadata().map_or(0, |metadata| metadata.len())).sum()
    };
    let mut sent = 0;
    while sent < 38 << 20 {
        assert_eq!(client.get(&path, &key).status, 200);
        // About what a record takes.
        sent += 1250;
        // Half of the volume, and the active segment. Removal, once a second, may be slower than these requests.
        if sent % (1 << 20) < 1250 {
            eventually("old segments are removed", || size() < 33 << 20);
        }
    }
    eventually("old segments are removed", || size() < 33 << 20);
    let free = || crate::support::metric(setup.admin, "keygate_audit_disk_free_bytes");
    eventually("the metric has the free space", || (free() - disk.free() as f64).abs() < 1.0);
    let log = || std::fs::read_to_string(setup.path().join("log")).unwrap();
    assert!(!log().contains("almost full"), "{}", log());
    eventually("the mark is crossed", || {
        // Retention may be removing the last segment that is too many, which makes room again.
        if disk.free() >= 1 << 20 {
            disk.fill();
        }
        log().contains("almost full")
    });
    disk.make_room();
    eventually("the mark is crossed again", || log().contains("has free space again"));
    assert_eq!((log().matches("almost full").count(), log().matches("has free space again").count()), (1, 1));
    gateway.stop();
    let report: serde_json::Value = serde_json::from_str(&setup.ok(&["audit", "verify", "--json"])).unwrap();
    assert_eq!((&report["beginning"], &report["problem_count"]), (&"removed".into(), &0.into()), "{report}");
}
