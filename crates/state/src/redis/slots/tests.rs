//! The table of states and events in the module's documentation, row by row.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::lease::{LeaseState, Permit};
use super::{ActiveSet, PendingReport, Portion, SlotLease, SlotSubject};
use crate::redis::record_names::RecordNames;
use domain::clock::Micros;
use domain::key::OrgTag;

/// State, slots held, releases waiting to be reported, and generation of a lease.
type View = (LeaseState, u32, u32, u64);

const LIMIT: u32 = 100;

struct Fixture {
    lease: Arc<SlotLease>,
    active: Arc<ActiveSet<SlotLease>>,
    failovers: Arc<AtomicU64>,
}

impl Fixture {
    fn new() -> Self {
        let (active, failovers) = (Arc::new(ActiveSet::new()), Arc::<AtomicU64>::default());
        let subject = SlotSubject::Org(OrgTag::generate().unwrap());
        let lease = SlotLease::new(&RecordNames::new("p"), subject, 1, Arc::clone(&active), Arc::clone(&failovers));
        Self { lease: Arc::new(lease), active, failovers }
    }

    fn begin(&self) -> PendingReport {
        PendingReport::begin(&self.lease, Instant::now()).expect("the lease is not in doubt")
    }

    /// Acquires a slot, with which `taken` slots of the organization are taken.
    fn acquire(&self, taken: u32) -> Permit {
        self.begin().acquired(taken, LIMIT).expect("no resync has begun")
    }

    fn fail_over(&self) {
        self.failovers.fetch_add(1, Ordering::AcqRel);
    }

    fn resync(&self, deleted: bool) {
        let resync = self.lease.begin_resync(Instant::now()).expect("the lease is in doubt");
        self.lease.finish_resync(resync, deleted);
    }

    fn view(&self) -> View {
        let data = self.lease.data();
        (data.state, data.held, data.released, data.generation)
    }
}

#[test]
fn first_admission_registers_the_lease_and_activates_it() {
    let fixture = Fixture::new();
    assert!(fixture.begin().may_register);
    let fixture = Fixture::new();
    let _permit = fixture.acquire(1);
    assert_eq!(fixture.view(), (LeaseState::Registered, 1, 0, 1));
    assert_eq!(fixture.active.all().len(), 1);
    assert!(!fixture.begin().may_register);
}

#[test]
fn release_is_reported_once() {
    let fixture = Fixture::new();
    let first = fixture.acquire(1);
    let second = fixture.acquire(2);
    drop(first);
    assert_eq!(fixture.view(), (LeaseState::Registered, 1, 1, 1));
    let report = fixture.begin();
    assert_eq!((report.released, fixture.view().2), (1, 0));
    report.acknowledged(false);
    assert_eq!(fixture.view(), (LeaseState::Registered, 1, 0, 1));
    drop(second);
}

#[test]
fn release_that_was_not_sent_is_reported_again() {
    let fixture = Fixture::new();
    drop(fixture.acquire(1));
    fixture.begin().not_sent();
    assert_eq!(fixture.view(), (LeaseState::Registered, 0, 1, 1));
    assert_eq!(fixture.begin().released, 1);
}

#[test]
fn deleted_entry_begins_a_generation() {
    let fixture = Fixture::new();
    drop(fixture.acquire(1));
    fixture.begin().acknowledged(true);
    assert_eq!(fixture.view(), (LeaseState::Unregistered, 0, 0, 2));
}

#[test]
fn lost_reply_puts_the_lease_in_doubt_until_a_resync() {
    let fixture = Fixture::new();
    let permit = fixture.acquire(1);
    drop(fixture.begin());
    assert_eq!(fixture.view(), (LeaseState::InDoubt, 1, 0, 1));
    assert!(PendingReport::begin(&fixture.lease, Instant::now()).is_none(), "nothing is acquired in doubt");
    fixture.resync(false);
    assert_eq!(fixture.view(), (LeaseState::Registered, 1, 0, 2));
    drop(permit);
}

