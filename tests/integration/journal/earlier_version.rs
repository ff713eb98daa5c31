//! Journals of earlier versions, whose lines are JSON: they are read, continued and verified like any other.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use domain::clock::{self, Micros};
use domain::identity::AuthMethod;
use journal::audit::{Filter, Outcome, Record, Settings};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use uuid::Uuid;

use super::mixed_journal::{MixedJournal, REFUSALS, open_index};
use super::support::{
    all_records, assert_intact, block_on, export_records, index_files, keep_plain, open_journal, open_reader,
    remove_index, segment_files, segment_number, settings, wait_until_indexed, write_uses,
};
use crate::support::eventually;

/// Rewrites the lines of all segments as an earlier version would have written them, and the digests in their seals. Beginning
/// with the lines of the format, not with the code that reads them, this also holds the code to the documented format.
pub fn rewrite_as_earlier_version(settings: &Settings) {
    let mut converter = Converter::default();
    for path in segment_files(settings) {
        let text = fs::read_to_string(&path).unwrap();
        let old: String = text.lines().map(|line| converter.convert(line)).collect();
        fs::write(&path, &old).unwrap();
        converter.digests.push((digest(&text), digest(&old)));
    }
}

#[derive(Default)]
struct Converter {
    /// Fields that the outcome of a use repeats, by its id.
    repeated: HashMap<Uuid, Map<String, Value>>,
    /// Digests of the segments before this one, as they were and as they are.
    digests: Vec<(String, String)>,
}

impl Converter {
    fn convert(&mut self, line: &str) -> String {
        let mut body = match line.rsplit_once(",\"crc\"") {
            Some((json, _)) => json.to_owned(),
            None => self.convert_compact(line),
        };
        for (sealed, now) in &self.digests {
            body = body.replace(sealed, now);
        }
        format!("{body},\"crc\":\"{:08x}\"}}\n", crc32fast::hash(body.as_bytes()))
    }

    fn convert_compact(&mut self, line: &str) -> String {
        let fields: Vec<&str> = line.split('\t').collect();
        let (kind, id, n) = (fields[0], Uuid::from_bytes(bytes(fields[1])), fields[fields.len() - 2]);
        let mut event = Map::new();
        let rest = match kind {
            "o" => {
                event.extend(self.repeated.remove(&id).unwrap_or_default());
                &fields[2..fields.len() - 2]
            }
            _ => {
                event.extend(use_fields(id, &fields));
                let ids = ["key_id", "user_id", "org_id"];
                let repeated = event.iter().filter(|(name, _)| ids.contains(&name.as_str()));
                self.repeated.insert(id, repeated.map(|(name, value)| (name.clone(), value.clone())).collect());
                &fields[14..fields.len() - 2]
            }
        };
        if let [outcome, numbers @ ..] = rest {
            event.insert("outcome".into(), json!(outcome));
            let names = ["status", "duration_us", "request_bytes", "response_bytes"];
            names.iter().zip(numbers).for_each(|(name, number)| insert_number(&mut event, name, number));
        }
        let kind = match kind {
            "u" => "use",
            "o" => "outcome",
            _ => "record",
        };
        let others = serde_json::to_string(&event).unwrap();
        format!("{{\"e\":\"{kind}\",\"id\":\"{id}\",{},\"n\":{n}", &others[1..others.len() - 1])
    }
}

fn use_fields(id: Uuid, fields: &[&str]) -> Map<String, Value> {
    let mut event = Map::new();
    let (seconds, nanos) = id.get_timestamp().unwrap().to_unix();
    let since: i64 = fields[2].parse().unwrap();
    let time = (seconds * 1_000_000 + u64::from(nanos) / 1000).wrapping_add(since.cast_unsigned());
    event.insert("time".into(), json!(time));
    insert_number(&mut event, "number", fields[3]);
    if fields[4] == "p" {
        event.insert("provisional".into(), json!(true));
    }
    let methods = HashMap::from([("k", "api-key"), ("s", "session"), ("a", "admin-socket")]);
    event.insert("auth_method".into(), json!(methods[fields[5]]));
    let prefixed = |prefix: &str, text: &str| format!("{prefix}{}", Uuid::from_bytes(bytes(text)).simple());
    for (name, text) in [("key_id", fields[6]), ("ip", fields[9]), ("user_agent", fields[10])] {
        if !text.is_empty() {
            event.insert(name.into(), json!(if text == "\\" { "" } else { text }));
        }
    }
    for (name, prefix, text) in [("user_id", "usr_", fields[7]), ("org_id", "org_", fields[8])] {
        if !text.is_empty() {
            event.insert(name.into(), json!(prefixed(prefix, text)));
        }
    }
    for (name, text) in [("action", fields[11]), ("method", fields[12]), ("path", fields[13])] {
        event.insert(name.into(), json!(text));
    }
    event
}

