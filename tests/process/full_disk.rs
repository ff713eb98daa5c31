//! Full disk: requests get 503 and the gateway is not ready, or requests are served and lost records counted, as
//! configured; the gateway recovers by itself.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Client, KEYGATE, Response, Running, Setup, Upstream};

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

/// Requests in succession that must be refused before the journal counts as full. At the very end of the space one record
/// may fail and a shorter one after it still fit.
const REFUSALS: usize = 10;

/// Uses the key until several requests in succession get a response other than 200, and returns the last of them.
fn use_up(client: &mut Client, key: &str) -> Option<Response> {
    let mut refused = 0;
    (0..ATTEMPTS).map(|_| client.get("/", key)).find(|response| {
        refused = if response.status == 200 { 0 } else { refused + 1 };
        refused == REFUSALS
    })
}

#[test]
fn full_disk_refuses_requests_until_there_is_space() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "limits: { key: { requests: 1000000, per: 1s } }");
    let key = setup.key();
    let gateway = start(&setup);
    let mut client = setup.client();
    let refused = use_up(&mut client, &key).expect("the journal is full at some time");
    assert_eq!((refused.status, refused.code().as_str()), (503, "audit_unavailable"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    let forwarded = upstream.count();
    assert_eq!(client.get("/", &key).status, 503);
    assert_eq!(upstream.count(), forwarded, "a request without a record is not forwarded");
    let ready = Client::connect(setup.admin).get("/ready", "");
    assert_eq!(ready.status, 503);
    assert!(String::from_utf8(ready.body).unwrap().contains("audit"));

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
fn full_disk_with_drop_serves_requests_and_counts_lost_records() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "limits: { key: { requests: 1000000, per: 1s } }");
    let path = setup.path().join("keygate.yaml");
    let old = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, old.replace("audit: { path: audit }", "audit: { path: audit, on_unavailable: drop }"))
        .unwrap();
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
