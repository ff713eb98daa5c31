//! Leaked keys and management tokens: reports that a secret was found where others can read it, and keys that revoke
//! themselves.
//!
//! - A secret that a rotation has replaced, and one of a revoked key, cannot be used any more: nothing is changed.
//! - Nor by a report that is sent again, also when its key was enabled since: a ticket claims each place, with the time
//!   of the last enabling before it.
//! - A management token cannot be disabled and enabled: it is revoked, once and for good, unless the action is a record
//!   only.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use uuid::Uuid;

use super::actor::AuditActor;
use super::announcement::{Announcement, KEY_LEAKED, LEAK_REMEMBERED, TOKEN_LEAKED};
use super::audited_change::{Target, apply_change_at};
use super::authorization::authorize_all;
use super::keys_by_digest::is_replaced;
use super::owned_key::{OwnedKey, find_key, show_owned};
use super::tokens::show_found;
use super::{Actor, ClientInfo, Key, KeyStatus, Management, ManagementError, Token};
use domain::clock::Micros;
use domain::key::policy::{Disabled, DisabledBy, Field, PolicyPatch};
use domain::key::{KeyDigest, redact};
use domain::management_token::{self, TokenId, TokenScope};
use domain::secret::Secret;
use domain::session::TokenDigest;
use state::{Change, ChangeError};

/// Characters of a place in records at most.
const PLACE_LENGTH: usize = 300;
/// Characters that are encoded in a place; others are not ASCII.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"');

/// Action on a key or a management token that has leaked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeakAction {
    /// A key is disabled, until the operator enables it; a token is revoked.
    #[default]
    Disable,
    /// It is revoked, for good.
    Revoke,
    /// Nothing but a record.
    Notify,
}

/// A secret that was found where others can read it.
#[derive(Debug)]
pub struct Leak<'a> {
    /// The whole key, or the whole management token.
    pub secret: &'a Secret,
    /// Kind of the place, such as `commit`.
    pub source: &'a str,
    /// Address of the place; may be empty.
    pub url: &'a str,
}

/// A credential that has leaked, as it is after the report.
#[derive(Debug)]
pub enum Leaked {
    /// An API key.
    Key(Box<Key>),
    /// A management token.
    Token(Box<Token>),
}

/// Reports a leak: the action of the configuration, for the key or the management token that has the secret. Returns
/// the credential as it is then, also of a secret that was replaced; none when there is none, or when a program of one
/// organization reports one of another, or a token of all organizations. For the operator, and for programs.
///
/// # Errors
/// Those of an actor who may not, of the state and of the journal.
pub async fn report_leak(
    management: &Management,
    actor: &Actor,
    leak: &Leak<'_>,
    now: Micros,
) -> Result<Option<Leaked>, ManagementError> {
    let by = authorize_all(management, actor, TokenScope::KeysLeak, now).await?;
    let found = match management_token::parse(leak.secret.expose().as_bytes()) {
        Some(id) => report_token(management, id, leak, by).await?.map(Box::new).map(Leaked::Token),
        None => report_key(management, leak, by).await?.map(Box::new).map(Leaked::Key),
    };
    Ok(found)
}

async fn report_key(
    management: &Management,
    leak: &Leak<'_>,
    by: AuditActor<'_>,
) -> Result<Option<Key>, ManagementError> {
    let (own, now) = (by.actor.token_org(), by.now);
    let digest = KeyDigest::of(leak.secret.expose().as_bytes());
    let found = key_with_secret(management, by.actor, &digest).await?;
    let Some(owned) = found.filter(|owned| own.is_none_or(|org| owned.key.org == org)) else { return Ok(None) };
    let shown = show_owned(management, &owned, now);
    if is_spent(management, &shown, &digest, now).await? {
        return Ok(Some(shown));
    }
    let place = place(leak);
    if act(management, &owned.key, (&digest, &place), by).await? {
        tracing::warn!(key = %owned.key.id, place, "a key has leaked");
    }
    // Read again: it is disabled or revoked, as a rule.
    Ok(Some(show_owned(management, &find_key(management, by.actor, owned.key.id).await?, now)))
}

/// Reports a management token. One that is revoked or has expired cannot be used any more: nothing is changed.
async fn report_token(
    management: &Management,
    id: TokenId,
    leak: &Leak<'_>,
    by: AuditActor<'_>,
) -> Result<Option<Token>, ManagementError> {
    let (own, now) = (by.actor.token_org(), by.now);
    let digest = TokenDigest::of(leak.secret.expose().as_bytes());
    let found = management.state.management_token(id).await?;
    let found = found.filter(|token| token.digest == digest && own.is_none_or(|org| token.org == Some(org)));
    let Some(mut token) = found else { return Ok(None) };
    let acts = token.is_live(now);
    let is_announced = management.leak_action == LeakAction::Notify;
    let target = Target { org: token.org, user: None, key: None };
    if acts && !is_announced {
        token.revoked = Some(now);
    }
    // Looked up before the change: a failure afterwards would hide that it was made.
    let shown = show_found(management, by.actor, token, now).await?;
    if !acts {
        return Ok(Some(shown));
    }
    let place = place(leak);
    if is_announced {
        if announce(management, TOKEN_LEAKED, &format!("{id}/{place}"), target, now).await? {
            tracing::warn!(token = %id, place, "a management token has leaked; revoke it: `keygate token revoke`");
        }
        return Ok(Some(shown));
    }
    let (change, path) = (Change::RevokeToken { token: id, at: now }, format!("token.revoke/{id}/leak/{place}"));
    apply_change_at(management, "token.revoke", &path, target, change, by).await?;
    tracing::warn!(token = %id, place, "a management token has leaked and is revoked; look at what it has made");
    Ok(Some(shown))
}

