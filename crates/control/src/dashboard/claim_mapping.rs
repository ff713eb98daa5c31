//! Mapping of an identity provider's claims to an email address, organizations and permissions.
//!
//! Pure: claims in, values for `management` out. A claim is given by its name or, where it is nested, by a JSON pointer
//! (RFC 6901) such as `/realm_access/roles`. Its value is a text or a list of texts.

use serde_json::{Map, Value};

use crate::management::{Entitlements, ManagementError};
use domain::identity::Permission;

/// The claims of a provider that are used, and the meaning of their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimMapping {
    /// Claim of the email address.
    pub email: String,
    /// True if addresses are accepted that the provider does not report as verified.
    pub accept_unverified: bool,
    /// Claim of the organizations; `None`: all those whose directory has the address.
    pub orgs: Option<Claim<String>>,
    /// Organizations, by name or id, that the provider may grant; `None`: all.
    pub only: Option<Vec<String>>,
    /// Claim of the permissions; `None`: those of the directory.
    pub permissions: Option<Claim<Vec<Permission>>>,
}

/// A claim, and the meaning of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim<T> {
    /// Name of the claim, or a JSON pointer to it.
    pub name: String,
    /// Values with their meanings. An unlisted value of the organizations' claim means itself. An unlisted value of the
    /// permissions' claim means itself when this list is empty, else nothing.
    pub map: Vec<(String, T)>,
}

/// Reason why claims do not identify a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// There is no email address, or it is not a text.
    #[error("the claims contain no email address")]
    NoEmail,
    /// The address is not verified.
    #[error("the email address is not verified by the identity provider")]
    Unverified,
}

impl From<ClaimError> for ManagementError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::NoEmail => Self::NoEmail,
            ClaimError::Unverified => Self::UnverifiedEmail,
        }
    }
}

impl ClaimMapping {
    /// The email address.
    ///
    /// # Errors
    /// [`ClaimError`] when there is none, or it is neither verified nor accepted without verification.
    pub fn email(&self, claims: &Map<String, Value>) -> Result<String, ClaimError> {
        let email = find(claims, &self.email).and_then(Value::as_str).ok_or(ClaimError::NoEmail)?;
        // Some providers send the boolean as a text.
        let verified = claims.get("email_verified").is_some_and(|verified| *verified == true || *verified == "true");
        // `email_verified` is about the claim `email` only (OpenID Connect Core 1.0, section 5.1). When the address
        // comes from another claim, it counts as verified only if it is the same address.
        let is_email_claim = claims.get("email").is_some_and(|claim| claim == email);
        if (verified && is_email_claim) || self.accept_unverified {
            Ok(email.to_owned())
        } else {
            Err(ClaimError::Unverified)
        }
    }

    /// Top-level names of all mapped claims, for requesting them from the provider.
    pub fn claims(&self) -> Vec<String> {
        let email_and_orgs = [Some(&self.email), self.orgs.as_ref().map(|claim| &claim.name)];
        let permissions = self.permissions.as_ref().map(|claim| &claim.name);
        email_and_orgs.into_iter().flatten().chain(permissions).filter_map(|name| top_level_name(name)).collect()
    }

    /// Organizations and permissions, as far as the mapping takes them from claims.
    pub fn entitlements(&self, claims: &Map<String, Value>) -> Entitlements {
        let orgs = self.orgs.as_ref().map(|claim| {
            let meaning = |value: String| claim.meaning(&value).cloned().unwrap_or(value);
            values(claims, &claim.name).into_iter().map(meaning).collect()
        });
        let permissions = self.permissions.as_ref().map(|claim| {
            let parse = |value: &str| value.parse().map(|permission| vec![permission]).unwrap_or_default();
            let meaning = |value: String| match claim.meaning(&value) {
                Some(permissions) => permissions.clone(),
                None if claim.map.is_empty() => parse(&value),
                // Once values are mapped, an unlisted one must not grant a permission that happens to have its name.
                None => Vec::new(),
            };
            values(claims, &claim.name).into_iter().flat_map(meaning).collect()
        });
        Entitlements { orgs, only: self.only.clone(), permissions }
    }
}

impl<T> Claim<T> {
    fn meaning(&self, value: &str) -> Option<&T> {
        self.map.iter().find(|(given, _)| given == value).map(|(_, meaning)| meaning)
    }
}

