//! Exchange of a verified token of a CI for a key (RFC 8693).
//!
//! - The state makes the key once for each token and rule, within the rate of the rule, in one transaction.
//! - The creation is a change of `federation:RULE`, recorded as every other one. Its path has the subject.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

use serde_json::Value;
use uuid::Uuid;

use super::audited_change::use_end;
use super::key_creation::MAX_ID_ATTEMPTS;
use super::operands::look_up_org;
use super::owned_key::{member, new_record};
use super::{ApiKey, ClientInfo, Management, ManagementError};
use crate::oidc::SubjectToken;
use domain::budget::Cost;
use domain::clock::Micros;
use domain::identity::{AuthMethod, MANAGEMENT_METHOD, Permission};
use domain::key::policy::{KeyPolicy, MAX_TAG_BYTES};
use domain::key::{KeyDigest, KeyId, PlainKey};
use domain::session::TokenDigest;
use journal::audit::{ChangeUse, Use};
use state::federation::is_rule_name;
use state::{self, Change, ChangeError, FederationExchange};

/// Action of the change that an exchange makes.
const ACTION: &str = "key.create";
/// Hexadecimal digits of the digest that stands for the end of a text that is too long for a tag.
const DIGEST_DIGITS: usize = 16;

/// Rule that an exchange names, with its organization.
#[derive(Debug)]
pub struct ExchangeTarget {
    org: state::Org,
    rule: state::FederationRule,
}

/// Key that a token was exchanged for.
#[derive(Debug)]
pub struct ExchangedKey {
    /// The key in the clear.
    pub api_key: ApiKey,
    /// Its id.
    pub id: KeyId,
    /// Time from which it is refused.
    pub expires: Micros,
    /// Its permissions, as far as the service has them.
    pub permissions: Vec<Permission>,
}

impl ExchangeTarget {
    /// Issuer of the tokens that are exchanged by the rule.
    pub fn issuer(&self) -> &str {
        &self.rule.issuer
    }

    /// Audience of the tokens that are exchanged by the rule, and others that they may have besides.
    pub fn audiences(&self) -> (&str, &[String]) {
        (&self.rule.audience, &self.rule.audiences)
    }
}

/// The rule that the `audience` of an exchange names, `ORGANIZATION/RULE`, the organization by its id or name.
///
/// # Errors
/// [`ManagementError::UnknownTarget`] when there is none; [`ManagementError::StateUnavailable`].
pub async fn find_exchange_target(management: &Management, audience: &str) -> Result<ExchangeTarget, ManagementError> {
    let (org, rule) = audience.rsplit_once('/').filter(|(_, rule)| is_rule_name(rule)).unwrap_or_default();
    let org = look_up_org(management, org).await?.ok_or(ManagementError::UnknownTarget)?;
    let rule = management.state.federation_rule(org.id, rule).await?.ok_or(ManagementError::UnknownTarget)?;
    Ok(ExchangeTarget { org, rule })
}

/// Exchanges a token, verified for the issuer and the audience of the rule, for a key of the rule's service, with
/// the permissions of `scope` if it is given.
///
/// # Errors
/// [`ManagementError::ClaimMismatch`], [`ManagementError::ServiceSuspended`], [`ManagementError::ScopeExceeded`],
/// [`ManagementError::TokenReplayed`], [`ManagementError::ExchangeLimited`]; others when the state or the journal
/// is unavailable.
pub async fn exchange_token(
    management: &Management,
    target: &ExchangeTarget,
    token: &SubjectToken,
    scope: Option<Vec<Permission>>,
    client: &ClientInfo,
    now: Micros,
) -> Result<ExchangedKey, ManagementError> {
    let ExchangeTarget { org, rule } = target;
    if let Some(claim) = rule.mismatch(&token.claims) {
        return Err(ManagementError::ClaimMismatch(claim.to_owned()));
    }
    let service = management.state.member(org.id, rule.user).await?;
    let is_active = |(org, user): &(state::Org, state::User)| user.is_active() && !org.suspended;
    let (_, service) = service.filter(is_active).ok_or(ManagementError::ServiceSuspended)?;
    let permissions = rule_permissions(rule, scope)?;
    let longest = [Some(rule.max), org.policy.max_expiry].into_iter().flatten().min().unwrap_or(rule.max);
    let expires = now.after(longest);
    let tags = tags(rule, token);
    let policy =
        KeyPolicy { permissions: Some(permissions.clone()), expires: Some(expires), tags, ..KeyPolicy::default() };
    let exchange = FederationExchange { rule: rule.clone(), token: token.identity, at: now, expires };
    let mut attempts = 0;
    loop {
        attempts += 1;
        let plain = PlainKey::generate(KeyId::generate(org.tag)?)?;
        let key = new_record(plain.id(), member(&service), rule.name.clone(), now);
        let key = state::Key { policy: policy.clone().boxed(), ..key };
        match create_exchanged(management, key, plain.digest(), &exchange, token, client).await {
            Err(ManagementError::Taken("id")) if attempts < MAX_ID_ATTEMPTS => {}
            // The key is valid, and the token gives no other one.
            Err(ManagementError::Unconfirmed(error)) => {
                tracing::warn!(%error, key = %plain.id(), "a failover may lose the key of an exchange");
                return Ok(ExchangedKey { id: plain.id(), api_key: ApiKey::from(&plain), expires, permissions });
            }
            // Suspended since it was looked up.
            Err(ManagementError::NotAllowed) => return Err(ManagementError::ServiceSuspended),
            created => {
                return created.map(|()| ExchangedKey {
                    id: plain.id(),
                    api_key: ApiKey::from(&plain),
                    expires,
                    permissions,
                });
            }
        }
    }
}

