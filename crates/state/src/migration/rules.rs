//! Federation rules: a batch of one organization at a time. None of two is the stricter one, so the target's stays.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::batch::{self, BATCH, Existing, complete, incomplete};
use super::report::{Finding, Mismatch, Record, Report};
use super::retry::MigrationError;
use crate::FederationRule;
use crate::import::{Import, ImportError, Importer};
use domain::key::OrgTag;

/// The gap between a rule on the target and the export.
enum RuleGap {
    /// The whole rule is missing.
    Everything,
    /// Fields in which it differs, and which stay as they are.
    Kept(Vec<&'static str>),
}

/// Imports federation rules of an organization.
pub(super) async fn import_rules(
    store: Importer<'_>,
    tag: OrgTag,
    rules: &[&FederationRule],
    report: &mut Report,
) -> Result<(), MigrationError> {
    for batch in rules.chunks(batch::size(store)) {
        let look_up = async || {
            let records = batch.iter().map(|rule| look_up_rule(store, tag, rule));
            stream::iter(records).buffered(BATCH).try_collect().await
        };
        let write = async |existing: &[Existing<RuleGap>]| {
            let missing = incomplete(batch, existing).filter(|(_, gap)| matches!(gap, RuleGap::Everything));
            store.write(missing.map(|(rule, _)| Import::Rule { tag, rule: Box::new(rule.clone()) }).collect()).await
        };
        for (rule, found) in batch.iter().zip(complete(look_up, write).await?) {
            count(report, rule, found);
        }
    }
    Ok(())
}

fn count(report: &mut Report, rule: &FederationRule, found: Existing<RuleGap>) {
    let record = Record::of_rule(rule);
    match found {
        Existing::Same => report.rules.add_one(true),
        Existing::Incomplete(RuleGap::Everything) => report.rules.add_one(false),
        Existing::Incomplete(RuleGap::Kept(fields)) => {
            report.rules.add_one(true);
            report.keep(record, fields);
        }
        Existing::Conflict(Mismatch::OwnerMissing) => report.left_out.rules += 1,
        Existing::Conflict(problem) => report.in_the_way.push(Finding { record, problem }),
    }
}

async fn look_up_rule(
    store: Importer<'_>,
    tag: OrgTag,
    rule: &FederationRule,
) -> Result<Existing<RuleGap>, ImportError> {
    let Some(stored) = store.rule(rule.org, &rule.name).await? else {
        let user = store.user(tag, rule.user).await?;
        let is_service = user.is_some_and(|user| user.org == rule.org && user.is_service());
        let missing = Existing::Incomplete(RuleGap::Everything);
        return Ok(if is_service { missing } else { Existing::Conflict(Mismatch::OwnerMissing) });
    };
    let differences = differences(rule, &stored);
    Ok(if differences.is_empty() {
        Existing::Same
    } else if rule.user == stored.user {
        Existing::Incomplete(RuleGap::Kept(differences))
    } else {
        Existing::Conflict(Mismatch::Differs(differences))
    })
}

/// The fields in which a rule differs from another one with its name.
pub(super) fn differences(rule: &FederationRule, stored: &FederationRule) -> Vec<&'static str> {
    let same = [
        ("user", rule.user == stored.user),
        ("issuer", rule.issuer == stored.issuer),
        ("audience", rule.audience == stored.audience),
        ("audiences", rule.audiences == stored.audiences),
        ("claims", rule.claims == stored.claims),
        ("permissions", rule.permissions == stored.permissions),
        ("max", rule.max == stored.max),
        ("tags", rule.tags == stored.tags),
        ("created", rule.created == stored.created),
        ("created_by", rule.created_by == stored.created_by),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}
