//! The access log of the real binary: rotation on SIGHUP under load, a full disk, and the standard output.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::Value;

use crate::support::{KEYGATE, SetOnDrop, Setup, SmallDisk, Upstream, eventually};

const QUOTA: &str = "limits: { key: { requests: 1000000, per: 1s } }";

fn log(access_log: &str) -> String {
    format!("{QUOTA}\ntelemetry: {{ access_log: {{ {access_log} }} }}")
}

/// Paths of the requests in a file. A line that is just being written may end it.
fn paths(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let path = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        line["url.path"].as_str().unwrap().to_owned()
    };
    let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
    whole.lines().map(path).collect()
}

#[test]
fn rotation_under_load_loses_and_repeats_no_line() {
    let upstream = Upstream::start();
    let (setup, key) = Setup::new(upstream.address, &log("file: access.log")).and_key();
    let gateway = setup.start();
    let (stop, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let current = setup.path().join("access.log");
    std::thread::scope(|scope| {
        let _over = SetOnDrop(&stop);
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = setup.client();
                while !stop.load(Ordering::Relaxed) {
                    let number = sent.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(client.get(&format!("/{number}"), &key).status, 200);
                }
            });
        }
        for rotation in 0..10 {
            let before = sent.load(Ordering::Relaxed);
            eventually("requests go on", || sent.load(Ordering::Relaxed) > before + 20);
            std::fs::rename(&current, setup.path().join(format!("access.log.{rotation}"))).unwrap();
            gateway.hang_up();
            eventually("the file is opened again", || current.exists());
        }
        stop.store(true, Ordering::Relaxed);
    });
    gateway.stop();
    let rotated = (0..10).map(|rotation| setup.path().join(format!("access.log.{rotation}")));
    let files: Vec<_> = rotated.chain([current]).collect();
    for file in &files {
        let text = std::fs::read(file).unwrap();
        assert!(text.is_empty() || text.ends_with(b"\n"), "a line of {} is torn", file.display());
    }
    let all: Vec<String> = files.iter().flat_map(|file| paths(file)).collect();
    let expected: BTreeSet<String> = (0..sent.into_inner()).map(|number| format!("/{number}")).collect();
    assert_eq!(all.len(), expected.len(), "each request has one line");
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn rotation_works_while_the_configuration_file_is_broken() {
    let upstream = Upstream::start();
    let (setup, key) = Setup::new(upstream.address, &log("file: access.log")).and_key();
    let gateway = setup.start();
    let current = setup.path().join("access.log");
    std::fs::rename(&current, setup.path().join("access.log.1")).unwrap();
    setup.write("nonsense: [");
    gateway.hang_up();
    eventually("the file is opened again", || current.exists());
    assert_eq!(setup.client().get("/after", &key).status, 200);
    eventually("the line is in the new file", || paths(&current) == ["/after"]);
}

#[test]
fn full_disk_stops_no_request_and_is_logged_once() {
    let test = "access_log::full_disk_stops_no_request_and_is_logged_once";
    let Some(disk) = SmallDisk::mount(test, 2) else { return };
    let upstream = Upstream::start();
    let file = disk.path().join("access.log");
    let (setup, key) = Setup::new(upstream.address, &log(&format!("file: {}", file.display()))).and_key();
    let gateway = setup.start_logged();
    let mut client = setup.client();
    assert_eq!(client.get("/before", &key).status, 200);
    eventually("the first line is there", || paths(&file) == ["/before"]);
    disk.fill();
    let long = "x".repeat(900);
    for number in 0..100 {
        assert_eq!(client.get(&format!("/{number}/{long}"), &key).status, 200);
    }
    let failures = || {
        let text = std::fs::read_to_string(setup.path().join("log")).unwrap();
        text.lines().filter(|line| line.contains("cannot write the access log")).count()
    };
    eventually("the failure is logged", || failures() > 0);
    assert!(std::fs::read(&file).unwrap().ends_with(b"\n"), "no line is torn");
    disk.make_room();
    let all: Vec<String> =
        std::iter::once("/before".into()).chain((0..100).map(|number| format!("/{number}/{long}"))).collect();
    eventually("the lines that waited are written", || paths(&file) == all);
    assert_eq!(failures(), 1);
    gateway.stop();
}

#[test]
fn full_disk_at_the_start_keeps_no_gateway_from_starting() {
    let test = "access_log::full_disk_at_the_start_keeps_no_gateway_from_starting";
    let Some(disk) = SmallDisk::with_files(test, 1, 20) else { return };
    let upstream = Upstream::start();
    let file = disk.path().join("access.log");
    let (setup, key) = Setup::new(upstream.address, &log(&format!("file: {}", file.display()))).and_key();
    // No inode is left for another file.
    let mut number = 0;
    while std::fs::File::create(disk.path().join(number.to_string())).is_ok() {
        number += 1;
    }
    let gateway = setup.start();
    assert_eq!(setup.client().get("/", &key).status, 200);
    (0..10).for_each(|number| std::fs::remove_file(disk.path().join(number.to_string())).unwrap());
    eventually("the file is created", || file.exists() && paths(&file) == ["/"]);
    gateway.stop();
}

#[test]
fn standard_output_gets_lines_and_a_reader_that_stops_reading_holds_nothing_up() {
    let upstream = Upstream::start();
    let (setup, key) = Setup::new(upstream.address, &log("stdout: true")).and_key();
    let mut child = Command::new(KEYGATE)
        .args(["serve", "--config"])
        .arg(setup.path().join("keygate.yaml"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    eventually("the gateway is ready", || setup.keygate(&["health"]).status.success());
    let mut client = setup.client();
    assert_eq!(client.get("/first", &key).status, 200);
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["url.path"], "/first");
    // More than a pipe holds.
    let long = "x".repeat(900);
    for _ in 0..300 {
        assert_eq!(client.get(&format!("/{long}"), &key).status, 200);
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let read = stdout.lines().map_while(Result::ok).count();
    assert_eq!(read, 300);
    assert!(crate::support::exit_status(&mut child).success());
}

#[test]
fn file_that_cannot_be_opened_is_an_error_of_the_start() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, &log("file: missing/access.log"));
    let output = setup.keygate(&["serve"]);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("telemetry.access_log") && text.contains("No such file"), "{text}");
}
