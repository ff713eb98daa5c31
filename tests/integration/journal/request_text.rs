//! Text of requests in records, and attempts with unknown keys.

use std::fs;

use domain::clock;
use domain::refusal::Refusal;
use journal::audit::{Filter, Journal, Outcome, Use, UseEnd};
use platform::metrics::Metrics;

use super::support::{
    Caller, END, all_records, assert_intact, block_on, new_directory, open_journal, open_reader, segment_files,
};

#[test]
fn control_characters_are_escaped_in_records() {
    let (_directory, settings) = new_directory();
    let path = "/\u{1b}[2J\u{202e}".to_owned() + &"x".repeat(5000);
    block_on(async {
        let journal = open_journal(&settings);
        let agent: Vec<u8> = [b"\xff\x1b[31m\r\n\t".as_slice(), &[b'a'; 400]].concat();
        let opening = Use { user_agent: Some(&agent), path: &path, action: &path, ..Caller::random().opening() };
        journal.begin(&opening).await.unwrap().close(END);
        journal.close().await;
    });
    let record = all_records(&settings).remove(0);
    let agent = record.user_agent.unwrap();
    assert!(agent.starts_with("\\xff\\x1b[31m\\x0d\\x0a\\x09aaa") && agent.ends_with("a…"), "{agent}");
    assert_eq!(agent.len(), 256 + '…'.len_utf8());
    assert!(record.path.starts_with("/\\x1b[2J\\u{202e}xxx") && record.path.ends_with('…'));
    assert_eq!(record.path.len(), 1024 + '…'.len_utf8());
    assert_eq!(record.action.len(), 256 + '…'.len_utf8());
    let raw = fs::read(&segment_files(&settings)[0]).unwrap();
    // Of control characters there are only those that separate lines and fields.
    assert!(raw.iter().all(|byte| matches!(byte, b'\n' | b'\t') || !byte.is_ascii_control()));
    let tabs: Vec<usize> =
        raw.split(|byte| *byte == b'\n').map(|line| line.iter().filter(|b| **b == b'\t').count()).collect();
    assert_eq!(tabs, [0, 15, 8, 0], "a header, a use and an outcome");
}

/// Clients put keys into paths and user agents. Their secrets must not get into the journal.
#[test]
fn keys_in_requests_are_not_written() {
    let (_directory, settings) = new_directory();
    let secret = "S".repeat(49);
    let (path, agent) = (format!("/x/sk_live_abcDEF123_{secret}/y"), format!("a sk_live_abcDEF123_{secret}"));
    let action = format!("GET {}sk_live_abcDEF123_{secret}", "x".repeat(230));
    let journal = open_journal(&settings);
    block_on(async {
        let opening =
            Use { user_agent: Some(agent.as_bytes()), action: &action, path: &path, ..Caller::random().opening() };
        journal.begin(&opening).await.unwrap().close(END);
        journal.close().await;
    });
    for segment in segment_files(&settings) {
        assert!(!fs::read_to_string(segment).unwrap().contains("sk_live_abcDEF123_S"));
    }
    let listed = open_reader(&settings).list(&Filter::default(), 1, None).unwrap().records;
    assert_eq!(listed, all_records(&settings));
    assert_eq!(listed[0].path, "/x/sk_live_abcDEF123_…/y");
    assert_eq!(listed[0].user_agent.as_deref(), Some("a sk_live_abcDEF123_…"));
    assert!(listed[0].action.ends_with("xsk_live_abcDEF123_…"), "keys are removed before the text is cut");
}

#[test]
fn attempts_with_unknown_keys_are_recorded_at_a_bounded_rate() {
    let (_directory, settings) = new_directory();
    let metrics = Metrics::new().audit;
    let journal = Journal::open(settings.clone(), metrics.clone()).unwrap();
    let end = UseEnd { outcome: Outcome::Refused(Refusal::Unknown), status: Some(401), ..END };
    let time = clock::now();
    for _ in 0..1000 {
        let stranger = Use { key_id: None, user_id: None, org_id: None, ..Caller::random().opening_at(time) };
        journal.record_unknown_key(&stranger, end);
    }
    block_on(journal.close());
    assert_eq!(all_records(&settings).len(), 10);
    assert_eq!((metrics.written.get(), metrics.suppressed.get()), (10, 990));
    assert_eq!(metrics.backlog.get(), 0);
    assert_intact(&settings);
}
