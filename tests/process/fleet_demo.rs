//! `keygate demo --fleet`: its numbers are those of the journals, and nothing of it is left.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::page::{block, blocks};
use crate::support::{KEYGATE, until};

/// Processes of the demo: Redis and two gateways.
const PROCESSES: usize = 3;

/// The command of the page, without the name of the program.
fn arguments() -> Vec<String> {
    let command = block("keygate demo --fleet");
    command.split_whitespace().skip(1).map(str::to_owned).collect()
}

fn demo(temporary: &Path) -> Command {
    let mut command = Command::new(KEYGATE);
    command.args(arguments()).env("TMPDIR", temporary);
    command
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn fleet_demo_prints_the_lines_of_the_page_and_removes_its_directory() {
    let temporary = tempfile::tempdir().unwrap();
    let ended = demo(temporary.path()).output().unwrap();
    let table = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success(), "{table}\n{}", String::from_utf8_lossy(&ended.stderr));
    assert!(ended.stderr.is_empty(), "without a terminal there is no progress");
    assert_eq!(entries(temporary.path()), 0);

    let page = blocks().into_iter().find(|block| block.text.starts_with("WHAT ")).expect("a page shows the table").text;
    // Times, and how many were answered before the kill, differ from run to run.
    let names = |table: &str| -> Vec<String> {
        table.lines().map(|line| line.trim_start().split("  ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&table), names(&page));
    assert!(!table.contains("WRONG") && table.ends_with("All numbers are as promised.\n"), "{table}");
}

/// The numbers are counted again from what `audit export` prints, and compared with one another.
#[test]
fn fleet_demo_numbers_agree_with_the_journals_that_it_leaves() {
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path().join("demo");
    let ended = demo(outer.path()).arg("--json").arg("--dir").arg(&dir).output().unwrap();
    let printed = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success(), "{printed}\n{}", String::from_utf8_lossy(&ended.stderr));
    let report: Value = serde_json::from_str(&printed).unwrap();
    let number =
        |path: &str| report.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {report}"));
    assert_eq!(report["is_right"], true);

    let [ok, refused, broken] = ["ok", "refused", "broken"].map(|name| number(&format!("/clients/{name}")));
    assert_eq!(ok + refused + broken, 2400);
    let [completed, aborted, limited] =
        ["completed", "aborted", "rate_limited"].map(|name| number(&format!("/audit/{name}")));
    let admitted = completed + aborted;
    assert!((1000..=1000 + number("/refilled")).contains(&admitted), "{report}");
    assert_eq!((ok + broken, limited), (admitted, refused));
    assert!(aborted >= broken, "what was open at the kill is aborted: {report}");

    let records = ["gateway-1", "gateway-2"].map(|gateway| exported(&dir.join(gateway).join("keygate.yaml")));
    let counted = |action: &str, outcome: &str| -> u64 {
        let of = |record: &&Value| record["action"] == action && record["outcome"] == outcome;
        records.iter().flatten().filter(of).map(|record| record["count"].as_u64().unwrap_or(1)).sum()
    };
    // The first answer before the revocation is an order as well, with the other key.
    assert_eq!(counted("orders", "completed"), completed + 1);
    assert_eq!(counted("orders", "aborted"), aborted);
    assert_eq!(counted("orders", "rate_limited"), limited);
    assert_eq!((counted("orders", "revoked"), counted("events", "terminated")), (1, 1));
    assert_eq!(counted("key.revoke", "completed"), 1);
    let of_killed = records[0].iter().filter(|record| record["outcome"] == "aborted").count() as u64;
    assert_eq!(of_killed, aborted, "only the killed gateway left uses open");

    let again = demo(outer.path()).arg("--dir").arg(&dir).output().unwrap();
    let told = String::from_utf8(again.stderr).unwrap();
    assert_eq!(again.status.code(), Some(75), "{told}");
    assert!(told.contains("has the journals of an earlier run; choose another directory with --dir"), "{told}");
}

fn exported(config: &Path) -> Vec<Value> {
    let output = Command::new(KEYGATE).args(["audit", "export", "--config"]).arg(config).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn interrupted_fleet_demo_ends_its_processes_and_removes_its_directory() {
    let temporary = tempfile::tempdir().unwrap();
    let (demo, processes) = stuck(temporary.path());
    signal("INT", demo.id());
    let ended = demo.wait_with_output().unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(75), "{told}");
    assert!(told.contains("interrupted"), "{told}");
    let running: Vec<_> = processes.into_iter().filter(|id| is_running(*id)).collect();
    assert!(running.is_empty(), "{running:?}");
    assert_eq!(entries(temporary.path()), 0);
}

#[test]
fn killed_fleet_demo_takes_its_processes_along() {
    let temporary = tempfile::tempdir().unwrap();
    let (mut demo, processes) = stuck(temporary.path());
    demo.kill().unwrap();
    assert_eq!(demo.wait().unwrap().signal(), Some(9));
    until("the processes have ended", || processes.iter().all(|id| !is_running(*id)).then_some(()));
}

#[test]
fn fleet_demo_without_redis_says_how_to_get_it() {
    let temporary = tempfile::tempdir().unwrap();
    let ended = demo(temporary.path()).env("PATH", "").output().unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(69), "{told}");
    assert!(told.contains("apt install redis-server") && told.contains("`keygate demo` shows one gateway"), "{told}");
    assert_eq!(entries(temporary.path()), 0);
}

/// A demo whose second gateway is stopped where it is (SIGSTOP), so that the run does not end; with its processes.
fn stuck(temporary: &Path) -> (Child, Vec<u32>) {
    let demo = demo(temporary).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let processes = until("Redis and both gateways run", || {
        let children = children(demo.id());
        (children.len() == PROCESSES && children.iter().all(|id| has_become_its_program(*id))).then_some(children)
    });
    signal("STOP", processes[PROCESSES - 1]);
    (demo, processes)
}

fn signal(name: &str, id: u32) {
    assert!(Command::new("kill").args([&format!("-{name}"), &id.to_string()]).status().unwrap().success());
}

/// The processes that a process has started, in the order of their ids.
fn children(parent: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let mut children: Vec<u32> =
        all.filter(|id| stat(*id).is_some_and(|(_, its_parent)| its_parent == parent)).collect();
    children.sort_unstable();
    children
}

/// Returns whether a process of the demo is no copy of the demo any more.
fn has_become_its_program(id: u32) -> bool {
    let words = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
    !words.is_empty() && words.split('\0').nth(1) != Some("demo")
}

/// Returns whether a process runs or is stopped, and has not ended.
fn is_running(id: u32) -> bool {
    stat(id).is_some_and(|(state, _)| state != 'Z')
}

/// State and parent of a process, as `proc(5)` has them; none when there is no such process.
fn stat(id: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}