#[test]
fn missing_entry_puts_the_lease_in_doubt() {
    let fixture = Fixture::new();
    fixture.begin().unregistered();
    assert_eq!(fixture.view(), (LeaseState::InDoubt, 0, 0, 1));
    fixture.resync(true);
    assert_eq!(fixture.view(), (LeaseState::Unregistered, 0, 0, 3), "one by the resync, one by the deletion");
}

#[test]
fn resync_covers_waiting_and_unsent_releases() {
    let fixture = Fixture::new();
    let first = fixture.acquire(1);
    let second = fixture.acquire(2);
    let third = fixture.acquire(3);
    drop(first);
    let unsent = fixture.begin();
    drop(second);
    drop(fixture.begin());
    unsent.not_sent();
    let resync = fixture.lease.begin_resync(Instant::now()).unwrap();
    assert_eq!((resync.held, fixture.view().2), (1, 0));
    fixture.lease.finish_resync(resync, false);
    assert_eq!(fixture.view(), (LeaseState::Registered, 1, 0, 2));
    drop(third);
}

#[test]
fn admission_of_an_earlier_generation_is_fenced() {
    let fixture = Fixture::new();
    let early = fixture.begin();
    let lost = fixture.begin();
    drop(lost);
    fixture.resync(false);
    assert!(early.acquired(1, LIMIT).is_none());
    assert_eq!(fixture.view(), (LeaseState::Registered, 0, 0, 2));
}

#[test]
fn lost_reply_of_an_earlier_generation_is_ignored() {
    let fixture = Fixture::new();
    let early = fixture.begin();
    let lost = fixture.begin();
    drop(lost);
    fixture.resync(false);
    drop(early);
    assert_eq!(fixture.view(), (LeaseState::Registered, 0, 0, 2));
}

#[test]
fn admission_in_doubt_is_counted_by_the_resync_that_follows() {
    let fixture = Fixture::new();
    let late = fixture.begin();
    let lost = fixture.begin();
    drop(lost);
    let permit = late.acquired(1, LIMIT).expect("no resync has begun");
    assert_eq!(fixture.view(), (LeaseState::InDoubt, 1, 0, 1));
    assert_eq!(fixture.lease.begin_resync(Instant::now()).unwrap().held, 1);
    drop(permit);
}

#[test]
fn doubt_during_a_resync_requires_another_one() {
    let fixture = Fixture::new();
    drop(fixture.begin());
    let resync = fixture.lease.begin_resync(Instant::now()).unwrap();
    let permit = fixture.lease.acquire_in_outage(Portion::new(1, 0), LIMIT).expect("nothing is held");
    fixture.lease.finish_resync(resync, false);
    assert_eq!(fixture.view(), (LeaseState::InDoubt, 1, 0, 2));
    fixture.resync(false);
    assert_eq!(fixture.view(), (LeaseState::Registered, 1, 0, 3));
    drop(permit);
}

#[test]
fn failover_puts_only_a_registered_lease_in_doubt() {
    let fixture = Fixture::new();
    fixture.fail_over();
    // There is no entry to lose.
    fixture.begin().not_sent();
    assert_eq!(fixture.view(), (LeaseState::Unregistered, 0, 0, 1));
    let permit = fixture.acquire(1);
    fixture.fail_over();
    assert!(PendingReport::begin(&fixture.lease, Instant::now()).is_none());
    assert_eq!(fixture.view(), (LeaseState::InDoubt, 1, 0, 1));
    drop(permit);
}

#[test]
fn offline_admission_stays_within_the_share() {
    let fixture = Fixture::new();
    let permit = fixture.lease.acquire_in_outage(Portion::new(1, 0), LIMIT).expect("nothing is held");
    assert!(fixture.lease.acquire_in_outage(Portion::new(1, 0), LIMIT).is_none());
    assert_eq!(fixture.view(), (LeaseState::InDoubt, 1, 0, 1));
    drop(permit);
}