/// Revokes the key whose secret this client presents. Returns whether one was revoked.
///
/// # Errors
/// Those of the state and of the journal.
pub async fn revoke_own_key(
    management: &Management,
    digest: &KeyDigest,
    client: ClientInfo,
    now: Micros,
) -> Result<bool, ManagementError> {
    let actor = Actor::gateway(client);
    let Some(owned) = key_with_secret(management, &actor, digest).await? else { return Ok(false) };
    if is_spent(management, &show_owned(management, &owned, now), digest, now).await? {
        return Ok(false);
    }
    let change = Change::RevokeKey { key: owned.key.id, at: now };
    let by = AuditActor { actor: &actor, now };
    apply_change_at(management, "key.revoke", "key.revoke/self", Target::of_key(&owned.key), change, by).await?;
    Ok(true)
}

/// The key that has, or had, a secret.
async fn key_with_secret(
    management: &Management,
    actor: &Actor,
    digest: &KeyDigest,
) -> Result<Option<OwnedKey>, ManagementError> {
    let Some(id) = management.state.key_of(digest).await? else { return Ok(None) };
    match find_key(management, actor, id).await {
        Err(ManagementError::NoKey(_)) => Ok(None),
        found => found.map(Some),
    }
}

/// Returns whether a secret is of no use any more.
async fn is_spent(
    management: &Management,
    key: &Key,
    digest: &KeyDigest,
    now: Micros,
) -> Result<bool, ManagementError> {
    match key.status {
        KeyStatus::Revoked => Ok(true),
        // Of a key that is refused for another reason, no secret is known to be replaced.
        KeyStatus::Active if key.rotated.is_some() => is_replaced(management, key, digest, now).await,
        _ => Ok(false),
    }
}

/// Does what the configuration says, once for each place and secret. Returns whether it did something.
async fn act(
    management: &Management,
    key: &state::Key,
    (digest, place): (&KeyDigest, &str),
    by: AuditActor<'_>,
) -> Result<bool, ManagementError> {
    let (target, now) = (Target::of_key(key), by.now);
    if management.leak_action == LeakAction::Notify {
        return announce(management, KEY_LEAKED, place, target, now).await;
    }
    let policy = key.policy.as_deref();
    let enabled = policy.and_then(|policy| policy.enabled).unwrap_or_default();
    let claim = Change::claim(
        &format!("leak {} {place}", digest.to_hex()),
        &enabled.0.to_be_bytes(),
        now.after(LEAK_REMEMBERED),
    );
    match management.state.change(claim).await {
        // It was enabled after this report.
        Err(ChangeError::Taken(_)) => return Ok(false),
        Ok(()) | Err(ChangeError::NotReplicated { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let (operation, change) = match management.leak_action {
        LeakAction::Revoke => ("key.revoke", Change::RevokeKey { key: key.id, at: now }),
        _ if policy.and_then(|policy| policy.disabled).is_some_and(|disabled| disabled.by == DisabledBy::Leak) => {
            return Ok(false);
        }
        _ => {
            let disabled = Field::Set(Disabled { at: now, by: DisabledBy::Leak });
            let patch = PolicyPatch { disabled, ..PolicyPatch::default() };
            ("key.disable", Change::set_key_policy(key.id, Box::new(patch), by.actor.policy_scope(now)))
        }
    };
    apply_change_at(management, operation, &format!("{operation}/leak/{place}"), target, change, by).await?;
    Ok(true)
}

/// Records a leak without a change, once for each place and target. Returns whether it was recorded now.
async fn announce(
    management: &Management,
    action: &str,
    detail: &str,
    target: Target,
    now: Micros,
) -> Result<bool, ManagementError> {
    let announcement =
        Announcement { action, path: format!("{action}/{detail}"), target, until: now.after(LEAK_REMEMBERED) };
    announcement.record(management, Uuid::now_v7(), now).await
}

/// The place of a leak as records name it: without secrets, in visible ASCII, and cut.
fn place(leak: &Leak<'_>) -> String {
    let source = if leak.source.is_empty() { "unknown" } else { leak.source };
    let text = format!("{source}/{}", leak.url);
    let text = String::from_utf8_lossy(&redact(text.as_bytes())).into_owned();
    utf8_percent_encode(&text, ENCODED).flat_map(str::chars).take(PLACE_LENGTH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_short_visible_ascii_without_secrets() {
        let secret = Secret::new("sk_live_abcdefghi_".to_owned() + &"x".repeat(49));
        let place = |source, url: &str| place(&Leak { secret: &secret, source, url });
        let url = "https://github.com/a/b/blob/0123/c.txt";
        assert_eq!(place("commit", url), format!("commit/{url}"));
        assert_eq!(place("", ""), "unknown/");
        assert_eq!(place("a\nb", "\u{e4} \"\r"), "a%0Ab/%C3%A4%20%22%0D");
        assert_eq!(place("commit", secret.expose()), "commit/sk_live_abcdefghi_%E2%80%A6");
        assert_eq!(place("commit", &"\u{e4}".repeat(1000)).len(), PLACE_LENGTH);
    }
}
