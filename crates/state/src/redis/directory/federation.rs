//! Federation rules, the tokens that were exchanged by them, and the ends of their keys.
//!
//! - All of it is in the hash slot of the organization. So the transaction that creates a key checks the rule, the
//!   token and the rate as well: of several gateways one exchanges a token.
//! - A key of a rule is not counted among those that people create for its user.

use redis::cmd;

use super::check::Check;
use super::commit_error::CommitError;
use super::orgs::Orgs;
use super::origin::Origin;
use super::read_records::ReadRecords;
use super::record_fields::quota_numbers;
use super::transaction::Transaction;
use super::transactions::Transactions;
use crate::federation::{EXCHANGES, LISTED_AFTER_END, REMEMBERED};
use crate::{ChangeError, FederationExchange, FederationRule, Key, RuleChange};
use domain::identity::OrgId;
use redis_client::CommandError;

/// Microseconds until there is a token again in an empty bucket of [`EXCHANGES`].
const WAIT_US: u64 = 1_000_000;

/// Federation rules, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct FederationRules<'a>(pub(crate) &'a Transactions);

impl Transactions {
    /// The federation rules.
    pub(crate) fn federation_rules(&self) -> FederationRules<'_> {
        FederationRules(self)
    }
}

impl FederationRules<'_> {
    /// The rule of an organization with this name.
    pub(crate) async fn find(self, org: OrgId, name: &str) -> Result<Option<FederationRule>, CommandError> {
        let Some(tag) = Orgs(self.0).find_tag(org).await? else { return Ok(None) };
        let record = self.0.read_field(&self.0.shared.names.federation_rules(tag), name).await?;
        let rule = record.map(decode).transpose()?;
        // A failover may have brought a rule back whose removal this process knows.
        Ok(rule.filter(|rule| !self.0.shared.revocations.has_rule(tag, rule)))
    }

    /// The rules of an organization, by their names.
    pub(crate) async fn list(self, org: OrgId) -> Result<Vec<FederationRule>, CommandError> {
        let Some(tag) = Orgs(self.0).find_tag(org).await? else { return Ok(Vec::new()) };
        let records: Vec<String> =
            self.0.client.query(cmd("HVALS").arg(self.0.shared.names.federation_rules(tag))).await?;
        let mut rules = records.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        rules.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(rules)
    }

    /// Makes a change of the rules, as it was planned.
    pub(super) async fn change(
        self,
        change: &RuleChange,
        records: &ReadRecords,
        origin: Origin<'_>,
        is_retry: bool,
    ) -> Result<u32, CommitError> {
        match change {
            RuleChange::Create(rule) => self.create(rule, records, origin).await,
            RuleChange::Remove { org, name } => self.remove(*org, name, origin, is_retry).await,
        }
    }

    async fn create(
        self,
        rule: &FederationRule,
        records: &ReadRecords,
        origin: Origin<'_>,
    ) -> Result<u32, CommitError> {
        let names = &self.0.shared.names;
        let (tag, _) = records.stored_user(rule.org, rule.user)?;
        let json = rule.to_json();
        let mut transaction = self.0.transaction();
        origin.write_record(&mut transaction, names, || CommitError::Conflict);
        records.require(&mut transaction, names, None, || CommitError::Conflict);
        let rules = transaction.record(names.federation_rules(tag));
        // An earlier attempt whose reply was lost has written the same.
        transaction.check(Check::Free(rules, &rule.name, &json), ChangeError::Taken("name").into());
        transaction.hset_field(rules, &rule.name, &json);
        self.0.commit(transaction).await?.into_replicas()
    }

    async fn remove(self, org: OrgId, name: &str, origin: Origin<'_>, is_retry: bool) -> Result<u32, CommitError> {
        let names = &self.0.shared.names;
        let tag = Orgs(self.0).require_tag(org).await?;
        let found = self.0.read_field(&names.federation_rules(tag), name).await?.is_some();
        // An earlier attempt whose reply was lost may have removed it.
        if !found && !is_retry {
            return Err(ChangeError::NoFederationRule(name.to_owned()).into());
        }
        let mut transaction = self.0.transaction();
        transaction.allow_oom();
        origin.write_record(&mut transaction, names, || CommitError::Conflict);
        let [rules, bucket] = transaction.records([names.federation_rules(tag), names.federation_bucket(tag, name)]);
        transaction.hdel(rules, &[name]);
        transaction.del(bucket);
        self.0.commit(transaction).await?.into_replicas()
    }

    /// Adds the checks of an exchange, and what is remembered of it, to the transaction that creates its key.
    pub(super) fn add_exchange<F>(
        self,
        transaction: &mut Transaction<F>,
        key: &Key,
        exchange: &FederationExchange,
        failure: impl Fn(ChangeError) -> F,
    ) {
        let names = &self.0.shared.names;
        let FederationExchange { rule, token, at, expires } = exchange;
        let tag = key.id.tag();
        let quota = quota_numbers(EXCHANGES);
        let [rules, bucket, token, ends, keys_of] = transaction.records([
            names.federation_rules(tag),
            names.federation_bucket(tag, &rule.name),
            names.federation_token(tag, &rule.name, token),
            names.federation_keys(tag),
            names.keys_of(tag, key.user),
        ]);
        let changed = ChangeError::NoFederationRule(rule.name.clone());
        transaction.check(Check::Equal(rules, &rule.name, &rule.to_json()), failure(changed));
        transaction.check(Check::Absent(token), failure(ChangeError::TokenReplayed));
        // The age of the token was judged by this time.
        transaction.check(Check::Near(token, *at), failure(ChangeError::clock_differs()));
        transaction.check(Check::Token(bucket, &quota), failure(ChangeError::ExchangeLimited { wait_us: WAIT_US }));
        transaction.hset_field(token, "key", key.id.as_str());
        transaction.pexpire(token, REMEMBERED);
        transaction.take_token(bucket, &quota);
        // Full long before, as one that does not exist.
        transaction.pexpire(bucket, REMEMBERED);
        transaction.zadd(ends, expires.after(LISTED_AFTER_END).0, key.id.as_str());
        transaction.srem(keys_of, key.id.as_str());
    }
}

fn decode(record: String) -> Result<FederationRule, CommandError> {
    serde_json::from_str(&record).map_err(|_| CommandError::UnexpectedReply)
}
