//! Usage of all gateways in a range of time: by sums in a file, the same as a naive count over all shipped records.

use std::time::Duration;

use domain::clock::{self, Micros};
use domain::key::KeyId;
use journal::audit::{AuditView, Filter, OrgUsage, Record, UsageRange, UsageSeries, ViewScope, ViewStatus};

use super::fixture::{Event, Recorder};
use journal::shipping::OPEN_AFTER;

use crate::journal::range_usage::check_usage;
use crate::journal::support::Caller;
use crate::support::random::Random;
use crate::support::{Postgresql, until};

const DAY: Duration = Duration::from_secs(86_400);

/// Gateways and what each of them has shipped; the sums are those of the first.
struct Fleet {
    server: Postgresql,
    gateways: Vec<Recorder>,
    shipped: Vec<Vec<Record>>,
    callers: Vec<Caller>,
    random: Random,
}

impl Fleet {
    fn new(seed: u64) -> Self {
        let mut callers: Vec<Caller> = (0..5).map(|_| Caller::random()).collect();
        (2..5).for_each(|caller| callers[caller].org = callers[caller % 2].org);
        let (server, random) = (Postgresql::start(), Random::new(seed));
        let mut fleet = Self { server, gateways: Vec::new(), shipped: Vec::new(), callers, random };
        fleet.add("gateway-0");
        fleet
    }

    /// Adds a gateway, or one of before with an empty disk.
    fn add(&mut self, name: &str) -> usize {
        self.gateways.push(Recorder::new(name));
        self.shipped.push(Vec::new());
        self.gateways.len() - 1
    }

    /// Records uses that begin within this time before now, some of which stay open; they are old enough to be shipped.
    fn record(&mut self, gateway: usize, uses: u64, within: Duration) {
        for _ in 0..uses {
            let back =
                OPEN_AFTER + Duration::from_micros(self.random.below(u64::try_from(within.as_micros()).unwrap()));
            let (caller, kind) = (self.random.index(5), u8::try_from(self.random.below(8)).unwrap());
            self.gateways[gateway].record(&self.callers, Event { caller, time: clock::now().before(back), kind });
        }
    }

    fn end(&mut self, gateway: usize, uses: usize) {
        (0..uses).for_each(|_| self.gateways[gateway].end_one(self.random.index(1000)));
    }

    fn ship(&mut self, gateway: usize) {
        self.gateways[gateway].ship(&self.server);
        self.shipped[gateway] = self.gateways[gateway].export(&Filter::default());
    }

    /// A view that has read nothing yet.
    fn view(&self) -> AuditView {
        self.gateways[0].view(&self.server)
    }

    fn check(&self) {
        self.check_records(|_| true);
    }

    /// Compares the usage of both organizations with that of the shipped records that are `there`.
    fn check_records(&self, there: impl Fn(&Record) -> bool) {
        let (view, now) = (self.view(), clock::now());
        let records: Vec<Record> = self.shipped.iter().flatten().filter(|record| there(record)).cloned().collect();
        let keys: Vec<KeyId> = self.callers.iter().map(|caller| caller.key).collect();
        for caller in &self.callers[..2] {
            let of_org = |range| of_fleet(|| view.org_usage(caller.org, range, now, 100).unwrap());
            let of_key = |key, range| of_fleet(|| view.key_usage(caller.org, key, range, now).unwrap());
            let keys: Vec<KeyId> =
                keys.iter().zip(&self.callers).filter(|(_, of)| of.org == caller.org).map(|(key, _)| *key).collect();
            check_usage(&records, (caller.org, &keys), now, of_org, of_key);
        }
    }
}

/// The usage, once all records are added up.
fn of_fleet<T>(read: impl Fn() -> (T, Option<ViewStatus>)) -> T {
    until("the records of all gateways are added up", || {
        let (usage, status) = read();
        let status = status.expect("all gateways are configured");
        (status.scope == ViewScope::Fleet).then_some(usage)
    })
}

