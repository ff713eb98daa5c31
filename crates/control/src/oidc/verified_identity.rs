//! Verified identity: the claims of the ID token and of userinfo, merged.

use std::fmt;

use serde_json::{Map, Value};

use domain::secret::Secret;

/// Claims about the token rather than the user, which are never taken from userinfo.
const TOKEN_CLAIMS: [&str; 12] =
    ["iss", "sub", "aud", "exp", "iat", "nbf", "jti", "nonce", "azp", "at_hash", "c_hash", "auth_time"];

/// Identity of a user who signed in, as the provider vouches for it.
///
/// - `email_verified` holds for exactly this `email`: it counts only from a response (ID token or userinfo) that
///   has the same address.
/// - `claims` are those of the ID token, and those of userinfo that the ID token does not have.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifiedIdentity {
    /// `sub`: the user's id at this provider, which is never reassigned.
    pub subject: String,
    /// The email address.
    pub email: Option<String>,
    /// `true`: the provider has verified that the address is the user's.
    pub email_verified: bool,
    /// The user's name.
    pub name: Option<String>,
    /// All claims.
    pub claims: Map<String, Value>,
    /// The ID token, for `id_token_hint`; see [`super::Provider::sign_out_url`].
    pub id_token: Secret,
}

impl VerifiedIdentity {
    /// Merges the claims of a verified ID token and of userinfo, which may be empty.
    pub(super) fn new(id_token: Secret, token: Map<String, Value>, userinfo: Map<String, Value>) -> Self {
        // The ID token is signed; userinfo is not. So userinfo never replaces a claim.
        let email = text(&token, "email").or_else(|| text(&userinfo, "email"));
        let email_verified = email.as_ref().is_some_and(|email| [&token, &userinfo].iter().any(|c| verifies(c, email)));
        let subject = text(&token, "sub").unwrap_or_default();
        let mut claims = token;
        for (name, value) in userinfo {
            if !TOKEN_CLAIMS.contains(&name.as_str()) {
                claims.entry(name).or_insert(value);
            }
        }
        if email.is_some() {
            claims.insert("email_verified".into(), email_verified.into());
        }
        Self { subject, email, email_verified, name: text(&claims, "name"), claims, id_token }
    }
}

/// A claim that is text and not empty.
fn text(claims: &Map<String, Value>, name: &str) -> Option<String> {
    claims.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Returns whether these claims verify this address. Some providers write `"true"` as text.
fn verifies(claims: &Map<String, Value>, email: &str) -> bool {
    let verified = match claims.get("email_verified") {
        Some(Value::Bool(verified)) => *verified,
        Some(Value::String(verified)) => verified == "true",
        _ => false,
    };
    verified && claims.get("email").and_then(Value::as_str) == Some(email)
}

impl fmt::Debug for VerifiedIdentity {
    /// Without the claims: personal data does not belong into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedIdentity").field("email_verified", &self.email_verified).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verified(token: Value, userinfo: Value) -> VerifiedIdentity {
        let map = |value: Value| value.as_object().unwrap().clone();
        VerifiedIdentity::new(Secret::new(String::new()), map(token), map(userinfo))
    }

    #[test]
    fn email_is_verified_only_by_the_response_that_has_it() {
        for (token, userinfo, email, is_verified) in [
            (json!({"email": "a@x"}), json!({}), Some("a@x"), false),
            (json!({"email": "a@x", "email_verified": true}), json!({}), Some("a@x"), true),
            (json!({"email": "a@x", "email_verified": "true"}), json!({}), Some("a@x"), true),
            (json!({"email": "a@x", "email_verified": "false"}), json!({}), Some("a@x"), false),
            (json!({"email": "a@x", "email_verified": 1}), json!({}), Some("a@x"), false),
            (json!({}), json!({"email": "a@x", "email_verified": true}), Some("a@x"), true),
            (json!({"email": "a@x"}), json!({"email": "a@x", "email_verified": true}), Some("a@x"), true),
            (json!({"email": "a@x"}), json!({"email": "b@x", "email_verified": true}), Some("a@x"), false),
            (json!({"email_verified": true}), json!({"email": "b@x"}), Some("b@x"), false),
            (json!({"email_verified": true}), json!({}), None, false),
            (json!({"email": "", "email_verified": true}), json!({}), None, false),
        ] {
            let verified = verified(token.clone(), userinfo.clone());
            assert_eq!(verified.email.as_deref(), email, "{token} {userinfo}");
            assert_eq!(verified.email_verified, is_verified, "{token} {userinfo}");
            if email.is_some() {
                assert_eq!(verified.claims["email_verified"], is_verified, "{token} {userinfo}");
            }
        }
    }

    #[test]
    fn userinfo_adds_claims_and_replaces_none() {
        let token = json!({"sub": "s", "iss": "i", "groups": ["a"]});
        let userinfo = json!({"sub": "s", "groups": ["b"], "name": "N", "aud": "x", "exp": 1});
        let verified = verified(token, userinfo);
        assert_eq!(Value::from(verified.claims), json!({"sub": "s", "iss": "i", "groups": ["a"], "name": "N"}));
        assert_eq!((verified.subject.as_str(), verified.name.as_deref()), ("s", Some("N")));
    }
}
