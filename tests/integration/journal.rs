//! The audit journal over real files: exactly one record per use, whatever happens to the gateway, the disk or the file.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use keygate::audit::{
    Durability, Filter, Journal, OnUnavailable, OpenError, Outcome, Reader, Record, Settings, Use, UseEnd, UsedBy,
    VerifyReport,
};
use keygate::clock::{self, Micros};
use keygate::identity::{AuthMethod, OrgId, UserId};
use keygate::key::{KeyId, OrgTag};
use keygate::metrics::Metrics;
use keygate::refusal::Refusal;
use proptest::prelude::*;
use tempfile::TempDir;
use uuid::Uuid;

mod activity;

const END: UseEnd = UseEnd {
    outcome: Outcome::Completed,
    status: Some(200),
    duration_us: 1500,
    request_bytes: 0,
    response_bytes: 4096,
};

/// Whose use it is.
#[derive(Clone, Copy)]
struct Who {
    key: KeyId,
    user: UserId,
    org: OrgId,
}

impl Who {
    fn anyone() -> Self {
        let key = KeyId::generate(OrgTag::generate().unwrap()).unwrap();
        Self { key, user: UserId::generate(), org: OrgId::generate() }
    }

    fn uses(self) -> Use<'static> {
        self.uses_at(clock::now())
    }

    fn uses_at(self, time: Micros) -> Use<'static> {
        Use {
            id: Uuid::now_v7(),
            time,
            number: Some(1),
            key_id: Some(self.key),
            user_id: Some(self.user),
            org_id: Some(self.org),
            auth_method: AuthMethod::ApiKey,
            ip: Some(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7))),
            user_agent: Some(b"curl/8.5.0"),
            action: "queries.list",
            method: "GET",
            path: "/api/queries",
            provisional: false,
        }
    }
}

fn settings(directory: &Path) -> Settings {
    Settings {
        path: directory.join("audit"),
        durability: Durability::Written,
        on_unavailable: OnUnavailable::Refuse,
        segment_size: 64 << 20,
        segment_age: Duration::from_secs(86_400),
        retention_age: None,
        retention_size: None,
        unknown_per_second: 10,
        gateway: "gw-1".into(),
    }
}

fn open(settings: &Settings) -> Journal {
    Journal::open(settings.clone(), Metrics::new().audit).unwrap()
}

fn reader(settings: &Settings) -> Reader {
    Reader::open(&settings.path).unwrap()
}

fn exported(settings: &Settings, filter: Filter) -> Vec<Record> {
    let mut records = Vec::new();
    let mut each = |record| {
        records.push(record);
        Ok(())
    };
    reader(settings).export(&filter, &mut each).unwrap();
    records
}

fn all(settings: &Settings) -> Vec<Record> {
    exported(settings, Filter::default())
}

fn sound(settings: &Settings) -> VerifyReport {
    let report = reader(settings).verify().unwrap();
    assert_eq!(report.problems, [], "in {}", settings.path.display());
    report
}

fn segments(settings: &Settings) -> Vec<PathBuf> {
    let files = fs::read_dir(&settings.path).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|e| e == "jsonl")).collect();
    files.sort();
    files
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}: not within 10 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A journal of `count` ended uses, closed; `spread` of one of them is open at a time.
fn write(settings: &Settings, count: usize) -> Vec<Uuid> {
    run(async {
        let journal = open(settings);
        let who = Who::anyone();
        let mut ids = Vec::new();
        for _ in 0..count {
            let opening = who.uses();
            journal.begin(&opening).await.unwrap().close(END);
            ids.push(opening.id);
        }
        journal.close().await;
        ids
    })
}

#[test]
fn a_use_and_its_outcome_are_one_record() {
    for durability in [Durability::Written, Durability::Synced] {
        let directory = TempDir::new().unwrap();
        let settings = Settings { durability, ..settings(directory.path()) };
        run(async {
            let journal = open(&settings);
            let who = Who::anyone();
            let opening = who.uses();
            let entry = journal.begin(&opening).await.unwrap();
            assert_eq!(all(&settings)[0].outcome, Outcome::InProgress, "the use is written before begin returns");
            entry.close(END);
            until("the outcome is written", || all(&settings)[0].outcome == Outcome::Completed);
            let record = all(&settings).remove(0);
            assert_eq!(record.id, opening.id);
            assert_eq!(record.time, opening.time);
            assert_eq!(record.key_id, Some(who.key));
            assert_eq!(record.status, Some(200));
            assert_eq!(record.duration_us, Some(1500));
            assert_eq!(record.gateway, "gw-1");
            journal.close().await;
            assert!(journal.begin(&opening).await.is_err());
            assert!(!journal.is_available());
        });
        sound(&settings);
    }
}