fn insert_number(event: &mut Map<String, Value>, name: &str, number: &str) {
    if !number.is_empty() {
        event.insert(name.into(), json!(number.parse::<u64>().unwrap()));
    }
}

fn bytes(id: &str) -> [u8; 16] {
    BASE64_URL_SAFE_NO_PAD.decode(id).unwrap().try_into().unwrap()
}

fn digest(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn has_json_use(path: &Path) -> bool {
    fs::read_to_string(path).unwrap().contains("{\"e\":\"use\"")
}

/// Every reader gives the same from the lines of an earlier version, with an index and without one.
#[test]
fn journal_of_an_earlier_version_is_read_like_any_other() {
    let mixed = MixedJournal::complete_plain();
    let settings = &mixed.settings;
    let filters = || {
        let key = mixed.caller[2].key;
        let refused = Filter { refused: Some(true), ..Filter::default() };
        [Filter::default(), Filter { key: Some(key), ..Filter::default() }, refused]
    };
    let read = || -> Vec<Vec<Record>> { filters().iter().map(|filter| export_records(settings, *filter)).collect() };
    let before = (read(), assert_intact(settings));
    rewrite_as_earlier_version(settings);
    assert!(segment_files(settings).iter().all(|path| has_json_use(path)));
    assert_eq!((read(), assert_intact(settings)), before);
    let newest = open_reader(settings).list(&Filter::default(), 100, None).unwrap().records;
    assert_eq!(newest, before.0[0].iter().rev().take(100).cloned().collect::<Vec<_>>());
    mixed.check();
    mixed.index();
    mixed.check();
    assert_eq!(read(), before.0);
    let journal = open_journal(settings);
    let numbered = journal.uses_since(Micros(0)).unwrap();
    block_on(journal.close());
    // Neither attempts with unknown keys nor changes through the admin socket are replayed.
    let is_replayed = |record: &&Record| match record.auth_method {
        AuthMethod::ApiKey => record.key_id.is_some(),
        AuthMethod::Session => record.user_id.is_some(),
        AuthMethod::AdminSocket => false,
    };
    assert_eq!(numbered.len(), before.0[0].iter().filter(is_replayed).count());
}

/// An earlier version had one index for all segments, in `index.db`, with rows for each block of a segment. Nothing checks them:
/// readers read the segments instead, and the next start makes the files of today.
#[test]
fn rows_of_an_earlier_version_give_way_to_files() {
    let mixed = MixedJournal::complete_plain();
    let settings = &mixed.settings;
    let records = all_records(settings);
    // The usage in it is that of today: taken from a copy of the journal.
    let copy = TempDir::new().unwrap();
    let copied = Settings { path: copy.path().join("audit"), retention_size: Some(1), ..settings.clone() };
    keep_plain(&copied);
    for path in segment_files(settings) {
        fs::copy(&path, copied.path.join(path.file_name().unwrap())).unwrap();
    }
    let journal = open_journal(&copied);
    eventually("the usage is added up", || segment_files(&copied).len() <= 1);
    block_on(journal.close());
    remove_index(settings);
    fs::copy(copied.path.join("index.db"), settings.path.join("index.db")).unwrap();
    let closed = segment_files(settings).len() - 1;
    write_block_rows(settings, &segment_files(settings)[..closed], &records);
    // Rows that would hide every record.
    rusqlite::Connection::open(settings.path.join("index.db"))
        .unwrap()
        .execute("UPDATE block SET latest = 0", [])
        .unwrap();
    let key = Filter { key: Some(mixed.caller[2].key), ..Filter::default() };
    let refused = Filter { refused: Some(true), ..Filter::default() };
    let check = |is_refused: &dyn Fn(&Record) -> bool| {
        mixed.check();
        assert_intact(settings);
        assert!(all_records(settings) == records);
        assert!(export_records(settings, key).iter().eq(records.iter().filter(|record| record.key_id == key.key)));
        assert!(export_records(settings, refused).iter().eq(records.iter().filter(|record| is_refused(record))));
    };
    let expected: Vec<Uuid> = {
        let all = fs::read(settings.path.join("index.db")).unwrap();
        fs::remove_file(settings.path.join("index.db")).unwrap();
        let ids = export_records(settings, refused).iter().map(|record| record.id).collect();
        fs::write(settings.path.join("index.db"), all).unwrap();
        ids
    };
    let is_refused = |record: &Record| expected.contains(&record.id);
    assert!(expected.len() > 100);
    check(&is_refused);
    let journal = open_journal(settings);
    wait_until_indexed(settings);
    block_on(journal.close());
    check(&is_refused);
    assert_eq!(index_files(settings).len(), closed + 1);
    let journal = open_journal(&Settings { retention_size: Some(1), ..settings.clone() });
    eventually("old segments are removed", || segment_files(settings).len() <= 1);
    block_on(journal.close());
    let rows = |table: &str| -> i64 {
        let count = format!("SELECT count(*) FROM {table}");
        open_index(settings).unwrap().query_row(&count, [], |row| row.get(0)).unwrap()
    };
    assert_eq!((rows("block"), rows("member")), (0, 0));
}

/// Writes the rows of blocks that the last version had for these segments, each smaller than a block.
fn write_block_rows(settings: &Settings, segments: &[PathBuf], records: &[Record]) {
    let records: HashMap<Uuid, &Record> = records.iter().map(|record| (record.id, record)).collect();
    let mut index = rusqlite::Connection::open(settings.path.join("index.db")).unwrap();
    let rows = index.transaction().unwrap();
    for path in segments {
        let (number, text) = (segment_number(path).cast_signed(), fs::read_to_string(path).unwrap());
        let uses = text.lines().filter(|line| line.starts_with(['u', 'r']));
        let ids = uses.map(|line| Uuid::from_bytes(bytes(line.split('\t').nth(1).unwrap())));
        let found: Vec<&Record> = ids.map(|id| records[&id]).collect();
        let times = || found.iter().map(|record| record.time.0.cast_signed());
        let block = (number, 0, text.len() as i64, times().min(), times().max());
        rows.execute("INSERT INTO block (segment, start, end, earliest, latest) VALUES (?1, ?2, ?3, ?4, ?5)", block)
            .unwrap();
        let block = rows.last_insert_rowid();
        for record in found {
            let ids = [
                record.key_id.map(|id| id.to_string()),
                record.user_id.map(|id| id.to_string()),
                record.org_id.map(|id| id.to_string()),
            ];
            let refused = i64::from(REFUSALS.contains(&record.outcome));
            for id in ids.into_iter().flatten() {
                let row = "INSERT INTO member (id, block, refused) VALUES (?1, ?2, ?3)
                    ON CONFLICT DO UPDATE SET refused = max(refused, excluded.refused)";
                rows.execute(row, (id, block, refused)).unwrap();
            }
        }
    }
    rows.commit().unwrap();
}

/// A use that an earlier version left open is closed in the new form, in the same segment.
#[test]
fn journal_of_an_earlier_version_is_continued() {
    let directory = TempDir::new().unwrap();
    let settings = settings(directory.path());
    write_uses(&settings, 3);
    rewrite_as_earlier_version(&settings);
    // As a kill leaves it: without the last outcome.
    let path = &segment_files(&settings)[0];
    let text = fs::read_to_string(path).unwrap();
    let end = text[..text.len() - 1].rfind('\n').unwrap() + 1;
    fs::write(path, &text[..end + 20]).unwrap();
    let before = clock::now();
    write_uses(&settings, 2);
    assert_eq!(segment_files(&settings).len(), 1);
    assert_eq!(assert_intact(&settings).records, 5);
    let outcomes: Vec<Outcome> = all_records(&settings).iter().map(|record| record.outcome).collect();
    use Outcome::{Aborted, Completed};
    assert_eq!(outcomes, [Completed, Completed, Aborted, Completed, Completed]);
    let late = export_records(&settings, Filter { since: Some(before), ..Filter::default() });
    assert_eq!(late.len(), 2);
}
