//! Counters of budgets in an export: a budget goes on in the middle of its period, on any state.

use domain::budget::{BudgetSubject, MAX_UNITS};
use domain::clock::{self, Micros};
use domain::identity::{OrgId, UserId};
use domain::key::{KeyDigest, KeyId};
use state::migration::file::Writer;
use state::migration::{Mismatch, Records, compare, import};
use state::spending::Spending;
use state::{Change, Decision, KeyPatch, Org, OrgPatch, SpentExport, State, StateRecord, UserPatch};

use super::backup::{Directory, assert_same_file, export, import_file, on_both, on_redis};
use super::installation::{Installation, On, runtime};
use super::records::{RecordMaker, monthly};
use super::{records_of, use_with_journal};
use crate::support::decide::decide_request;
use crate::support::redis::Redis;

/// A key, a user and an organization, each with a budget of ten units of which five are spent.
struct Spenders {
    org: Org,
    user: UserId,
    key: KeyId,
    digests: Vec<KeyDigest>,
    now: Micros,
}

async fn spenders(state: &State) -> Spenders {
    let mut maker = RecordMaker::new(state);
    let (org, user) = maker.org_with_user().await;
    let other = maker.user(&org, "bob@example.com").await;
    let (key, _) = maker.key(&org, user, "of its own").await;
    maker.key(&org, user, "of its user").await;
    maker.key(&org, other, "of the organization").await;
    let patch = KeyPatch { budget: monthly(10), ..KeyPatch::default() };
    maker.change(Change::UpdateKey { key, patch }).await;
    let patch = UserPatch { budget: monthly(10), ..UserPatch::default() };
    maker.change(Change::UpdateUser { org: org.id, user, patch }).await;
    let patch = OrgPatch { budget: monthly(10), ..OrgPatch::default() };
    maker.change(Change::UpdateOrg { org: org.id, patch }).await;
    for digest in &maker.digests {
        maker.take(digest, 5).await;
    }
    Spenders { org, user, key, now: maker.now, digests: maker.digests }
}

impl Spenders {
    fn subjects(&self) -> [BudgetSubject; 3] {
        [BudgetSubject::Key(self.key), BudgetSubject::User(self.user), BudgetSubject::Org(self.org.id)]
    }

    async fn spending(&self, state: &State, subject: BudgetSubject) -> Spending {
        state.spending_of(self.org.tag, subject).await.unwrap()
    }
}

#[test]
fn budgets_go_on_after_moves_in_the_middle_of_their_periods() {
    let (redis, directories) = (Redis::start(), [Directory::new(), Directory::new()]);
    runtime().block_on(async {
        let source = directories[0].open();
        let spenders = spenders(&source).await;
        let file = export(&source).await;
        let remote = on_redis(&[redis.url()]).await;
        assert!(import_file(&file, &remote).await.is_complete());
        let back = directories[1].open();
        assert!(import_file(&export(&remote).await, &back).await.is_complete());
        drop(back);
        for state in [source, remote, directories[1].open()] {
            assert_same_file(&file, &export(&state).await);
            for digest in &spenders.digests {
                let mut admitted = 0;
                while let Decision::Admitted(_) = state.decide(decide_request(digest, spenders.now)).await.unwrap() {
                    admitted += 1;
                }
                assert_eq!(admitted, 5);
            }
        }
    });
}

/// The journal of the first gateway has the requests of before the move, and the export those of after it as well.
#[test]
fn budgets_go_on_after_a_move_back_to_the_machine_of_before() {
    let redis = Redis::start();
    let installation = Installation::moving_to(&[redis.url()], "");
    let spenders = runtime().block_on(spenders(&State::Embedded(installation.source())));
    for digest in &spenders.digests {
        use_with_journal(&installation, digest, 1);
    }
    installation.copy();
    runtime().block_on(async {
        let target = installation.target().await;
        for digest in &spenders.digests {
            assert!(matches!(target.decide(decide_request(digest, clock::now())).await, Ok(Decision::Admitted(_))));
        }
        target.close().await;
    });
    std::fs::rename(installation.directory.path().join("state.db"), installation.directory.path().join("old.db"))
        .unwrap();
    let report = installation.move_records(On::Redis, On::Embedded);
    assert_eq!(report["spent"]["copied"], 3, "{report}");
    let back = State::Embedded(installation.source());
    for subject in spenders.subjects() {
        assert_eq!(runtime().block_on(spenders.spending(&back, subject)).used(), 7);
    }
}