#[test]
fn slots_of_an_outage_are_those_held_and_a_portion_of_the_free_ones() {
    let fixture = Fixture::new();
    let held = fixture.acquire(90);
    let portion = Portion::new(3, 1);
    let fill = |lease: &Arc<SlotLease>, portion| -> Vec<Permit> {
        std::iter::from_fn(|| lease.acquire_in_outage(portion, LIMIT)).collect()
    };
    let mut offline = fill(&fixture.lease, portion);
    assert_eq!(offline.len(), 3, "of ten free slots");
    // One of them is given back, and can be used again; an answer that does not count them yet gives no others.
    offline.pop();
    fixture.lease.note_answer(80);
    assert_eq!(fill(&fixture.lease, portion).len(), 1);
    drop(offline);
    fixture.resync(false);
    fixture.lease.note_answer(LIMIT);
    assert!(fixture.lease.acquire_in_outage(portion, LIMIT).is_none(), "the one slot of all belongs to another");
    fixture.lease.note_answer(LIMIT);
    assert!(Fixture::new().lease.acquire_in_outage(Portion::new(3, 1), LIMIT).is_none(), "nothing is known");
    let first = Fixture::new().lease;
    assert_eq!(fill(&first, Portion::new(3, 0)).len(), 1);
    drop(held);
}

/// Redis comes back and is lost again, and again, before the slots of the first outage are resynced.
#[test]
fn second_outage_within_a_lease_gives_no_slots_twice() {
    let fixture = Fixture::new();
    let portion = Portion::new(3, 1);
    let fill = || -> Vec<Permit> { std::iter::from_fn(|| fixture.lease.acquire_in_outage(portion, LIMIT)).collect() };
    let held = fixture.acquire(91);
    fixture.lease.outage_since(None, Micros(1));
    let mut offline = fill();
    assert_eq!(offline.len(), 3, "of nine free slots");
    for outage in 2..5 {
        // An answer to another gateway's request, or to a late one of this: it does not count the three.
        fixture.lease.note_answer(91);
        fixture.lease.outage_since(None, Micros(outage));
        assert!(fixture.lease.acquire_in_outage(portion, LIMIT).is_none(), "outage {outage}");
        // A slot that is given back is used again, and no more than that.
        offline.pop();
        let again = fill();
        assert_eq!(again.len(), 1, "outage {outage}");
        offline.extend(again);
    }
    // Resynced, Redis counts them: the next outage gives a portion of what is left.
    fixture.resync(false);
    fixture.lease.note_answer(94);
    fixture.lease.outage_since(None, Micros(9));
    offline.extend(fill());
    assert_eq!(fixture.view().1, 1 + 3 + 2, "of six free slots");
    drop((held, offline));
}

#[test]
fn outage_begins_when_the_connection_was_lost_or_a_request_failed() {
    let lease = Fixture::new().lease;
    assert_eq!(lease.outage_since(None, Micros(5)), Micros(5));
    assert_eq!(lease.outage_since(None, Micros(9)), Micros(5));
    assert_eq!(lease.outage_since(Some(Micros(7)), Micros(9)), Micros(7), "Redis was there until then");
    assert_eq!(lease.outage_since(Some(Micros(6)), Micros(9)), Micros(7));
    lease.note_answer(0);
    assert_eq!(lease.outage_since(Some(Micros(8)), Micros(9)), Micros(8));
}

#[test]
fn denial_may_be_stale_while_releases_are_unreported() {
    let fixture = Fixture::new();
    assert!(!fixture.begin().denied(LIMIT));
    let first = fixture.acquire(99);
    let second = fixture.acquire(100);
    drop(first);
    let release = fixture.begin();
    let overtaking = fixture.begin();
    assert!(overtaking.denied(LIMIT), "the release is still in flight");
    release.acknowledged(false);
    let denied = fixture.begin();
    drop(second);
    assert!(denied.denied(LIMIT), "another slot was released meanwhile");
}

#[test]
fn early_visit_is_requested_only_near_the_limit() {
    let fixture = Fixture::new();
    drop(fixture.acquire(49));
    assert!(!fixture.active.take_early_visit());
    drop(fixture.acquire(50));
    assert!(fixture.active.take_early_visit());
    assert!(!fixture.active.take_early_visit(), "once");
}
