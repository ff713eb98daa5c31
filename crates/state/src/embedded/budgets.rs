//! Budgets of the embedded state: a meter for each subject that has spent anything, and its row in the file.
//!
//! - The journal has, with each use, the units that its subject had reserved by then, and with each end that gave
//!   units back, those that had come back by then. Both only grow: a start takes the larger of file and journal, in
//!   any order.
//! - Meters are written back before the checkpoint that says that the journal's lines up to there are counted.

use std::fmt::Debug;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use dashmap::DashMap;
use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use rustc_hash::FxBuildHasher;

use super::sql::{classify_error, for_each_row, integer, micros, text};
use crate::near_budgets::NearBudgets;
use crate::spending::{Spending, SpendingChange};
use crate::{ChangeError, SpentExport};
use domain::budget::{Budget, BudgetStatus, BudgetSubject, BudgetTotal};
use domain::clock::Micros;
use domain::identity::OrgId;

/// The meters of all subjects.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    meters: DashMap<BudgetSubject, Arc<BudgetMeter>, FxBuildHasher>,
    changed: Arc<ChangedMeters>,
    pub(super) near: Arc<NearBudgets>,
    /// The process that counts since a hand-over.
    successor: Arc<OnceLock<Box<dyn SettleElsewhere>>>,
}

/// End of a request that had reserved units of a subject's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Settlement {
    /// The subject.
    pub subject: BudgetSubject,
    /// Start of the period in which they were reserved.
    pub start: Micros,
    /// The units.
    pub reserved: u64,
    /// Units that the request has cost.
    pub actual: u64,
}

/// The process that has the state since a hand-over.
pub(super) trait SettleElsewhere: Debug + Send + Sync {
    /// Tells it a settlement.
    fn settle(&self, settlement: Settlement);
}

/// The meters whose spending is to be written back, each once.
#[derive(Debug, Default)]
pub(super) struct ChangedMeters(Mutex<Vec<Arc<BudgetMeter>>>);

/// Spending of one subject, shared by all keys that spend it.
#[derive(Debug)]
pub(crate) struct BudgetMeter {
    subject: BudgetSubject,
    changed: Arc<ChangedMeters>,
    near: Arc<NearBudgets>,
    successor: Arc<OnceLock<Box<dyn SettleElsewhere>>>,
    /// Start of the last period in which it was found nearly spent.
    announced: AtomicU64,
    state: Mutex<MeterState>,
}

#[derive(Debug, Default)]
struct MeterState {
    spending: Spending,
    is_changed: bool,
}

/// A reservation that was checked and is yet to be made. It locks the meter.
pub(crate) struct Reserving<'a> {
    meter: &'a Arc<BudgetMeter>,
    state: MutexGuard<'a, MeterState>,
    next: Spending,
}

impl Budgets {
    /// The meter of a subject.
    pub(crate) fn meter(&self, subject: BudgetSubject) -> Arc<BudgetMeter> {
        let meter = self.meters.entry(subject).or_insert_with(|| {
            let (changed, near) = (Arc::clone(&self.changed), Arc::clone(&self.near));
            let (successor, announced) = (Arc::clone(&self.successor), AtomicU64::new(0));
            Arc::new(BudgetMeter { subject, changed, near, successor, announced, state: Mutex::default() })
        });
        Arc::clone(&meter)
    }

    /// Has the successor count from now on.
    pub(super) fn hand_over(&self, successor: impl SettleElsewhere + 'static) {
        // A state is handed over once.
        let _ = self.successor.set(Box::new(successor));
    }

    /// The spending of a subject.
    pub(super) fn spending(&self, subject: BudgetSubject) -> Spending {
        self.meters.get(&subject).map(|meter| meter.spending()).unwrap_or_default()
    }

    /// Takes over what the journal says that a subject had reserved, or was given back, or what an import says.
    pub(super) fn replay(&self, subject: BudgetSubject, told: Spending) {
        let meter = self.meter(subject);
        let mut state = meter.state.lock();
        let merged = state.spending.merge(told);
        if merged != state.spending {
            meter.set(&mut state, merged);
        }
    }

    /// Takes the meters that are to be written back. The next change makes them so again.
    pub(super) fn take_changed(&self) -> Vec<Arc<BudgetMeter>> {
        std::mem::take(&mut *self.changed.0.lock())
    }

    /// Enters meters again that could not be written.
    pub(super) fn put_back(&self, meters: Vec<Arc<BudgetMeter>>) {
        for meter in meters {
            meter.mark_changed(&mut meter.state.lock());
        }
    }
}