#[test]
fn only_a_later_or_a_larger_counter_is_taken_over() {
    on_both(async |state| {
        let spenders = spenders(&state).await;
        let org = spenders.org.id;
        for subject in spenders.subjects() {
            let start = spenders.spending(&state, subject).await.start;
            let second = |number: u64| Micros(start.0 + 1_000_000 * number);
            let spent = |start, units| StateRecord::Spent(SpentExport { subject, org, start, units });
            for (record, copied, expected) in [
                (spent(Micros(start.0 - 1_000_000), 9), 0, (start, 5)),
                (spent(start, 4), 0, (start, 5)),
                (spent(start, 6), 1, (start, 6)),
                (spent(start, 6), 0, (start, 6)),
                (spent(second(1), 9), 1, (second(1), 9)),
                (spent(second(1), 9), 0, (second(1), 9)),
                (spent(second(2), MAX_UNITS), 1, (second(2), MAX_UNITS)),
                (spent(second(3), 0), 1, (second(3), 0)),
            ] {
                let report = import(std::slice::from_ref(&record), &state).await.unwrap();
                let counts = (report.spent.copied, report.spent.already_there, report.is_complete());
                assert_eq!(counts, (copied, 1 - copied, true), "{record:?}");
                let found = spenders.spending(&state, subject).await;
                assert_eq!((found.start, found.used()), expected, "{record:?}");
            }
        }
    });
}

#[test]
fn counters_without_their_subjects_are_left_out() {
    on_both(async |state| {
        let spenders = spenders(&state).await;
        let before = export(&state).await;
        let (org, foreign) = (spenders.org.id, RecordMaker::new(&state).org("globex").await);
        let later = export(&state).await;
        let start = Micros(clock::now().0 / 1_000_000 * 1_000_000);
        let spent = |org, subject| StateRecord::Spent(SpentExport { subject, org, start, units: 1 });
        let mut records = vec![
            spent(OrgId::generate(), BudgetSubject::Key(spenders.key)),
            spent(org, BudgetSubject::User(UserId::generate())),
            spent(org, BudgetSubject::Key(KeyId::generate(spenders.org.tag).unwrap())),
        ];
        records.extend(spenders.subjects().map(|subject| spent(foreign.id, subject)));
        let report = import(&records, &state).await.unwrap();
        assert_eq!((report.left_out.spent, report.spent.copied, report.conflicts.len()), (6, 0, 0), "{report:?}");
        assert_same_file(&later, &export(&state).await);
        assert!(before.len() < later.len());
    });
}

#[test]
fn comparison_finds_counters_that_are_missing_or_began_earlier() {
    let directory = Directory::new();
    runtime().block_on(async {
        let state = directory.open();
        spenders(&state).await;
        let records = records_of(&state).await;
        let with = |edit: &dyn Fn(&mut SpentExport) -> bool| {
            let kept = records.iter().cloned().filter_map(|mut record| match &mut record {
                StateRecord::Spent(spent) => edit(spent).then_some(record),
                _ => Some(record),
            });
            let (mut writer, mut file) = Writer::begin(clock::now(), "test");
            file.extend(writer.lines(&kept.collect::<Vec<_>>()));
            file.extend(writer.end());
            Records::read(&*file).unwrap()
        };
        let first = with(&|_| true);
        let outcome = |edit: &dyn Fn(&mut SpentExport) -> bool| {
            let found = compare(&first, &with(edit), clock::now());
            (found.used_since, found.differences.into_iter().map(|finding| finding.problem).collect::<Vec<_>>())
        };
        let second = 1_000_000;
        assert_eq!(outcome(&|_| true), (0, vec![]));
        assert_eq!(outcome(&|_| false), (0, vec![Mismatch::Missing; 3]));
        let earlier = Mismatch::Differs(vec!["start".into()]);
        assert_eq!(
            outcome(&|spent| {
                spent.start.0 -= second;
                true
            }),
            (0, vec![earlier; 3])
        );
        assert_eq!(
            outcome(&|spent| {
                spent.start.0 += second;
                true
            }),
            (3, vec![])
        );
        assert_eq!(
            outcome(&|spent| {
                spent.units -= 1;
                true
            }),
            (3, vec![])
        );
    });
}