#[test]
fn a_provisional_use_says_so_and_any_other_says_nothing() {
    let directory = TempDir::new().unwrap();
    let settings = settings(directory.path());
    let who = Who::anyone();
    run(async {
        let journal = open(&settings);
        for provisional in [false, true] {
            let opening = Use { provisional, ..who.uses() };
            journal.begin(&opening).await.unwrap().close(END);
        }
        journal.record(&Use { provisional: true, ..who.uses() }, END).await.unwrap();
        journal.close().await;
    });
    // The first use is as all were before there was such a field.
    let written = fs::read_to_string(&segments(&settings)[0]).unwrap();
    assert_eq!((written.matches("provisional").count(), written.matches(r#""provisional":true"#).count()), (2, 2));
    let of_key = Filter { key: Some(who.key), ..Filter::default() };
    let mut listed = reader(&settings).list(&of_key, 10, None).unwrap().records;
    listed.reverse();
    assert_eq!(listed, all(&settings));
    assert_eq!(listed.iter().map(|record| record.provisional).collect::<Vec<_>>(), [false, true, true]);
    let shown = |record: &Record| serde_json::to_value(record).unwrap().get("provisional").cloned();
    assert_eq!(listed.iter().map(shown).collect::<Vec<_>>(), [None, Some(true.into()), Some(true.into())]);
    let json = serde_json::to_string(&listed[0]).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&json).unwrap(), listed[0]);
    sound(&settings);
}

#[test]
fn only_its_owner_may_read_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = TempDir::new().unwrap();
    let settings = settings(directory.path());
    write(&settings, 1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&settings.path), 0o700);
    assert_eq!(mode(&segments(&settings)[0]), 0o600);
    for name in ["lock", "index.db"] {
        assert_eq!(mode(&settings.path.join(name)), 0o600, "{name}");
    }
}

#[test]
fn a_second_writer_is_refused_until_the_first_closes() {
    let directory = TempDir::new().unwrap();
    let settings = settings(directory.path());
    let journal = open(&settings);
    let second = Journal::open(settings.clone(), Metrics::new().audit);
    assert!(matches!(second, Err(OpenError::InUse { .. })));
    run(journal.close());
    open(&settings);
}

#[test]
fn a_dropped_entry_is_aborted_and_a_record_needs_none() {
    let directory = TempDir::new().unwrap();
    let settings = settings(directory.path());
    run(async {
        let journal = open(&settings);
        drop(journal.begin(&Who::anyone().uses()).await.unwrap());
        let refused = UseEnd { outcome: Outcome::Refused(Refusal::RateLimited), status: Some(429), ..END };
        journal.record(&Who::anyone().uses(), refused).await.unwrap();
        journal.close().await;
    });
    let outcomes: Vec<Outcome> = all(&settings).iter().map(|record| record.outcome).collect();
    assert_eq!(outcomes, [Outcome::Aborted, Outcome::Refused(Refusal::RateLimited)]);
    assert_eq!(sound(&settings).records, 2);
}

#[test]
fn a_begin_given_up_half_way_ends_as_aborted() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { durability: Durability::Synced, ..settings(directory.path()) };
    run(async {
        let journal = open(&settings);
        for _ in 0..200 {
            let opening = Who::anyone().uses();
            let mut begin = Box::pin(journal.begin(&opening));
            std::future::poll_fn(|context| {
                let _ = begin.as_mut().poll(context);
                std::task::Poll::Ready(())
            })
            .await;
        }
        journal.close().await;
    });
    assert_eq!(sound(&settings).records, 200);
    assert!(all(&settings).iter().all(|record| record.outcome == Outcome::Aborted));
}