impl BudgetMeter {
    /// Checks whether a cost fits into the budget, and holds it until it is reserved or dropped.
    ///
    /// # Errors
    /// The status, when the budget has less left.
    pub(crate) fn begin(
        self: &Arc<Self>,
        budget: Budget,
        cost: u32,
        now: Micros,
    ) -> Result<Reserving<'_>, BudgetStatus> {
        let state = self.state.lock();
        let next = state.spending.try_reserve(budget, cost, now)?;
        Ok(Reserving { meter: self, state, next })
    }

    /// Corrects the spending. Returns that of before and of after; none when the correction does not apply.
    pub(super) fn correct(
        self: &Arc<Self>,
        budget: Budget,
        change: SpendingChange,
        now: Micros,
    ) -> Option<[Spending; 2]> {
        let mut state = self.state.lock();
        let before = state.spending.at(budget, now);
        let corrected = state.spending.corrected(budget, change, now)?;
        self.set(&mut state, corrected);
        Some([before, corrected])
    }

    /// The spending, of whatever period it is.
    pub(super) fn spending(&self) -> Spending {
        self.state.lock().spending
    }

    /// The status at a time, for a key of this organization. Takes nothing.
    pub(crate) fn status(&self, budget: Budget, now: Micros, org: OrgId) -> BudgetStatus {
        let status = self.state.lock().spending.at(budget, now).status(budget);
        self.near.notice(&self.announced, self.subject, org, status);
        status
    }

    /// The request that reserved `reserved` units has cost `actual`. Returns what has come back by now; nothing after a
    /// hand-over, since when the successor counts: what it is not told stays spent.
    pub(crate) fn settle(self: &Arc<Self>, start: Micros, reserved: u64, actual: u64) -> BudgetTotal {
        if let Some(successor) = self.successor.get() {
            let settlement = Settlement { subject: self.subject, start, reserved, actual };
            successor.settle(settlement);
            return BudgetTotal { subject: self.subject, start, units: 0 };
        }
        let mut state = self.state.lock();
        let settled = state.spending.settle(start, reserved, actual);
        self.set(&mut state, settled);
        BudgetTotal { subject: self.subject, start: settled.start, units: settled.returned }
    }

    fn set(self: &Arc<Self>, state: &mut MeterState, spending: Spending) {
        state.spending = spending;
        self.mark_changed(state);
    }

    fn mark_changed(self: &Arc<Self>, state: &mut MeterState) {
        if !std::mem::replace(&mut state.is_changed, true) {
            self.changed.0.lock().push(Arc::clone(self));
        }
    }
}

impl PartialEq for BudgetMeter {
    fn eq(&self, other: &Self) -> bool {
        self.subject == other.subject
    }
}

impl Eq for BudgetMeter {}

impl Reserving<'_> {
    /// Reserves the cost. Returns the units that the subject has reserved by now, and its meter.
    pub(crate) fn reserve(mut self) -> (BudgetTotal, Arc<BudgetMeter>) {
        let next = self.next;
        self.meter.set(&mut self.state, next);
        let total = BudgetTotal { subject: self.meter.subject, start: next.start, units: next.reserved };
        (total, Arc::clone(self.meter))
    }
}

/// The table, of which a file of an earlier gateway has none.
pub(super) fn create_table(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS budgets (
           subject TEXT PRIMARY KEY, start INTEGER NOT NULL, reserved INTEGER NOT NULL, returned INTEGER NOT NULL,
           recounted INTEGER NOT NULL
         ) STRICT, WITHOUT ROWID;",
    )
}

/// Reads the rows of all subjects.
pub(super) fn load(connection: &Connection, budgets: &Budgets) -> rusqlite::Result<()> {
    for_each_row(connection, "SELECT * FROM budgets", |row| {
        let meter = budgets.meter(text(row, "subject")?);
        meter.state.lock().spending = spending_of(row)?;
        Ok(())
    })
}

/// Writes the row of an import, unless the one that is there stays.
pub(super) fn import(sql: &Connection, spent: &SpentExport) -> Result<(), ChangeError> {
    let SpentExport { subject, start, units, .. } = *spent;
    let mut read = sql.prepare_cached("SELECT * FROM budgets WHERE subject = ?1").map_err(classify_error)?;
    let stored = read.query_row([subject.to_string()], spending_of).optional().map_err(classify_error)?;
    match stored.unwrap_or_default().imported(start, units) {
        Some(imported) => write_row(sql, subject, imported).map_err(classify_error),
        None => Ok(()),
    }
}

fn spending_of(row: &Row<'_>) -> rusqlite::Result<Spending> {
    let number = |name| row.get::<_, i64>(name).map(i64::cast_unsigned);
    let start = micros(row.get("start")?);
    let recounted = row.get("recounted")?;
    Ok(Spending { start, reserved: number("reserved")?, returned: number("returned")?, recounted })
}

fn write_row(sql: &Connection, subject: BudgetSubject, spending: Spending) -> rusqlite::Result<()> {
    let Spending { start, reserved, returned, recounted } = spending;
    let mut write = sql.prepare_cached("INSERT OR REPLACE INTO budgets VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let row = params![subject.to_string(), integer(start.0), integer(reserved), integer(returned), recounted];
    write.execute(row).map(drop)
}

/// Writes the rows of these subjects, in one transaction.
pub(super) fn write(connection: &mut Connection, meters: &[Arc<BudgetMeter>]) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    for meter in meters {
        let spending = {
            let mut state = meter.state.lock();
            state.is_changed = false;
            state.spending
        };
        write_row(&transaction, meter.subject, spending)?;
    }
    transaction.commit()
}
