//! Changes by programs: each record has the management token that made it, wherever it is read from.

use domain::management_token::TokenId;
use journal::audit::{Filter, Record, Settings};
use tempfile::TempDir;

use super::support::{
    Caller, END, all_records, assert_intact, block_on, change_by_token, change_of, export_records, open_journal,
    open_reader, segment_files, segment_number, settings,
};
use crate::support::eventually;

fn token(id: &str) -> TokenId {
    id.parse().unwrap()
}

/// The changes with a token, as a list and as an export have them.
fn changes_with(settings: &Settings, token: TokenId) -> Vec<Record> {
    let filter = Filter { token: Some(token), ..Filter::default() };
    let listed = open_reader(settings).list(&filter, usize::MAX, None).unwrap().records;
    let exported = export_records(settings, filter);
    assert!(listed.iter().rev().eq(&exported), "{listed:?} {exported:?}");
    listed
}

#[test]
fn change_is_found_by_its_token_also_when_retention_has_carried_it() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 2_000, retention_size: Some(20_000), ..settings(directory.path()) };
    let (journal, caller) = (open_journal(&settings), Caller::random());
    let [held, many, unused] = ["heldHELD01", "manyMANY02", "unused0003"].map(token);
    let held_change = change_by_token(caller.opening(), held);
    let entry = block_on(journal.begin_change(&held_change, false)).unwrap();
    eventually("the segment with the beginning is removed", || {
        for _ in 0..20 {
            block_on(journal.begin_change(&change_by_token(caller.opening(), many), false)).unwrap().close(END);
            block_on(journal.begin_change(&change_of(caller.opening()), false)).unwrap().close(END);
        }
        segment_number(&segment_files(&settings)[0]) > 3
    });
    entry.close(END);
    block_on(journal.close());
    drop(journal);

    let found = changes_with(&settings, held);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].id, found[0].token_id), (held_change.opening.id, Some(held)));
    let json = serde_json::to_value(&found[0]).unwrap();
    assert_eq!(
        (&json["auth_method"], &json["token_id"], &json["method"]),
        (&"token".into(), &"heldHELD01".into(), &"ADMIN".into())
    );
    let all = all_records(&settings);
    let by_many = all.iter().filter(|record| record.token_id == Some(many)).count();
    assert!(by_many > 0);
    assert_eq!(changes_with(&settings, many).len(), by_many);
    assert!(changes_with(&settings, unused).is_empty());
    let by_people = all.iter().find(|record| record.token_id.is_none()).unwrap();
    assert!(!serde_json::to_string(by_people).unwrap().contains("token"), "no field of a change by a person");
    assert_intact(&settings);
}