#[test]
fn threads_write_one_record_per_use() {
    for (durability, uses) in [(Durability::Written, 2000), (Durability::Synced, 100)] {
        let directory = TempDir::new().unwrap();
        let settings = Settings { durability, segment_size: 100_000, ..settings(directory.path()) };
        let journal = open(&settings);
        let work = |_| {
            let journal = journal.clone();
            std::thread::spawn(move || {
                run(async {
                    let who = Who::anyone();
                    for n in 0..uses {
                        let entry = journal.begin(&who.uses()).await.unwrap();
                        if n % 7 != 0 {
                            entry.close(END);
                        }
                    }
                });
            })
        };
        let threads: Vec<_> = (0..4).map(work).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        sound(&settings);
        run(journal.close());
        let report = sound(&settings);
        assert_eq!(report.records, 4 * uses);
        let mut seen = HashMap::new();
        all(&settings).iter().for_each(|record| *seen.entry(record.id).or_insert(0) += 1);
        assert_eq!(seen.len() as u64, 4 * uses);
        assert!(seen.values().all(|count| *count == 1));
        assert!(all(&settings).iter().all(|record| record.outcome != Outcome::InProgress));
    }
}

#[test]
fn a_tail_torn_anywhere_is_cut_off() {
    let directory = TempDir::new().unwrap();
    let original = settings(directory.path());
    let ids = write(&original, 3);
    let whole = fs::read(&segments(&original)[0]).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for length in last..whole.len() {
        let copy = TempDir::new().unwrap();
        let settings = settings(copy.path());
        fs::create_dir(&settings.path).unwrap();
        fs::write(settings.path.join("0000000001.jsonl"), &whole[..length]).unwrap();
        if length > last {
            assert_ne!(reader(&settings).verify().unwrap().problems, [], "torn at {length}");
        }
        run(open(&settings).close());
        sound(&settings);
        let records = all(&settings);
        assert_eq!(records.iter().map(|record| record.id).collect::<Vec<_>>(), ids);
        assert_eq!(records[2].outcome, Outcome::Aborted, "its outcome was torn off");
        assert_eq!(records[1].outcome, Outcome::Completed);
    }
}

#[test]
fn a_torn_header_is_passed_over() {
    let directory = TempDir::new().unwrap();
    let settings = settings(directory.path());
    write(&settings, 2);
    for torn in ["", "{\"e\":\"head"] {
        fs::write(settings.path.join("0000000002.jsonl"), torn).unwrap();
        run(open(&settings).close());
        assert_eq!(sound(&settings).records, 2);
        assert_eq!(segments(&settings).len(), 1);
    }
}

#[test]
fn any_changed_byte_is_found() {
    let directory = TempDir::new().unwrap();
    let settings = settings(directory.path());
    write(&settings, 20);
    let path = &segments(&settings)[0];
    let whole = fs::read(path).unwrap();
    for at in (0..whole.len()).filter(|at| at % 11 == 0 || whole[*at] == b'\n') {
        for flip in [0x01, 0x20, 0x80] {
            let mut changed = whole.clone();
            changed[at] ^= flip;
            fs::write(path, changed).unwrap();
            assert_ne!(reader(&settings).verify().unwrap().problems, [], "byte {at} ^ {flip:#x}");
        }
    }
    fs::write(path, whole).unwrap();
    sound(&settings);
}

#[test]
fn deleted_and_swapped_and_doubled_lines_are_found() {
    let directory = TempDir::new().unwrap();
    let settings = settings(directory.path());
    write(&settings, 5);
    let path = &segments(&settings)[0];
    let whole = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    for i in 0..lines.len() - 1 {
        let mut variants = vec![lines.clone(); 3];
        variants[0].remove(i);
        variants[1].swap(i, i + 1);
        variants[2].insert(i, lines[i]);
        for variant in variants {
            fs::write(path, variant.concat()).unwrap();
            assert_ne!(reader(&settings).verify().unwrap().problems, [], "line {i}");
        }
    }
}

