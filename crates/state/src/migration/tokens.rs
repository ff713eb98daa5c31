//! Management tokens: each is written by itself, as far as there is room for it. One that is revoked on either side is
//! revoked; one that has expired is not imported.

use std::collections::BTreeMap;

use super::batch::{self, Existing, complete, incomplete};
use super::report::{Finding, Mismatch, Record, Report};
use super::retry::MigrationError;
use crate::import::{Import, ImportError, Importer};
use crate::{Change, MAX_TOKENS};
use domain::clock::{self, Micros};
use domain::management_token::{ManagementToken, TokenId};

/// The missing parts of a token.
struct MissingTokenParts {
    /// The record is missing.
    record: bool,
    /// The token is revoked in the export alone.
    revocation: bool,
    /// Other fields in which it differs, and which stay as they are.
    kept: Vec<&'static str>,
}

/// Imports management tokens.
pub(super) async fn import_tokens(
    store: Importer<'_>,
    tokens: &[&ManagementToken],
    report: &mut Report,
) -> Result<(), MigrationError> {
    let now = clock::now();
    let (live, expired): (Vec<&ManagementToken>, Vec<_>) = tokens.iter().partition(|token| now < token.expires);
    report.expired += expired.len() as u64;
    for batch in live.chunks(batch::size(store)) {
        let look_up = async || look_up_tokens(store, batch, now).await;
        let write = async |existing: &[Existing<MissingTokenParts>]| write_tokens(store, batch, existing, now).await;
        for (token, found) in batch.iter().zip(complete(look_up, write).await?) {
            count(report, token, found);
        }
    }
    Ok(())
}

fn count(report: &mut Report, token: &ManagementToken, found: Existing<MissingTokenParts>) {
    let record = Record::Token(token.id);
    match found {
        Existing::Same => report.tokens.add_one(true),
        Existing::Incomplete(missing) => {
            report.tokens.add_one(!missing.record);
            report.withdrawn += u64::from(missing.revocation);
            report.keep(record, missing.kept);
        }
        Existing::Conflict(Mismatch::OwnerMissing) => report.left_out.tokens += 1,
        Existing::Conflict(problem) => report.in_the_way.push(Finding { record, problem }),
    }
}

async fn look_up_tokens(
    store: Importer<'_>,
    tokens: &[&ManagementToken],
    now: Micros,
) -> Result<Vec<Existing<MissingTokenParts>>, ImportError> {
    let stored: BTreeMap<TokenId, ManagementToken> =
        store.tokens().await?.into_iter().map(|token| (token.id, token)).collect();
    let most = usize::try_from(MAX_TOKENS).expect("a constant");
    let mut room = most.saturating_sub(stored.values().filter(|token| now < token.expires).count());
    let mut existing = Vec::with_capacity(tokens.len());
    for token in tokens {
        existing.push(match stored.get(&token.id) {
            Some(stored) => compare_with(token, stored),
            None if !has_owner(store, token).await? => Existing::Conflict(Mismatch::OwnerMissing),
            None if room == 0 => Existing::Conflict(Mismatch::TooManyTokens(MAX_TOKENS)),
            None => {
                room -= 1;
                Existing::Incomplete(MissingTokenParts { record: true, revocation: false, kept: Vec::new() })
            }
        });
    }
    Ok(existing)
}

/// Returns whether the organization and the administrator of a token, if it has any, are on the target.
async fn has_owner(store: Importer<'_>, token: &ManagementToken) -> Result<bool, ImportError> {
    let Some(org) = token.org else { return Ok(true) };
    let Some(tag) = store.tag_of(org).await? else { return Ok(false) };
    let Some(admin) = token.admin else { return Ok(true) };
    Ok(store.user(tag, admin).await?.is_some_and(|admin| admin.org == org))
}

fn compare_with(token: &ManagementToken, stored: &ManagementToken) -> Existing<MissingTokenParts> {
    let mut kept = differences(token, stored);
    if token.digest != stored.digest || token.org != stored.org {
        return Existing::Conflict(Mismatch::Differs(kept));
    }
    kept.retain(|field| *field != "revoked");
    let revocation = token.revoked.is_some() && stored.revoked.is_none();
    if kept.is_empty() && !revocation {
        return Existing::Same;
    }
    Existing::Incomplete(MissingTokenParts { record: false, revocation, kept })
}

async fn write_tokens(
    store: Importer<'_>,
    tokens: &[&ManagementToken],
    existing: &[Existing<MissingTokenParts>],
    now: Micros,
) -> Result<(), ImportError> {
    let incomplete = || incomplete(tokens, existing);
    let missing = incomplete().filter(|(_, missing)| missing.record);
    store.write_each(missing.map(|(token, _)| Import::Token { token: Box::new(token.clone()), now }).collect()).await?;
    for (token, _) in incomplete().filter(|(_, missing)| missing.revocation) {
        let at = token.revoked.unwrap_or_default();
        store.withdraw(Change::RevokeToken { token: token.id, at }).await?;
    }
    Ok(())
}

/// The fields in which a token differs from another one with its id.
pub(super) fn differences(token: &ManagementToken, stored: &ManagementToken) -> Vec<&'static str> {
    let same = [
        ("digest", token.digest == stored.digest),
        ("name", token.name == stored.name),
        ("org", token.org == stored.org),
        ("admin", token.admin == stored.admin),
        ("scopes", token.scopes == stored.scopes),
        ("networks", token.networks == stored.networks),
        ("client_san", token.client_san == stored.client_san),
        ("created", token.created == stored.created),
        ("created_by", token.created_by == stored.created_by),
        ("expires", token.expires == stored.expires),
        ("revoked", token.revoked == stored.revoked),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}
