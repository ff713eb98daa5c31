//! The way of a new key, or of a new management token, to the page that shows it.
//!
//! A form that creates or rotates a key is answered by a redirect, so that a reload repeats nothing. The key, which is
//! not stored, goes with the browser, sealed; and so does a management token:
//!
//! - A sealed key opens for the web session that created or rotated it, for this key, and only while its secret is the
//!   newest one, for [`SEALED_KEY_LIFETIME`]. A sealed token opens for the session that created it, for this token.
//! - Neither the state nor a URL has it. The browser gets it in a cookie, and deletes it with the
//!   page that shows the key.

use std::time::Duration;

use super::sealed_text::TextSealer;
use super::{ApiKey, Key, Management, ManagementError, NewKey, NewToken, SignedInUser};
use domain::clock::Micros;
use domain::identity::SessionId;
use domain::management_token::TokenId;
use state::CursorSecret;

/// Time in which a new key can be shown: a redirect follows at once, also over a slow connection, and people do not
/// wait longer for a page.
pub const SEALED_KEY_LIFETIME: Duration = Duration::from_secs(120);

/// Purpose of the sealed texts; a change of their content gets the next number.
const PURPOSE: &str = "keygate new keys 1";
/// The same for tokens.
const TOKEN_PURPOSE: &str = "keygate new management tokens 1";
/// Characters of a sealed key or token at most: a time and a key of a little less than 100 characters.
const MAX_TEXT: usize = 300;

/// Seals and opens new keys and management tokens for the pages of one web session.
pub struct KeySealer {
    secret: CursorSecret,
    session: SessionId,
}

/// The sealer for a user's session. It is taken before the key is created: afterwards no failure
/// may lose the secret.
///
/// # Errors
/// [`ManagementError::StateUnavailable`].
pub async fn key_sealer(management: &Management, user: &SignedInUser) -> Result<KeySealer, ManagementError> {
    Ok(KeySealer { secret: management.state.cursor_secret().await?, session: user.session.id })
}

impl KeySealer {
    /// Seals a new key for the page that shows it.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub fn seal(&self, new: &NewKey, now: Micros) -> Result<String, ManagementError> {
        let Some(api_key) = &new.api_key else { unreachable!("people give no digests: the secret was made here") };
        seal(&self.sealer(&new.key), api_key, now)
    }

    /// Seals a new management token for the page that shows it.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub fn seal_token(&self, new: &NewToken, now: Micros) -> Result<String, ManagementError> {
        seal(&self.token_sealer(new.token.id), &new.secret, now)
    }

    /// Opens a sealed key; `None` when it has expired, was replaced since, or is not as it was sealed for
    /// this session and key.
    pub fn open(&self, key: &Key, sealed: &str, now: Micros) -> Option<ApiKey> {
        open(&self.sealer(key), sealed, now)
    }

    /// Opens a sealed management token; `None` when it has expired, or is not as it was sealed for this session and
    /// token.
    pub fn open_token(&self, token: TokenId, sealed: &str, now: Micros) -> Option<ApiKey> {
        open(&self.token_sealer(token), sealed, now)
    }

    fn sealer(&self, key: &Key) -> TextSealer {
        TextSealer::new(&self.secret, PURPOSE, &(self.session, key.id, key.rotated.map(|rotated| rotated.0)))
    }

    fn token_sealer(&self, token: TokenId) -> TextSealer {
        TextSealer::new(&self.secret, TOKEN_PURPOSE, &(self.session, token.as_str()))
    }
}

fn seal(sealer: &TextSealer, secret: &ApiKey, now: Micros) -> Result<String, ManagementError> {
    let expires = now.after(SEALED_KEY_LIFETIME);
    Ok(sealer.seal(&format!("{} {}", expires.0, secret.expose()))?)
}

