//! Import of some records of a file, in their order, into any state.
//!
//! - Absent records are created. Of those that are there, revocations, removals and suspensions are taken over; every
//!   other difference is a conflict, which is reported and changes nothing.
//! - An import that is repeated changes nothing, and one that broke off is completed by another run.

use std::sync::OnceLock;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::batch::{self, BATCH, complete};
use super::found::Found;
use super::look_up::{as_key, as_token, look_up};
use super::report::{Finding, Mismatch, Record, Report};
use super::retry::{MigrationError, retry};
use crate::import::{Import, ImportError, Importer};
use crate::{Change, ChangeError, KeyExport, Org, State, StateRecord};
use domain::clock;
use domain::identity::OrgId;
use domain::key::OrgTag;
use domain::management_token::ManagementToken;

/// The first withdrawal that was made, and that too few replicas confirmed. It keeps no record from being imported: the
/// import says so at its end.
type Unreplicated = OnceLock<ChangeError>;

/// Imports records in their order: an organization before its users, and those before their rules, keys and tokens.
///
/// # Errors
/// [`MigrationError`] when it ended early; what was written stays. Conflicts are in the report.
pub async fn import(records: &[StateRecord], state: &State) -> Result<Report, MigrationError> {
    let store = Importer(state);
    let mut report = Report::default();
    let unreplicated = Unreplicated::new();
    for group in records.chunk_by(is_same_group) {
        import_group(store, group, &unreplicated, &mut report).await?;
    }
    confirm(store, records).await?;
    if report.has_changes() {
        retry(async || store.count().await).await?;
    }
    match unreplicated.into_inner() {
        Some(error) => Err(MigrationError::NotReplicated(error)),
        None => Ok(report),
    }
}

/// Returns whether two records that follow each other are imported together.
fn is_same_group(one: &StateRecord, next: &StateRecord) -> bool {
    match (one, next) {
        (StateRecord::Org(_), StateRecord::Org(_)) | (StateRecord::Token(_), StateRecord::Token(_)) => true,
        (StateRecord::User(_), StateRecord::User(_))
        | (StateRecord::Rule(_), StateRecord::Rule(_))
        | (StateRecord::Spent(_), StateRecord::Spent(_)) => owner(one) == owner(next),
        (StateRecord::Key(key), StateRecord::Key(other)) => {
            owner(one) == owner(next) && key.key.id.tag() == other.key.id.tag()
        }
        _ => false,
    }
}

/// The organization without which a user, a rule, a key or what one of them has spent has no place.
fn owner(record: &StateRecord) -> Option<OrgId> {
    match record {
        StateRecord::User(user) => Some(user.user.org),
        StateRecord::Rule(rule) => Some(rule.org),
        StateRecord::Key(key) => Some(key.key.org),
        StateRecord::Spent(spent) => Some(spent.org),
        StateRecord::Org(_) | StateRecord::Digests(..) | StateRecord::Token(_) => None,
    }
}

async fn import_group(
    store: Importer<'_>,
    group: &[StateRecord],
    unreplicated: &Unreplicated,
    report: &mut Report,
) -> Result<(), MigrationError> {
    let Some(first) = group.first() else { return Ok(()) };
    if let StateRecord::Digests(key, _) = first
        && report.has_other_digests(*key)
    {
        // The key of the target never had them. The conflict is noted with the line of the key.
        return Ok(());
    }
    let mut tag = None;
    let mut concurrent = 1;
    if let Some(org) = owner(first) {
        tag = retry(async || store.tag_of(org).await).await?;
        if let StateRecord::Key(key) = first {
            // The ids of an organization's keys begin with its tag: with another one, the organization is in conflict.
            tag = tag.filter(|tag| *tag == key.key.id.tag());
            concurrent = batch::concurrent(store);
        }
        if tag.is_none() {
            group.iter().for_each(|record| report.leave_out(record));
            return Ok(());
        }
    }
    let batches = group.chunks(batch::size(store)).map(async |batch| {
        let find = async || look_up(store, tag, batch).await;
        let write = async |found: &[Found]| {
            write(store, tag, batch, found).await?;
            withdraw(store, found, unreplicated).await
        };
        complete(find, write).await
    });
    let found: Vec<Vec<Found>> = stream::iter(batches).buffered(concurrent).try_collect().await?;
    group.iter().zip(found.into_iter().flatten()).for_each(|(record, found)| report.note(record, found));
    Ok(())
}

/// Writes what a batch lacks on the target.
async fn write(
    store: Importer<'_>,
    tag: Option<OrgTag>,
    batch: &[StateRecord],
    found: &[Found],
) -> Result<(), ImportError> {
    let records = || batch.iter().zip(found);
    let is_claimed = |found: &Found| !(found.is_absent && store.writes_digests_with_keys());
    let claims = found.iter().filter(|found| is_claimed(found)).flat_map(|found| &found.claims);
    store.write_each(claims.map(|claim| Import::Digest(*claim)).collect()).await?;
    let absent = records().filter(|(_, found)| found.is_absent);
    let imports: Vec<Import> = absent.filter_map(|(record, found)| import_of(record, found, tag)).collect();
    match batch.first() {
        // Of any hash slots.
        Some(StateRecord::Org(_) | StateRecord::Token(_)) => store.write_each(imports).await?,
        _ => store.write(imports).await?,
    }
    store.list_orgs(found.iter().filter_map(|found| found.unlisted.as_ref())).await
}