/// Gateways come with new disks, whose records may be from any time; uses end long after they were added up.
#[test]
fn usage_of_all_gateways_is_that_of_their_records() {
    let mut fleet = Fleet::new(1);
    for round in 0..3 {
        let gateway = fleet.add(&format!("gateway-{round}"));
        fleet.record(gateway, 300, DAY * [80, 2, 20][round]);
        fleet.ship(gateway);
        fleet.check();
        // Within what is not settled yet, and in the open uses of all that were added up.
        fleet.record(0, 100, Duration::from_secs(30));
        for gateway in 0..fleet.gateways.len() {
            fleet.end(gateway, 30);
            fleet.ship(gateway);
        }
        fleet.check();
    }
}

/// A gateway that could not ship for some hours ships what it has recorded since.
#[test]
fn records_of_a_gateway_that_was_left_behind_are_added() {
    let mut fleet = Fleet::new(2);
    let [other, behind] = [fleet.add("gateway-1"), fleet.add("gateway-2")];
    fleet.record(other, 300, DAY * 3);
    fleet.record(behind, 100, DAY * 3);
    fleet.ship(other);
    fleet.ship(behind);
    let since = "UPDATE keygate.journals SET complete_until = complete_until - interval '40 hours', \
                 updated_at = updated_at - interval '40 hours' WHERE gateway = 'gateway-2' RETURNING 1";
    assert_eq!(fleet.server.sql(since).len(), 1);
    fleet.check();
    fleet.record(behind, 300, Duration::from_secs(39 * 3600));
    fleet.end(behind, 20);
    fleet.ship(behind);
    fleet.check();
}

/// The database is an older state of itself: records that had been added up are not there any more.
#[test]
fn sums_are_made_anew_when_the_database_has_less() {
    let mut fleet = Fleet::new(3);
    let lost = fleet.add("gateway-1");
    fleet.record(0, 400, DAY * 10);
    fleet.record(lost, 300, DAY * 10);
    fleet.ship(0);
    fleet.ship(lost);
    fleet.check();
    fleet.server.sql("DELETE FROM keygate.records WHERE gateway = 'gateway-1'");
    fleet.server.sql("DELETE FROM keygate.journals WHERE gateway = 'gateway-1'");
    fleet.check_records(|record| record.gateway == "gateway-0");
    // So is a file that is damaged.
    let path = fleet.gateways[0].settings.path.join("rollup.db");
    std::fs::write(&path, b"no database").unwrap();
    fleet.check_records(|record| record.gateway == "gateway-0");
}

/// Days that retention has removed are said to be missing.
#[test]
fn usage_of_removed_days_is_said_to_be_missing() {
    let mut fleet = Fleet::new(4);
    fleet.record(0, 600, DAY * 20);
    fleet.ship(0);
    fleet.check();
    let kept = Micros((clock::now().0 / 86_400_000_000 - 9) * 86_400_000_000);
    let day = kept.to_string()[..10].to_owned();
    fleet.server.sql(&format!("DELETE FROM keygate.records WHERE time < '{day}Z'"));
    fleet.server.sql(&format!("COMMENT ON TABLE keygate.records IS 'All; removed before {day}'"));
    let (view, now, org) = (fleet.view(), clock::now(), fleet.callers[0].org);
    let series = |range: UsageRange| -> UsageSeries {
        of_fleet(|| view.org_usage(org, range, now, 1).map(|(usage, status)| (usage.series, status)).unwrap())
    };
    assert_eq!(series(UsageRange::Days(7)).complete_from, None);
    let OrgUsage { series, .. } = of_fleet(|| view.org_usage(org, UsageRange::Days(30), now, 1).unwrap());
    assert_eq!(series.complete_from, Some(kept));
    let (before, since): (Vec<_>, Vec<_>) = series.periods.iter().partition(|period| period.start < kept);
    assert_eq!(before.iter().map(|period| period.sums.requests + period.sums.refusals).sum::<u64>(), 0);
    assert!(since.iter().filter(|period| period.sums.requests > 0).count() > 8);
    // Nor does the file keep for ever how many records the hours of these days had.
    let file = rusqlite::Connection::open(fleet.gateways[0].settings.path.join("rollup.db")).unwrap();
    let hour = i64::try_from(kept.0 / 3_600_000_000).unwrap();
    let removed = file.query_row("SELECT count(*) FROM records WHERE hour < ?1", [hour], |row| row.get::<_, i64>(0));
    assert_eq!(removed.unwrap(), 0);
}