fn open(sealer: &TextSealer, sealed: &str, now: Micros) -> Option<ApiKey> {
    let text = sealer.open(sealed, MAX_TEXT)?;
    let (expires, secret) = text.expose().split_once(' ')?;
    let expires: u64 = expires.parse().ok()?;
    (now < Micros(expires)).then(|| ApiKey::from_sealed(secret))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::management::{KeyLimits, KeyStatus, UserKind};
    use domain::identity::{OrgId, UserId};
    use domain::key::policy::KeyPolicy;
    use domain::key::{KeyId, OrgTag, PlainKey};
    use domain::management_token::PlainToken;

    fn new_key() -> NewKey {
        let id = KeyId::generate(OrgTag::generate().unwrap()).unwrap();
        let limits = KeyLimits {
            requests: 1,
            per: Duration::from_secs(1),
            burst: 1,
            strict: false,
            own: false,
            quota: None,
            plan: None,
        };
        let key = Key {
            id,
            name: "laptop".into(),
            org: OrgId::generate(),
            user: UserId::generate(),
            email: "ada@example.com".into(),
            user_kind: UserKind::Person,
            responsible: None,
            status: KeyStatus::Active,
            limits,
            plan: None,
            quota: None,
            policy: KeyPolicy::default(),
            imported: false,
            uses: 0,
            last_used: None,
            created: Micros(1),
            created_by: None,
            rotated: Some(Micros(2)),
            rotated_by: None,
            previous_until: None,
            revoked: None,
            revoked_by: None,
            marks: Vec::new(),
            etag: None,
        };
        NewKey { api_key: Some(ApiKey::from(&PlainKey::generate(id).unwrap())), key, warning: None }
    }

    #[test]
    fn sealed_key_opens_for_its_session_its_key_and_its_secret_until_it_expires() {
        let sealer =
            |secret: u8| KeySealer { secret: CursorSecret::from_bytes([secret; 32]), session: SessionId::generate() };
        let own = sealer(7);
        let new = new_key();
        let now = Micros(1_000_000);
        let sealed = own.seal(&new, now).unwrap();
        assert!(sealed.len() <= MAX_TEXT && !sealed.contains(new.api_key.as_ref().unwrap().expose()));
        let last = Micros(now.after(SEALED_KEY_LIFETIME).0 - 1);
        for time in [now, last] {
            assert_eq!(own.open(&new.key, &sealed, time), new.api_key.clone());
        }
        assert_eq!(own.open(&new.key, &sealed, now.after(SEALED_KEY_LIFETIME)), None, "expired");
        assert_eq!(sealer(7).open(&new.key, &sealed, now), None, "another session");
        let elsewhere = KeySealer { session: own.session, ..sealer(8) };
        assert_eq!(elsewhere.open(&new.key, &sealed, now), None, "another installation");
        let other = Key { id: new_key().key.id, ..new.key.clone() };
        let rotated = Key { rotated: Some(Micros(3)), ..new.key.clone() };
        for (key, what) in [(other, "another key"), (rotated, "a newer secret")] {
            assert_eq!(own.open(&key, &sealed, now), None, "{what}");
        }
        for text in ["", "x", &sealed[1..], &"A".repeat(10_000)] {
            assert_eq!(own.open(&new.key, text, now), None, "{text}");
        }
    }
    #[test]
    fn sealed_token_opens_for_its_session_and_its_id_until_it_expires() {
        let sealer = KeySealer { secret: CursorSecret::from_bytes([7; 32]), session: SessionId::generate() };
        let other = KeySealer { secret: CursorSecret::from_bytes([7; 32]), session: SessionId::generate() };
        let [plain, another] = [PlainToken::generate().unwrap(), PlainToken::generate().unwrap()];
        let (secret, now) = (ApiKey::from_token(&plain), Micros(1_000_000));
        let sealed = seal(&sealer.token_sealer(plain.id()), &secret, now).unwrap();
        assert!(sealed.len() <= MAX_TEXT && !sealed.contains(secret.expose()));
        assert_eq!(sealer.open_token(plain.id(), &sealed, now), Some(secret));
        assert_eq!(sealer.open_token(plain.id(), &sealed, now.after(SEALED_KEY_LIFETIME)), None, "expired");
        assert_eq!(sealer.open_token(another.id(), &sealed, now), None, "another token");
        assert_eq!(other.open_token(plain.id(), &sealed, now), None, "another session");
        assert_eq!(sealer.open(&new_key().key, &sealed, now), None, "a key");
    }
}