/// Withdraws what the file has as withdrawn and the target does not.
async fn withdraw(store: Importer<'_>, found: &[Found], unreplicated: &Unreplicated) -> Result<(), ImportError> {
    let withdraw = async |changes: &Vec<Change>| {
        for change in changes {
            match store.withdraw(change.clone()).await {
                // It holds. Of several such errors, the first is reported.
                Err(ImportError::NotReplicated(error)) => drop(unreplicated.set(error)),
                result => result?,
            }
        }
        Ok(())
    };
    let withdrawals = found.iter().map(|found| Ok(&found.withdrawals));
    stream::iter(withdrawals).try_for_each_concurrent(BATCH, withdraw).await
}

/// The creation of a record; none of digests, which are claimed.
fn import_of(record: &StateRecord, found: &Found, tag: Option<OrgTag>) -> Option<Import> {
    Some(match record {
        StateRecord::Org(org) => Import::Org(org.clone()),
        StateRecord::User(export) => Import::User { tag: tag?, user: export.user.clone(), creation: export.creation },
        StateRecord::Key(key) => Import::Key(key.clone()),
        StateRecord::Rule(rule) => Import::Rule { tag: tag?, rule: rule.clone() },
        StateRecord::Token(token) => {
            let mut token = token.clone();
            token.revoked = token.revoked.or(found.revoked);
            Import::Token { token, now: clock::now() }
        }
        StateRecord::Spent(spent) => Import::Spent { tag: tag?, spent: *spent },
        StateRecord::Digests(..) => return None,
    })
}

impl Report {
    /// Notes a record whose organization is not on the target.
    fn leave_out(&mut self, record: &StateRecord) {
        match record {
            StateRecord::User(_) => self.left_out.users += 1,
            StateRecord::Key(_) => self.left_out.keys += 1,
            StateRecord::Rule(_) => self.left_out.rules += 1,
            StateRecord::Token(_) => self.left_out.tokens += 1,
            StateRecord::Spent(_) => self.left_out.spent += 1,
            StateRecord::Org(_) | StateRecord::Digests(..) => unreachable!("they have no owner"),
        }
    }

    /// Notes a record as it was found.
    fn note(&mut self, record: &StateRecord, found: Found) {
        self.withdrawn += u64::from(!found.withdrawals.is_empty());
        self.expired += u64::from(found.is_expired);
        match found.conflict {
            Some(Mismatch::OwnerMissing) => return self.leave_out(record),
            Some(problem) => {
                self.digests.copied += found.claims.len() as u64;
                return self.conflicts.push(Finding { record: Record::of(record), problem });
            }
            None if found.is_expired => return,
            None => {}
        }
        let digests = match record {
            StateRecord::Key(key) => key.digests().count(),
            StateRecord::Digests(_, digests) => digests.len(),
            _ => 0,
        };
        self.digests.copied += found.claims.len() as u64;
        self.digests.already_there += (digests - found.claims.len()) as u64;
        let count = match record {
            StateRecord::Org(_) => &mut self.orgs,
            StateRecord::User(_) => &mut self.users,
            StateRecord::Key(_) => &mut self.keys,
            StateRecord::Rule(_) => &mut self.rules,
            StateRecord::Token(_) => &mut self.tokens,
            StateRecord::Spent(_) => &mut self.spent,
            StateRecord::Digests(..) => return,
        };
        count.add_one(!found.is_absent && found.unlisted.is_none());
    }
}

/// Waits for the replicas that are configured.
async fn confirm(store: Importer<'_>, records: &[StateRecord]) -> Result<(), MigrationError> {
    let keys: Vec<&KeyExport> = records.iter().filter_map(as_key).collect();
    let mut orgs: Vec<(OrgId, OrgTag)> = records.iter().filter_map(as_org).map(|org| (org.id, org.tag)).collect();
    orgs.extend(keys.iter().map(|key| (key.key.org, key.key.id.tag())));
    let mut owners: Vec<OrgId> = records.iter().filter(|record| as_key(record).is_none()).filter_map(owner).collect();
    owners.dedup();
    for org in owners {
        orgs.extend(retry(async || store.tag_of(org).await).await?.map(|tag| (org, tag)));
    }
    let tokens: Vec<&ManagementToken> = records.iter().filter_map(as_token).collect();
    for confirmation in store.confirmations(&orgs, &keys, &tokens) {
        retry(async || store.confirm(&confirmation).await).await?;
    }
    Ok(())
}

fn as_org(record: &StateRecord) -> Option<&Org> {
    if let StateRecord::Org(org) = record { Some(org) } else { None }
}