#[test]
fn a_changed_or_missing_sealed_segment_is_found() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 5_000, ..settings(directory.path()) };
    write(&settings, 100);
    // Seals that were not written in time are written by the next gateway.
    let journal = open(&settings);
    let sealed = || fs::read_to_string(segments(&settings).pop().unwrap()).unwrap().contains("\"e\":\"seal\"");
    until("the seals are written", sealed);
    run(journal.close());
    sound(&settings);
    let second = &segments(&settings)[1];
    let whole = fs::read_to_string(second).unwrap();
    // A forger who makes the checksum fit is found by the seal.
    let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
    let forged = lines.iter().position(|line| line.contains("203.0.113.7")).unwrap();
    let covered = lines[forged].split(",\"crc\"").next().unwrap().replace("203.0.113.7", "203.0.113.8");
    lines[forged] = format!("{covered},\"crc\":\"{:08x}\"}}", crc32fast::hash(covered.as_bytes()));
    fs::write(second, lines.join("\n") + "\n").unwrap();
    let problems = reader(&settings).verify().unwrap().problems;
    assert_eq!(problems.len(), 1);
    assert!(problems[0].what.contains("sealed"), "{problems:?}");
    fs::remove_file(second).unwrap();
    assert_ne!(reader(&settings).verify().unwrap().problems, []);
}

#[test]
fn segments_close_by_size_and_age_and_old_ones_are_removed() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 10_000, retention_size: Some(30_000), ..settings(directory.path()) };
    let journal = open(&settings);
    run(async {
        for _ in 0..200 {
            journal.begin(&Who::anyone().uses()).await.unwrap().close(END);
        }
    });
    // One that is removed while we look has no size.
    let size = || segments(&settings).iter().map(|path| fs::metadata(path).map_or(0, |file| file.len())).sum::<u64>();
    until("old segments are removed", || size() <= 30_000 + 5_000);
    assert!(segments(&settings).len() > 1);
    sound(&settings);
    run(journal.close());
    sound(&settings);

    let aging = Settings { segment_age: Duration::from_millis(300), ..settings };
    let before = segments(&aging).len();
    let journal = open(&Settings { segment_size: 1 << 20, retention_size: None, ..aging.clone() });
    run(async { journal.begin(&Who::anyone().uses()).await.unwrap().close(END) });
    until("a segment closes by its age", || segments(&aging).len() > before);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(segments(&aging).len() <= before + 3, "a segment of nothing but a seal may follow, and then no more");
}

#[test]
fn entries_open_over_a_rotation_hold_their_segment_and_end_as_aborted() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 10_000, retention_size: Some(1), ..settings(directory.path()) };
    let journal = open(&settings);
    let long = Who::anyone().uses();
    run(async {
        std::mem::forget(journal.begin(&long).await.unwrap());
        for _ in 0..100 {
            journal.begin(&Who::anyone().uses()).await.unwrap().close(END);
        }
    });
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(all(&settings)[0].id, long.id, "its segment is held");
    assert!(sound(&settings).open == 1);
    run(journal.close());
    assert_eq!(all(&settings)[0].outcome, Outcome::InProgress);
    assert_ne!(reader(&settings).verify().unwrap().problems, [], "nobody is going to end it");

    let settings = Settings { retention_size: None, ..settings };
    run(open(&settings).close());
    let record = exported(&settings, Filter::default()).into_iter().find(|record| record.id == long.id);
    assert_eq!(record.unwrap().outcome, Outcome::Aborted);
    sound(&settings);
}

#[test]
fn another_gateway_name_begins_another_segment() {
    let directory = TempDir::new().unwrap();
    let first = settings(directory.path());
    write(&first, 1);
    write(&Settings { gateway: "gw-2".into(), ..first.clone() }, 1);
    let gateways: Vec<String> = all(&first).into_iter().map(|record| record.gateway).collect();
    assert_eq!(gateways, ["gw-1", "gw-2"]);
    sound(&first);
}

#[test]
fn what_a_terminal_obeys_is_escaped_in_records() {
    let directory = TempDir::new().unwrap();
    let settings = settings(directory.path());
    let path = "/\u{1b}[2J\u{202e}".to_owned() + &"x".repeat(5000);
    run(async {
        let journal = open(&settings);
        let agent: Vec<u8> = [b"\xff\x1b[31m\r\n".as_slice(), &[b'a'; 400]].concat();
        let opening = Use { user_agent: Some(&agent), path: &path, action: &path, ..Who::anyone().uses() };
        journal.begin(&opening).await.unwrap().close(END);
        journal.close().await;
    });
    let record = all(&settings).remove(0);
    let agent = record.user_agent.unwrap();
    assert!(agent.starts_with("\\xff\\x1b[31m\\x0d\\x0aaaa") && agent.ends_with("a…"), "{agent}");
    assert_eq!(agent.len(), 256 + '…'.len_utf8());
    assert!(record.path.starts_with("/\\x1b[2J\\u{202e}xxx") && record.path.ends_with('…'));
    assert_eq!(record.path.len(), 1024 + '…'.len_utf8());
    assert_eq!(record.action.len(), 256 + '…'.len_utf8());
    let raw = fs::read(&segments(&settings)[0]).unwrap();
    assert!(raw.iter().all(|byte| *byte == b'\n' || !byte.is_ascii_control()));
}