/// Makes the key, and records it.
async fn create_exchanged(
    management: &Management,
    key: state::Key,
    digest: KeyDigest,
    exchange: &FederationExchange,
    token: &SubjectToken,
    client: &ClientInfo,
) -> Result<(), ManagementError> {
    let actor = format!("federation:{}", exchange.rule.name);
    let path = format!("{ACTION}/{}", tag_value(token.text("sub").unwrap_or_default()));
    let opening = Use {
        id: Uuid::now_v7(),
        time: exchange.at,
        number: None,
        key_id: Some(key.id),
        user_id: None,
        org_id: Some(key.org),
        // The credential is a token of an identity provider, as that of a session is.
        auth_method: AuthMethod::Session,
        ip: client.ip,
        user_agent: client.user_agent.as_deref().map(str::as_bytes),
        action: ACTION,
        method: MANAGEMENT_METHOD,
        path: &path,
        provisional: false,
        cost: Cost::ONE,
        budget: None,
        trace_id: None,
    };
    let subject = Some(key.user);
    let entry =
        management.journal.begin_change(&ChangeUse { opening, actor: &actor, subject, token_id: None }, false).await?;
    let started = Instant::now();
    let change = Box::new(Change::CreateKey { key, digest });
    let change = Change::ByFederation { exchange: Box::new(exchange.clone()), change };
    let changed = management.state.change(change.by(&actor)).await.map_err(|error| match error {
        ChangeError::OrgSuspended(_) => ManagementError::ServiceSuspended,
        error => ManagementError::from(error),
    });
    management.duration.observe(started.elapsed().as_secs_f64());
    entry.close_change(use_end(&changed, started)).await;
    changed
}

/// The permissions of a key: those of the rule, or those of them that are asked for.
fn rule_permissions(
    rule: &state::FederationRule,
    scope: Option<Vec<Permission>>,
) -> Result<Vec<Permission>, ManagementError> {
    let Some(mut asked) = scope else { return Ok(rule.permissions.clone()) };
    asked.sort_unstable();
    asked.dedup();
    match asked.iter().find(|permission| rule.permissions.binary_search(permission).is_err()) {
        Some(beyond) => Err(ManagementError::ScopeExceeded(beyond.clone())),
        None => Ok(asked),
    }
}

/// The tags of a key: those of the rule, and from which token it is.
fn tags(rule: &state::FederationRule, token: &SubjectToken) -> BTreeMap<String, String> {
    let mut tags = rule.tags.clone();
    tags.insert("rule".to_owned(), rule.name.clone());
    tags.insert("issuer".to_owned(), tag_value(&rule.issuer));
    for name in ["sub", "jti"] {
        if let Some(Value::String(text)) = token.claims.get(name) {
            tags.insert(name.to_owned(), tag_value(text));
        }
    }
    tags
}

/// A text as the value of a tag. Of one that is too long, or has control characters, the beginning, `~`, and digits of
/// the SHA-256 of all of it.
fn tag_value(text: &str) -> String {
    if text.len() <= MAX_TAG_BYTES && !text.chars().any(char::is_control) {
        return text.to_owned();
    }
    let mut value = String::new();
    for character in text.chars() {
        let shown = if character.is_control() { '?' } else { character };
        if value.len() + shown.len_utf8() + 1 + DIGEST_DIGITS > MAX_TAG_BYTES {
            break;
        }
        value.push(shown);
    }
    value.push('~');
    for byte in &TokenDigest::of(text.as_bytes()).as_bytes()[..DIGEST_DIGITS / 2] {
        write!(value, "{byte:02x}").expect("a String takes every text");
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_and_told_apart_by_its_digest() {
        assert_eq!(tag_value("repo:acme/app"), "repo:acme/app");
        assert_eq!(tag_value(&"a".repeat(64)), "a".repeat(64));
        let one = tag_value(&"a".repeat(65));
        let other = tag_value(&"a".repeat(66));
        assert_ne!(one, other);
        for text in ["é".repeat(60), "日本".repeat(40), "a\n".to_owned(), "\u{7f}".repeat(70)] {
            let value = tag_value(&text);
            let policy = KeyPolicy { tags: [("sub".to_owned(), value.clone())].into(), ..KeyPolicy::default() };
            assert_eq!(policy.validate(), Ok(()), "{value}");
        }
        assert_eq!(tag_value("a\nb").split_once('~').map(|(beginning, _)| beginning), Some("a?b"));
    }
}
