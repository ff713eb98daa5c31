//! Spending of the subjects of budgets: a field of their records, which decisions change.

use redis::{FromRedisValue as _, Value, cmd};
use tokio::time::timeout;

use super::transactions::{CHANGE_TIMEOUT, Transactions};
use crate::redis::packed::{pack, unpack};
use crate::redis::record_codec::decode_spending;
use crate::spending::{Spending, SpendingChange};
use crate::{ChangeError, StorageError, Unavailable};
use domain::budget::{Budget, BudgetSubject};
use domain::clock::Micros;
use domain::key::OrgTag;
use redis_client::{CommandError, hash_slot};

/// Spending of subjects, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Spendings<'a>(pub(crate) &'a Transactions);

impl Spendings<'_> {
    /// Returns what a subject of an organization has spent, of whatever period it is.
    pub(crate) async fn read(self, tag: OrgTag, subject: BudgetSubject) -> Result<Spending, CommandError> {
        let field = cmd("HGET").arg(self.name(tag, subject)).arg("spent").to_owned();
        let spent: Option<Vec<u8>> = self.0.client.query(&field).await?;
        decode_spending(spent.as_deref())
    }

    /// Corrects what a subject has spent. See [`crate::State::change_spending`].
    ///
    /// # Errors
    /// [`ChangeError::Unavailable`]; the correction may hold then.
    pub(crate) async fn change(
        self,
        (tag, subject): (OrgTag, BudgetSubject),
        budget: Budget,
        change: SpendingChange,
        now: Micros,
    ) -> Result<Option<[Spending; 2]>, ChangeError> {
        let limit = CHANGE_TIMEOUT + self.0.shared.settings.durability.timeout;
        let changed = timeout(limit, self.run(&self.name(tag, subject), budget, change, now)).await;
        let changed = changed.unwrap_or(Err(Unavailable::TimedOut));
        changed.map_err(|error| ChangeError::Unavailable(StorageError::Redis(error)))
    }

    async fn run(
        self,
        name: &str,
        budget: Budget,
        change: SpendingChange,
        now: Micros,
    ) -> Result<Option<[Spending; 2]>, Unavailable> {
        let span = budget.per.around(self.0.script_now(now));
        let (kind, start, added, taken) = match change {
            SpendingChange::Reset(start) => (0, start.0, 0, 0),
            SpendingChange::Split(start) => (1, start.0, 0, 0),
            SpendingChange::Add { start, units: units @ 0.. } => (2, start.0, units.unsigned_abs(), 0),
            SpendingChange::Add { start, units } => (2, start.0, 0, units.unsigned_abs()),
        };
        let chosen = self.0.shared.settings.script_time(now);
        let mut argument = Vec::new();
        for number in [chosen, span.start.0, span.end.0, kind, start, added, taken] {
            pack(&mut argument, number);
        }
        let script = &self.0.shared.scripts.spending;
        let (reply, replicas) = self.0.run_durably(hash_slot(name), script, &[name.as_bytes()], &[&argument]).await?;
        if reply == Value::Nil {
            return Ok(None);
        }
        if replicas < self.0.shared.settings.durability.replicas {
            return Err(Unavailable::TimedOut);
        }
        let reply = Vec::<u8>::from_redis_value(reply).map_err(CommandError::from)?;
        let [at, was, start, units] = unpack(&reply).ok_or(CommandError::UnexpectedReply)?;
        Ok(Some([spending([at, was]), spending([start, units])]))
    }

    /// The name of the record of a subject of an organization.
    pub(crate) fn name(self, tag: OrgTag, subject: BudgetSubject) -> String {
        let names = &self.0.shared.names;
        match subject {
            BudgetSubject::Key(key) => names.key(key),
            BudgetSubject::User(user) => names.user(tag, user),
            BudgetSubject::Org(_) => names.org(tag),
        }
    }
}

fn spending([start, units]: [u64; 2]) -> Spending {
    Spending { start: Micros(start), reserved: units, ..Spending::default() }
}