/// The top-level claim of a name or a JSON pointer.
fn top_level_name(name: &str) -> Option<String> {
    match name.strip_prefix('/') {
        None => Some(name.to_owned()),
        Some(pointer) => pointer.split('/').next().map(|first| first.replace("~1", "/").replace("~0", "~")),
    }
}

fn find<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let claim = claims.get(&top_level_name(name)?)?;
    match name.strip_prefix('/') {
        None => Some(claim),
        Some(pointer) => claim.pointer(pointer.find('/').map_or("", |rest| &pointer[rest..])),
    }
}

/// The texts of a claim: its value, or the items of its list.
fn values(claims: &Map<String, Value>, name: &str) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match find(claims, name) {
        Some(Value::Array(values)) => values.iter().filter_map(text).collect(),
        Some(value) => text(value).into_iter().collect(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mapping() -> ClaimMapping {
        ClaimMapping { email: "email".into(), accept_unverified: false, orgs: None, only: None, permissions: None }
    }

    fn claims(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn email_must_be_verified_unless_configured_otherwise() {
        let of = |value| mapping().email(&claims(&value));
        assert_eq!(of(json!({"email": "a@b", "email_verified": true})), Ok("a@b".into()));
        assert_eq!(of(json!({"email": "a@b", "email_verified": "true"})), Ok("a@b".into()));
        for unverified in [json!({"email": "a@b"}), json!({"email": "a@b", "email_verified": false})] {
            assert_eq!(of(unverified.clone()), Err(ClaimError::Unverified));
            let accepting = ClaimMapping { accept_unverified: true, ..mapping() };
            assert_eq!(accepting.email(&claims(&unverified)), Ok("a@b".into()));
        }
        assert_eq!(of(json!({"email_verified": true})), Err(ClaimError::NoEmail));
        assert_eq!(of(json!({"email": ["a@b"], "email_verified": true})), Err(ClaimError::NoEmail));
    }

    #[test]
    fn email_of_another_claim_is_not_verified_by_email_verified() {
        let mapping = ClaimMapping { email: "upn".into(), ..mapping() };
        let of = |value| mapping.email(&claims(&value));
        for other in [
            json!({"upn": "boss@b", "email": "a@b", "email_verified": true}),
            json!({"upn": "boss@b", "email_verified": true}),
        ] {
            assert_eq!(of(other), Err(ClaimError::Unverified));
        }
        assert_eq!(of(json!({"upn": "a@b", "email": "a@b", "email_verified": true})), Ok("a@b".into()));
        let accepting = ClaimMapping { accept_unverified: true, ..mapping.clone() };
        assert_eq!(accepting.email(&claims(&json!({"upn": "boss@b", "email": "a@b"}))), Ok("boss@b".into()));
    }

    #[test]
    fn claims_map_to_organizations_and_permissions() {
        let read: Permission = "queries:read".parse().unwrap();
        let admin: Permission = "org:admin".parse().unwrap();
        let mapped = ClaimMapping {
            orgs: Some(Claim { name: "org".into(), map: vec![("acme-corp".into(), "Acme".into())] }),
            permissions: Some(Claim {
                name: "/realm_access/roles".into(),
                map: vec![("boss".into(), vec![admin.clone(), read.clone()])],
            }),
            ..mapping()
        };
        let given = claims(&json!({"org": ["acme-corp", "Other", 7], "realm_access": {"roles": ["boss", "nothing"]}}));
        let entitlements = mapped.entitlements(&given);
        assert_eq!(entitlements.orgs, Some(vec!["Acme".to_owned(), "Other".to_owned()]));
        assert_eq!(entitlements.permissions, Some(vec![admin, read.clone()]));
        let nothing = mapped.entitlements(&Map::new());
        assert_eq!((nothing.orgs, nothing.permissions), (Some(vec![]), Some(vec![])));
        let plain = Claim { name: "https://example.com/roles".into(), map: vec![] };
        let plain = ClaimMapping { permissions: Some(plain), ..mapping() };
        let given = claims(&json!({"https://example.com/roles": ["queries:read", "Not A Permission"]}));
        assert_eq!(plain.entitlements(&given).permissions, Some(vec![read]));
        assert_eq!(mapping().entitlements(&given), Entitlements::default());
    }
}
