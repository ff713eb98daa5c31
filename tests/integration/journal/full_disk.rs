//! Full disk: refusal or loss of records as configured, and recovery.

use std::process::Command;

use journal::audit::{Durability, Journal, OnUnavailable, Outcome, Settings};
use platform::metrics::Metrics;
use tempfile::TempDir;

use super::support::{Caller, END, all_records, assert_intact, block_on, settings};
use crate::support::eventually;

/// Runs a test in a child process whose files may not exceed `bytes`, as if its disk were full then.
fn with_small_disk(test: &str, bytes: u64) {
    let script = "trap '' XFSZ; exec prlimit --fsize=$1:unlimited \"$2\" --exact \"$3\" --nocapture";
    let exe = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", &bytes.to_string()]).arg(exe).arg(test).env("KEYGATE_SMALL_DISK", "1");
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn lift_limit() {
    let pid = std::process::id().to_string();
    let status = Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited:unlimited"]).status();
    assert!(status.unwrap().success());
}

#[test]
fn full_disk_refuses_requests_until_there_is_room() {
    if std::env::var_os("KEYGATE_SMALL_DISK").is_none() {
        return with_small_disk("journal::full_disk::full_disk_refuses_requests_until_there_is_room", 60_000);
    }
    for durability in [Durability::Written, Durability::Synced] {
        let pid = std::process::id().to_string();
        Command::new("prlimit").args(["--pid", &pid, "--fsize=60000:unlimited"]).status().unwrap();
        let directory = TempDir::new().unwrap();
        let settings = Settings { durability, ..settings(directory.path()) };
        let metrics = Metrics::new().audit;
        let journal = Journal::open(settings.clone(), metrics.clone()).unwrap();
        block_on(async {
            let caller = Caller::random();
            let mut entries = Vec::new();
            while let Ok(entry) = journal.begin(&caller.opening()).await {
                entries.push(entry);
            }
            let begun = entries.len() as u64;
            assert!(!journal.is_available());
            assert!(journal.record(&caller.opening(), END).await.is_err());
            entries.drain(..).for_each(|entry| entry.close(END));
            assert!(journal.begin(&caller.opening()).await.is_err());
            assert_eq!(metrics.backlog.get(), begun as i64, "outcomes are kept");
            lift_limit();
            eventually("the journal is available without traffic", || journal.is_available());
            journal.begin(&caller.opening()).await.unwrap().close(END);
            journal.close().await;
            assert_eq!(metrics.written.get(), begun + 1);
            assert_eq!(metrics.refused.get(), 3);
            let records = all_records(&settings);
            assert_eq!(records.len() as u64, begun + 1, "refused uses are not in the journal");
            assert!(records.iter().all(|record| record.outcome == Outcome::Completed));
            assert_intact(&settings);
        });
    }
}

#[test]
fn unrecorded_requests_on_a_full_disk_are_served_and_counted_when_configured() {
    if std::env::var_os("KEYGATE_SMALL_DISK").is_none() {
        return with_small_disk(
            "journal::full_disk::unrecorded_requests_on_a_full_disk_are_served_and_counted_when_configured",
            60_000,
        );
    }
    let directory = TempDir::new().unwrap();
    let settings = Settings { on_unavailable: OnUnavailable::ServeUnrecorded, ..settings(directory.path()) };
    let metrics = Metrics::new().audit;
    let journal = Journal::open(settings.clone(), metrics.clone()).unwrap();
    block_on(async {
        for _ in 0..1000 {
            journal.begin(&Caller::random().opening()).await.unwrap().close(END);
        }
        lift_limit();
        journal.begin(&Caller::random().opening()).await.unwrap().close(END);
        journal.close().await;
    });
    assert!(metrics.dropped.get() > 100);
    assert_eq!(metrics.written.get() + metrics.dropped.get(), 1001);
    assert_eq!(assert_intact(&settings).uses, metrics.written.get());
}
