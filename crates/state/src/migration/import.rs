//! Import of some records of a file, in their order, into any state.
//!
//! - Missing records are created. Of what exists, the stricter wins: a revocation, a removal, a suspension, more uses,
//!   a later Last Used, the emptier bucket. Everything else stays as it is on the target, and is reported.
//! - Every rule is monotone: an import that is repeated changes nothing, and one that broke off is completed by another
//!   run.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::keys::{import_batch, look_up_digests};
use super::report::{Finding, Mismatch, Record, Report};
use super::retry::{MigrationError, retry};
use super::{batch, orgs, rules, tokens, users};
use crate::import::{Import, Importer};
use crate::{FederationRule, KeyExport, Org, State, StateRecord, UserExport};
use domain::identity::OrgId;
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::management_token::ManagementToken;

/// Imports records in their order: an organization before its users, and those before their rules, keys and tokens.
///
/// # Errors
/// [`MigrationError`] when it ended early; what was written stays. Conflicts are in the report.
pub async fn import(records: &[StateRecord], state: &State) -> Result<Report, MigrationError> {
    let store = Importer(state);
    let mut report = Report::default();
    for run in records.chunk_by(is_same_group) {
        match run.first() {
            Some(StateRecord::Org(_)) => {
                let orgs: Vec<&Org> = run.iter().filter_map(as_org).collect();
                orgs::import_orgs(store, &orgs, &mut report).await?;
            }
            Some(StateRecord::User(first)) => {
                let users: Vec<&UserExport> = run.iter().filter_map(as_user).collect();
                match retry(async || store.tag_of(first.user.org).await).await? {
                    Some(tag) => users::import_users(store, tag, &users, &mut report).await?,
                    None => report.left_out.users += users.len() as u64,
                }
            }
            Some(StateRecord::Key(first)) => {
                let keys: Vec<&KeyExport> = run.iter().filter_map(as_key).collect();
                import_keys(store, first.key.org, first.key.id.tag(), &keys, &mut report).await?;
            }
            Some(StateRecord::Digests(key, digests)) => import_digests(store, *key, digests, &mut report).await?,
            Some(StateRecord::Rule(first)) => {
                let rules: Vec<&FederationRule> = run.iter().filter_map(as_rule).collect();
                match retry(async || store.tag_of(first.org).await).await? {
                    Some(tag) => rules::import_rules(store, tag, &rules, &mut report).await?,
                    None => report.left_out.rules += rules.len() as u64,
                }
            }
            Some(StateRecord::Token(_)) => {
                let tokens: Vec<&ManagementToken> = run.iter().filter_map(as_token).collect();
                tokens::import_tokens(store, &tokens, &mut report).await?;
            }
            None => {}
        }
    }
    confirm(store, records).await?;
    if report.has_changes() {
        retry(async || store.count().await).await?;
    }
    Ok(report)
}

/// Waits for the replicas that are configured.
async fn confirm(store: Importer<'_>, records: &[StateRecord]) -> Result<(), MigrationError> {
    let keys: Vec<&KeyExport> = records.iter().filter_map(as_key).collect();
    let mut orgs: Vec<(OrgId, OrgTag)> = records.iter().filter_map(as_org).map(|org| (org.id, org.tag)).collect();
    orgs.extend(keys.iter().map(|key| (key.key.org, key.key.id.tag())));
    let owner = |record| as_user(record).map(|user| user.user.org).or_else(|| as_rule(record).map(|rule| rule.org));
    let mut owners: Vec<OrgId> = records.iter().filter_map(owner).collect();
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

/// Returns whether two records that follow each other are imported together.
fn is_same_group(one: &StateRecord, next: &StateRecord) -> bool {
    match (one, next) {
        (StateRecord::Org(_), StateRecord::Org(_)) => true,
        (StateRecord::User(one), StateRecord::User(next)) => one.user.org == next.user.org,
        (StateRecord::Key(one), StateRecord::Key(next)) => {
            one.key.org == next.key.org && one.key.id.tag() == next.key.id.tag()
        }
        (StateRecord::Rule(one), StateRecord::Rule(next)) => one.org == next.org,
        (StateRecord::Token(_), StateRecord::Token(_)) => true,
        _ => false,
    }
}

async fn import_keys(
    store: Importer<'_>,
    org: OrgId,
    tag: OrgTag,
    keys: &[&KeyExport],
    report: &mut Report,
) -> Result<(), MigrationError> {
    // The ids of an organization's keys begin with its tag: with another one, the organization is in conflict.
    if retry(async || store.tag_of(org).await).await? != Some(tag) {
        report.left_out.keys += keys.len() as u64;
        return Ok(());
    }
    let batches = keys.chunks(batch::size(store)).map(async |batch| {
        let mut of_batch = Report::default();
        import_batch(store, batch, &mut of_batch).await?;
        Ok(of_batch)
    });
    let reports: Vec<Report> = stream::iter(batches).buffered(batch::concurrent(store)).try_collect().await?;
    reports.into_iter().for_each(|of_batch| report.add(of_batch));
    Ok(())
}

/// Adds digests that an existing key had.
async fn import_digests(
    store: Importer<'_>,
    key: KeyId,
    digests: &[KeyDigest],
    report: &mut Report,
) -> Result<(), MigrationError> {
    let found = |problem| Finding { record: Record::Key(key), problem };
    if retry(async || store.key(key).await).await?.is_none() {
        report.in_the_way.push(found(Mismatch::OwnerMissing));
        return Ok(());
    }
    match retry(async || look_up_digests(store, key, digests.iter()).await).await? {
        Err(taken) => report.in_the_way.push(found(taken)),
        Ok(claims) => {
            report.digests.copied += claims.len() as u64;
            report.digests.already_there += (digests.len() - claims.len()) as u64;
            for claim in claims {
                retry(async || store.write(vec![Import::Digest(claim)]).await).await?;
            }
        }
    }
    Ok(())
}

fn as_org(record: &StateRecord) -> Option<&Org> {
    if let StateRecord::Org(org) = record { Some(org) } else { None }
}

fn as_user(record: &StateRecord) -> Option<&UserExport> {
    if let StateRecord::User(user) = record { Some(user) } else { None }
}

fn as_key(record: &StateRecord) -> Option<&KeyExport> {
    if let StateRecord::Key(key) = record { Some(key) } else { None }
}

fn as_rule(record: &StateRecord) -> Option<&FederationRule> {
    if let StateRecord::Rule(rule) = record { Some(rule) } else { None }
}

fn as_token(record: &StateRecord) -> Option<&ManagementToken> {
    if let StateRecord::Token(token) = record { Some(token) } else { None }
}