/// Clients put keys into paths and user agents. The journal, and whoever reads it, must not come to know them.
#[test]
fn keys_in_requests_are_not_written() {
    let directory = TempDir::new().unwrap();
    let settings = settings(directory.path());
    let secret = "S".repeat(49);
    let (path, agent) = (format!("/x/sk_live_abcDEF123_{secret}/y"), format!("a sk_live_abcDEF123_{secret}"));
    let action = format!("GET {}sk_live_abcDEF123_{secret}", "x".repeat(230));
    let journal = open(&settings);
    run(async {
        let opening = Use { user_agent: Some(agent.as_bytes()), action: &action, path: &path, ..Who::anyone().uses() };
        journal.begin(&opening).await.unwrap().close(END);
        journal.close().await;
    });
    for segment in segments(&settings) {
        assert!(!fs::read_to_string(segment).unwrap().contains("_S"));
    }
    let listed = reader(&settings).list(&Filter::default(), 1, None).unwrap().records;
    assert_eq!(listed, all(&settings));
    assert_eq!(listed[0].path, "/x/sk_live_abcDEF123_…/y");
    assert_eq!(listed[0].user_agent.as_deref(), Some("a sk_live_abcDEF123_…"));
    assert!(listed[0].action.ends_with("xsk_live_abcDEF123_…"), "the key is found before the text is cut");
}

#[test]
fn attempts_are_recorded_at_a_bounded_rate() {
    let directory = TempDir::new().unwrap();
    let settings = settings(directory.path());
    let metrics = Metrics::new().audit;
    let journal = Journal::open(settings.clone(), metrics.clone()).unwrap();
    let end = UseEnd { outcome: Outcome::Refused(Refusal::Unknown), status: Some(401), ..END };
    let time = clock::now();
    for _ in 0..1000 {
        let stranger = Use { key_id: None, user_id: None, org_id: None, ..Who::anyone().uses_at(time) };
        journal.record_unknown_key(&stranger, end);
    }
    run(journal.close());
    assert_eq!(all(&settings).len(), 10);
    assert_eq!((metrics.written.get(), metrics.suppressed.get()), (10, 990));
    assert_eq!(metrics.backlog.get(), 0);
    sound(&settings);
}

#[test]
fn numbered_uses_are_replayed_from_a_time_on() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 3_000, ..settings(directory.path()) };
    let journal = open(&settings);
    let who = Who::anyone();
    let times: Vec<Micros> = run(async {
        let mut times = Vec::new();
        for number in 0..100 {
            let opening = Use { number: (number % 2 == 0).then_some(number), ..who.uses() };
            let opening = match number % 4 {
                0 | 1 => opening,
                _ => Use { key_id: None, auth_method: AuthMethod::Session, ..opening },
            };
            journal.begin(&opening).await.unwrap().close(END);
            times.push(opening.time);
        }
        times
    });
    for from in [0, 1, 50, 99] {
        let seen = journal.uses_since(times[from]).unwrap();
        for (by, rest) in [(UsedBy::Key(who.key), 0), (UsedBy::Session(who.user), 2)] {
            let numbers: Vec<u64> = seen.iter().filter(|seen| seen.by == by).map(|seen| seen.number).collect();
            let expected: Vec<u64> = (0..100).filter(|n| n % 4 == rest && times[*n as usize] >= times[from]).collect();
            assert_eq!(numbers, expected);
        }
    }
}

#[test]
fn pages_go_back_to_the_oldest() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 7_000, ..settings(directory.path()) };
    let mut ids = write(&settings, 95);
    ids.reverse();
    let mut listed = Vec::new();
    let mut before = None;
    loop {
        let page = reader(&settings).list(&Filter::default(), 10, before).unwrap();
        assert!(page.records.len() <= 10);
        listed.extend(page.records.into_iter().map(|record| (record.id, record.outcome)));
        let Some(next) = page.next else { break };
        before = Some(next.to_string().parse().unwrap());
    }
    assert_eq!(listed, ids.into_iter().map(|id| (id, Outcome::Completed)).collect::<Vec<_>>());
}

