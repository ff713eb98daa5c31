//! The sinks beside PostgreSQL, with real sockets and files: each across an outage and a restart, in order, without a
//! loss, and with repeated records and checkpoints that are identical.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use domain::clock::Micros;
use domain::refusal::Refusal;
use journal::audit::{Journal, Outcome, Record, Settings, UseEnd};
use journal::shipping::{self, Destination, ShippedRecords, Shippers, SinkSettings, SinkState};
use platform::metrics::Metrics;
use uuid::Uuid;

use super::checkpoints::checkpoints_of;
use crate::journal::checkpoints::signed;
use crate::journal::support::{Caller, END, all_records, block_on, keep_plain, open_journal};
use crate::support::eventually;

mod files;
mod over_http;
mod syslog;

const LONG: Duration = Duration::from_secs(60);
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A place that can be away.
trait Place {
    fn destination(&self) -> Destination;
    fn set_away(&self, is_away: bool);
    /// Messages in the order of their arrival, with repeated ones.
    fn arrivals(&self) -> Vec<Arrival>;

    fn received(&self) -> Vec<Record> {
        let records = self.arrivals().into_iter().filter_map(|arrival| match arrival {
            Arrival::Record(record) => Some(*record),
            Arrival::Checkpoint(_) => None,
        });
        records.collect()
    }

    /// The checkpoints by size. One that came again must have been the same.
    fn checkpoints(&self) -> BTreeMap<u64, String> {
        let mut checkpoints = BTreeMap::new();
        for arrival in self.arrivals() {
            let Arrival::Checkpoint((size, note)) = arrival else { continue };
            let before = checkpoints.insert(size, note.clone());
            assert!(before.is_none_or(|before| before == note), "a repeated checkpoint is identical");
        }
        checkpoints
    }
}

/// A record or a checkpoint that a place has got.
enum Arrival {
    Record(Box<Record>),
    /// Its size, and its note.
    Checkpoint((u64, String)),
}

/// Reads a line of JSON: a checkpoint has no other member.
fn read_line(line: &[u8]) -> Arrival {
    let value: serde_json::Value = serde_json::from_slice(line).unwrap();
    match value.get("checkpoint") {
        Some(checkpoint) => {
            assert_eq!(value.as_object().unwrap().len(), 1, "{value}");
            Arrival::Checkpoint(read_checkpoint(checkpoint))
        }
        None => Arrival::Record(serde_json::from_value(value).unwrap()),
    }
}

/// Reads a checkpoint, whose fields say what its note says.
fn read_checkpoint(checkpoint: &serde_json::Value) -> (u64, String) {
    let text = |name: &str| checkpoint[name].as_str().unwrap().to_owned();
    let (size, note) = (checkpoint["size"].as_u64().unwrap(), text("note"));
    assert!(note.starts_with(&format!("{}\n{size}\n{}\n\n", text("origin"), text("root"))), "{checkpoint}");
    assert_eq!(text("gateway"), "gw-1");
    assert!(text("time").parse::<Micros>().unwrap() > Micros(1_700_000_000_000_000), "{checkpoint}");
    (size, note)
}

fn start(journal: &Journal, place: &dyn Place) -> Arc<Shippers> {
    let sinks =
        vec![SinkSettings { name: "sink".into(), destination: place.destination(), records: ShippedRecords::All }];
    Shippers::start(journal.tap(), &shipping::Settings { sinks }, &Metrics::new().shipping).unwrap()
}

/// Records uses one after the other, some of them refused.
fn write(journal: &Journal, caller: Caller, count: usize) {
    block_on(async {
        for number in 0..count {
            if number % 10 == 9 {
                let end = UseEnd { outcome: Outcome::Refused(Refusal::Forbidden), status: Some(403), ..END };
                journal.record(&caller.opening(), end).await.unwrap();
            } else {
                journal.begin(&caller.opening()).await.unwrap().close(END);
            }
        }
    });
}

/// First deliveries, in their order. A record that comes again must be the same.
fn distinct(received: &[Record]) -> Vec<Record> {
    let mut first: HashMap<Uuid, &Record> = HashMap::new();
    let mut order = Vec::new();
    for record in received {
        match first.insert(record.id, record) {
            None => order.push(record.clone()),
            Some(before) => assert_eq!(before, record, "a repeated record is identical"),
        }
    }
    order
}

/// Checks the sink against the journal: every record, and in the order in which uses ended.
fn assert_complete(settings: &Settings, place: &dyn Place) {
    let received = distinct(&place.received());
    let by_id =
        |records: &[Record]| records.iter().map(|record| (record.id, record.clone())).collect::<BTreeMap<_, _>>();
    let journal = all_records(settings);
    assert_eq!(by_id(&received), by_id(&journal));
    assert_eq!(place.checkpoints(), checkpoints_of(settings), "each checkpoint of the journal, and no other");
    // A use that was refused ends where it began; the outcomes of the others follow in the order of their beginnings.
    for is_refused in [true, false] {
        let ids = |records: &[Record]| {
            let of_kind = records.iter().filter(|record| record.outcome.is_refusal() == is_refused);
            of_kind.map(|record| record.id).collect::<Vec<Uuid>>()
        };
        assert_eq!(ids(&received), ids(&journal));
    }
}

fn ships_across_an_outage_and_a_restart(place: &dyn Place) {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings { segment_size: 50_000, ..signed(directory.path()).0 };
    keep_plain(&settings);
    let caller = Caller::random();
    let received = || distinct(&place.received()).len();
    // Records that are in the journal already are shipped, too.
    let journal = open_journal(&settings);
    write(&journal, caller, 150);
    let shippers = start(&journal, place);
    eventually("the first records have come", || received() == 150);

    place.set_away(true);
    write(&journal, caller, 100);
    eventually("the sink fails", || shippers.reports()[0].state == SinkState::Failing);
    assert!(shippers.reports()[0].error.is_some() && shippers.reports()[0].lag_records > 0);
    write(&journal, caller, 100);
    place.set_away(false);
    write(&journal, caller, 50);
    eventually("all records have come after the outage", || received() == 400);
    eventually("the sink has caught up", || shippers.reports()[0].state == SinkState::CaughtUp);

    // A restart while the sink is away; what was not shipped is, by the next start.
    place.set_away(true);
    write(&journal, caller, 60);
    block_on(journal.close());
    shippers.finish(Duration::from_secs(5));
    drop(shippers);
    let journal = open_journal(&settings);
    let shippers = start(&journal, place);
    write(&journal, caller, 40);
    place.set_away(false);
    eventually("all records have come after the restart", || received() == 500);
    block_on(journal.close());
    shippers.finish(LONG);
    assert_complete(&settings, place);

    // A start after that goes on from the position.
    let all = place.received().len();
    let journal = open_journal(&settings);
    let shippers = start(&journal, place);
    block_on(journal.close());
    shippers.finish(LONG);
    assert_eq!(place.received().len(), all, "nothing is sent again");
}

fn read_lines(text: &[u8]) -> Vec<Arrival> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(read_line).collect()
}
