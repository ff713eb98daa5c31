//! Revocation of a management token, with what it has made.
//!
//! - The tokens that it made, and those that these made, are revoked with it, in the same change.
//! - Federation rules and keys that these tokens created, and keys of such rules, are named in the answer. With
//!   descendants, they end as well: rules first, so that no key is exchanged afterwards.

use std::collections::BTreeSet;

use super::actor::AuditActor;
use super::audited_change::{Target, apply_change, apply_change_at};
use super::authorization::{Access, authorize};
use super::federation_rules::{path, target as target_of_rule};
use super::tokens::show_found;
use super::{Actor, Descendants, Management, ManagementError, Token};
use domain::clock::Micros;
use domain::key::KeyId;
use domain::management_token::{ManagementToken, TokenId, TokenScope};
use state::{ActorName, Change, RuleChange, descendants};

/// Organizations that are read at a time.
const ORGS_AT_A_TIME: usize = 100;

/// Descendants as they are looked up.
#[derive(Default)]
struct Found {
    tokens: BTreeSet<TokenId>,
    rules: Vec<(String, state::FederationRule)>,
    keys: Vec<KeyId>,
}

/// Revokes a token and the tokens that it made, for every call that begins afterwards; with `with_descendants` also
/// the federation rules and keys that they made. Revoking it again ends what is left.
///
/// # Errors
/// [`ManagementError::NoToken`]; [`ManagementError::MissingScope`] for a program that may revoke no keys;
/// [`ManagementError::InvalidToken`] for one that would end what it has made itself.
pub async fn revoke_token(
    management: &Management,
    actor: &Actor,
    id: TokenId,
    with_descendants: bool,
    now: Micros,
) -> Result<Token, ManagementError> {
    let by = authorize(management, actor, Access::Token(id), now).await?;
    if with_descendants {
        check_descendants_may_end(management, actor, id).await?;
    }
    let mut token = management.state.management_token(id).await?.ok_or(ManagementError::NoToken(id))?;
    let target = Target { org: token.org, user: None, key: None };
    token.revoked = token.revoked.or(Some(now));
    // Looked up before the change: a failure afterwards would hide that it was made.
    let mut shown = show_found(management, actor, token.clone(), now).await?;
    let change = Change::RevokeToken { token: id, at: now };
    apply_change_at(management, "token.revoke", &format!("token.revoke/{id}"), target, change, by).await?;
    match find_descendants(management, &token).await {
        Ok(found) => {
            if with_descendants {
                end_descendants(management, &found, by).await?;
            }
            shown.descendants = Some(found.into_descendants(with_descendants));
        }
        Err(error) if with_descendants => return Err(error.into()),
        Err(error) => {
            tracing::warn!(%error, token = %id, "a token is revoked; what it has made cannot be looked up")
        }
    }
    Ok(shown)
}

/// Checks that an actor may end what a token has made. After its revocation a program ends nothing.
async fn check_descendants_may_end(management: &Management, actor: &Actor, id: TokenId) -> Result<(), ManagementError> {
    let Actor::Program(program) = actor else { return Ok(()) };
    if !program.token.scopes.contains(&TokenScope::KeysRevoke) {
        return Err(ManagementError::MissingScope(TokenScope::KeysRevoke));
    }
    let own = program.token.id;
    let is_own = own == id || descendants(&management.state.management_tokens().await?, id).contains(&own);
    if is_own {
        Err(ManagementError::InvalidToken("no token ends what it has made itself; use another one"))
    } else {
        Ok(())
    }
}

async fn find_descendants(management: &Management, root: &ManagementToken) -> Result<Found, state::Unavailable> {
    let tokens = descendants(&management.state.management_tokens().await?, root.id);
    let makers: BTreeSet<ActorName> = tokens.iter().chain([&root.id]).map(|id| ActorName::of_token(*id)).collect();
    let mut found = Found { tokens, ..Found::default() };
    if let Some(org) = root.org {
        if let Some(org) = management.state.org(org).await? {
            find_made_in(management, &org, &makers, &mut found).await?;
        }
        return Ok(found);
    }
    let mut from = Some(0);
    while let Some(position) = from {
        let page = management.state.page_of_orgs(position, ORGS_AT_A_TIME).await?;
        for org in &page.items {
            find_made_in(management, org, &makers, &mut found).await?;
        }
        from = page.next;
    }
    Ok(found)
}

async fn find_made_in(
    management: &Management,
    org: &state::Org,
    makers: &BTreeSet<ActorName>,
    found: &mut Found,
) -> Result<(), state::Unavailable> {
    let mut makers = makers.clone();
    for rule in management.state.federation_rules(org.id).await? {
        if rule.created_by.as_ref().is_some_and(|by| makers.contains(by)) {
            makers.insert(ActorName::new(format!("federation:{}", rule.name)));
            found.rules.push((org.name.clone(), rule));
        }
    }
    found.keys.extend(management.state.keys_created_by(org, &makers).await?);
    Ok(())
}

async fn end_descendants(management: &Management, found: &Found, by: AuditActor<'_>) -> Result<(), ManagementError> {
    for (_, rule) in &found.rules {
        let remove = Change::FederationRule(RuleChange::Remove { org: rule.org, name: rule.name.clone() });
        let path = path("federation.remove", &rule.name);
        match apply_change_at(management, "federation.remove", &path, target_of_rule(rule), remove, by).await {
            // Removed meanwhile.
            Err(ManagementError::NoRule(_)) => {}
            removed => removed?,
        }
    }
    for key in &found.keys {
        let Some(record) = management.state.key(*key).await? else { continue };
        let revoke = Change::RevokeKey { key: *key, at: by.now };
        apply_change(management, "key.revoke", Target::of_key(&record), revoke, by).await?;
    }
    Ok(())
}

impl Found {
    fn into_descendants(self, ended: bool) -> Descendants {
        let federation_rules = self.rules.into_iter().map(|(org, rule)| format!("{org}/{}", rule.name)).collect();
        Descendants { tokens: self.tokens.into_iter().collect(), federation_rules, keys: self.keys, ended }
    }
}