#[test]
fn following_gives_each_record_once_when_it_completes() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 5_000, ..settings(directory.path()) };
    let before = write(&settings, 5);
    let journal = open(&settings);
    run(async {
        let long = Who::anyone().uses();
        let entry = journal.begin(&long).await.unwrap();
        let mut follow = reader(&settings).follow(Filter::default(), 3).unwrap();
        let ids = |records: Vec<Record>| records.iter().map(|record| record.id).collect::<Vec<_>>();
        assert_eq!(ids(follow.poll().unwrap()), before[3..], "of the last three, one is not complete");
        let mut expected = Vec::new();
        for _ in 0..50 {
            let opening = Who::anyone().uses();
            journal.begin(&opening).await.unwrap().close(END);
            expected.push(opening.id);
        }
        entry.close(END);
        expected.push(long.id);
        let mut seen = Vec::new();
        until("all have been seen", || {
            seen.extend(ids(follow.poll().unwrap()));
            seen.len() >= expected.len()
        });
        assert_eq!(seen, expected);
        assert_eq!(follow.poll().unwrap(), []);
    });
}

/// Runs this same test in a child process whose files may grow to so many bytes, as if its disk were full then.
fn with_small_disk(test: &str, bytes: u64) {
    let script = "trap '' XFSZ; exec prlimit --fsize=$1:unlimited \"$2\" --exact \"$3\" --nocapture";
    let exe = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", &bytes.to_string()]).arg(exe).arg(test).env("KEYGATE_SMALL_DISK", "1");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

fn give_room() {
    let pid = std::process::id().to_string();
    let status = Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited:unlimited"]).status();
    assert!(status.unwrap().success());
}

#[test]
fn a_full_disk_refuses_and_heals() {
    if std::env::var_os("KEYGATE_SMALL_DISK").is_none() {
        return with_small_disk("journal::a_full_disk_refuses_and_heals", 60_000);
    }
    for durability in [Durability::Written, Durability::Synced] {
        let pid = std::process::id().to_string();
        Command::new("prlimit").args(["--pid", &pid, "--fsize=60000:unlimited"]).status().unwrap();
        let directory = TempDir::new().unwrap();
        let settings = Settings { durability, ..settings(directory.path()) };
        let metrics = Metrics::new().audit;
        let journal = Journal::open(settings.clone(), metrics.clone()).unwrap();
        run(async {
            let who = Who::anyone();
            let mut entries = Vec::new();
            while let Ok(entry) = journal.begin(&who.uses()).await {
                entries.push(entry);
            }
            let begun = entries.len() as u64;
            assert!(!journal.is_available());
            assert!(journal.record(&who.uses(), END).await.is_err());
            entries.drain(..).for_each(|entry| entry.close(END));
            assert!(journal.begin(&who.uses()).await.is_err());
            assert_eq!(metrics.backlog.get(), begun as i64, "the outcomes are kept");
            give_room();
            until("it is ready without traffic", || journal.is_available());
            journal.begin(&who.uses()).await.unwrap().close(END);
            journal.close().await;
            assert_eq!(metrics.written.get(), begun + 1);
            assert_eq!(metrics.refused.get(), 3);
            let records = all(&settings);
            assert_eq!(records.len() as u64, begun + 1, "what was refused is not in it");
            assert!(records.iter().all(|record| record.outcome == Outcome::Completed));
            sound(&settings);
        });
    }
}

#[test]
fn a_full_disk_lets_pass_and_counts_when_configured() {
    if std::env::var_os("KEYGATE_SMALL_DISK").is_none() {
        return with_small_disk("journal::a_full_disk_lets_pass_and_counts_when_configured", 60_000);
    }
    let directory = TempDir::new().unwrap();
    let settings = Settings { on_unavailable: OnUnavailable::Drop, ..settings(directory.path()) };
    let metrics = Metrics::new().audit;
    let journal = Journal::open(settings.clone(), metrics.clone()).unwrap();
    run(async {
        for _ in 0..1000 {
            journal.begin(&Who::anyone().uses()).await.unwrap().close(END);
        }
        give_room();
        journal.begin(&Who::anyone().uses()).await.unwrap().close(END);
        journal.close().await;
    });
    assert!(metrics.dropped.get() > 100);
    assert_eq!(metrics.written.get() + metrics.dropped.get(), 1001);
    assert_eq!(sound(&settings).records, metrics.written.get());
}

/// Uses by a few callers at known times, over several segments, with blocks small enough that the index has many.
struct Many {
    directory: TempDir,
    settings: Settings,
    who: Vec<Who>,
    records: Vec<Record>,
}

fn many() -> Many {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 700_000, ..settings(directory.path()) };
    let who: Vec<Who> = (0..6).map(|_| Who::anyone()).collect();
    let journal = open(&settings);
    run(async {
        let mut open = Vec::new();
        for n in 0..6000_u64 {
            // Callers come and go, so that not every block has every key.
            let who = who[(n / 700 + n % 2) as usize % 6];
            let entry = journal.begin(&who.uses_at(Micros(1_000_000 + n * 1000))).await.unwrap();
            open.push(entry);
            if open.len() > 40 {
                open.swap_remove(n as usize * 7 % 40).close(END);
            }
        }
        drop(open);
        journal.close().await;
    });
    let journal = open(&settings);
    until("the index has caught up", || indexed(&settings.path.join("index.db")) > 10);
    run(journal.close());
    let records = all(&settings);
    assert_eq!(records.len(), 6000);
    Many { directory, settings, who, records }
}

impl Many {
    fn expected(&self, filter: &Filter) -> Vec<Record> {
        let wanted = |record: &&Record| {
            filter.since.is_none_or(|since| record.time >= since)
                && filter.until.is_none_or(|until| record.time < until)
                && (filter.key.is_none() || filter.key == record.key_id)
                && (filter.user.is_none() || filter.user == record.user_id)
                && (filter.org.is_none() || filter.org == record.org_id)
                && filter.id.is_none_or(|id| id == record.id)
                && filter.outcome.is_none_or(|outcome| outcome == record.outcome)
        };
        self.records.iter().filter(wanted).cloned().collect()
    }
}

/// Blocks in an index.
fn indexed(path: &Path) -> i64 {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let database = rusqlite::Connection::open_with_flags(path, flags);
    let count = |database: rusqlite::Connection| database.query_row("SELECT count(*) FROM block", [], |row| row.get(0));
    database.and_then(count).unwrap_or(0)
}

#[test]
fn the_index_changes_no_answer() {
    let many = many();
    let index = many.settings.path.join("index.db");
    assert_eq!(many.records.len(), 6000);
    sound(&many.settings);
    let check = |filter: Filter| {
        let expected = many.expected(&filter);
        assert_eq!(exported(&many.settings, filter), expected);
        let listed = reader(&many.settings).list(&filter, 50, None).unwrap().records;
        assert_eq!(listed, expected.into_iter().rev().take(50).collect::<Vec<_>>());
    };
    let filters = || {
        let who = prop::option::of(0_usize..6);
        (who.clone(), who.clone(), who, prop::option::of(0_u64..7000), prop::option::of(0_u64..7000))
    };
    let check_many = |cases| {
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases));
        let checked = runner.run(&filters(), |(key, user, org, since, until)| {
            let time = |n: Option<u64>| n.map(|n| Micros(1_000_000 + n * 1000));
            check(Filter {
                key: key.map(|i| many.who[i].key),
                user: user.map(|i| many.who[i].user),
                org: org.map(|i| many.who[i].org),
                since: time(since),
                until: time(until),
                ..Filter::default()
            });
            Ok(())
        });
        checked.unwrap();
    };
    check(Filter { id: Some(many.records[4711].id), ..Filter::default() });
    check(Filter { outcome: Some(Outcome::Aborted), ..Filter::default() });
    assert!(indexed(&index) > 10);
    check_many(15);
    fs::remove_file(&index).unwrap();
    check_many(5);
    fs::write(&index, "this is not a database").unwrap();
    check_many(5);
    // It is made anew by the next gateway, and has the same answers.
    let journal = open(&many.settings);
    until("the index is made anew", || indexed(&index) > 10);
    run(journal.close());
    check_many(15);
    drop(many.directory);
}
