//! What is made of a provider's claims: who somebody is, where they belong, and what they may.
//!
//! Pure: claims go in, and what management is told comes out. A claim is named as it is, or, where it is within another, by
//! a JSON pointer (RFC 6901) such as `/realm_access/roles`. Its value is a text or a list of texts.

use serde_json::{Map, Value};

use crate::identity::Permission;
use crate::management::Entitlements;

/// How a provider's claims are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimMapping {
    /// The claim of the email address.
    pub email: String,
    /// Whether an address is believed that the provider does not call verified.
    pub accept_unverified: bool,
    /// Where people belong to, by their claims; none: by the directory.
    pub orgs: Option<Claim<String>>,
    /// The organizations, by name or id, that the provider may speak for; none: all.
    pub only: Option<Vec<String>>,
    /// What people may do, by their claims; none: what the directory says.
    pub permissions: Option<Claim<Vec<Permission>>>,
}

/// A claim, and what its values stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim<T> {
    /// Its name, or a JSON pointer to it.
    pub name: String,
    /// What each value stands for. Of values that are not listed, an organization's stands for itself and a permission's
    /// for nothing; without any, a permission's stands for itself.
    pub map: Vec<(String, T)>,
}

/// Why claims do not say who somebody is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// There is no email address.
    #[error("the identity provider does not say which email address you have")]
    NoEmail,
    /// The address is not verified.
    #[error("the identity provider has not verified your email address")]
    Unverified,
}

impl ClaimMapping {
    /// The email address that the claims show.
    ///
    /// # Errors
    /// [`ClaimError`] when there is none that can be believed.
    pub fn email(&self, claims: &Map<String, Value>) -> Result<String, ClaimError> {
        let email = find(claims, &self.email).and_then(Value::as_str).ok_or(ClaimError::NoEmail)?;
        // Some providers write it as a text.
        let verified = claims.get("email_verified").is_some_and(|verified| *verified == true || *verified == "true");
        // It speaks of `email` alone (OpenID Connect Core 1.0, section 5.1), and not of another claim's address.
        let is_it = claims.get("email").is_some_and(|spoken_of| spoken_of == email);
        if (verified && is_it) || self.accept_unverified { Ok(email.to_owned()) } else { Err(ClaimError::Unverified) }
    }

    /// The claims that are read, each by the name that it has at the top.
    pub fn claims(&self) -> Vec<String> {
        let named = [Some(&self.email), self.orgs.as_ref().map(|claim| &claim.name)];
        let permissions = self.permissions.as_ref().map(|claim| &claim.name);
        named.into_iter().flatten().chain(permissions).filter_map(|name| top(name)).collect()
    }

    /// Where the person belongs, and what they may.
    pub fn entitlements(&self, claims: &Map<String, Value>) -> Entitlements {
        let orgs = self.orgs.as_ref().map(|claim| {
            let of = |value: String| claim.of(&value).cloned().unwrap_or(value);
            values(claims, &claim.name).into_iter().map(of).collect()
        });
        let permissions = self.permissions.as_ref().map(|claim| {
            let itself = |value: &str| value.parse().map(|permission| vec![permission]).unwrap_or_default();
            let of = |value: String| match claim.of(&value) {
                Some(permissions) => permissions.clone(),
                None if claim.map.is_empty() => itself(&value),
                None => Vec::new(),
            };
            values(claims, &claim.name).into_iter().flat_map(of).collect()
        });
        Entitlements { orgs, only: self.only.clone(), permissions }
    }
}

impl<T> Claim<T> {
    fn of(&self, value: &str) -> Option<&T> {
        self.map.iter().find(|(given, _)| given == value).map(|(_, stands_for)| stands_for)
    }
}

/// The claim that a name, or a pointer, begins with.
fn top(name: &str) -> Option<String> {
    match name.strip_prefix('/') {
        None => Some(name.to_owned()),
        Some(pointer) => pointer.split('/').next().map(|first| first.replace("~1", "/").replace("~0", "~")),
    }
}

fn find<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let claim = claims.get(&top(name)?)?;
    match name.strip_prefix('/') {
        None => Some(claim),
        Some(pointer) => claim.pointer(pointer.find('/').map_or("", |rest| &pointer[rest..])),
    }
}

/// The texts of a claim.
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
    fn only_a_verified_address_is_believed() {
        let of = |value| mapping().email(&claims(&value));
        assert_eq!(of(json!({"email": "a@b", "email_verified": true})), Ok("a@b".into()));
        assert_eq!(of(json!({"email": "a@b", "email_verified": "true"})), Ok("a@b".into()));
        for unverified in [json!({"email": "a@b"}), json!({"email": "a@b", "email_verified": false})] {
            assert_eq!(of(unverified.clone()), Err(ClaimError::Unverified));
            let believing = ClaimMapping { accept_unverified: true, ..mapping() };
            assert_eq!(believing.email(&claims(&unverified)), Ok("a@b".into()));
        }
        assert_eq!(of(json!({"email_verified": true})), Err(ClaimError::NoEmail));
        assert_eq!(of(json!({"email": ["a@b"], "email_verified": true})), Err(ClaimError::NoEmail));
    }

    #[test]
    fn what_is_said_of_one_address_is_not_believed_of_another() {
        let mapping = ClaimMapping { email: "upn".into(), ..mapping() };
        let of = |value| mapping.email(&claims(&value));
        for other in [
            json!({"upn": "boss@b", "email": "a@b", "email_verified": true}),
            json!({"upn": "boss@b", "email_verified": true}),
        ] {
            assert_eq!(of(other), Err(ClaimError::Unverified));
        }
        assert_eq!(of(json!({"upn": "a@b", "email": "a@b", "email_verified": true})), Ok("a@b".into()));
        let believing = ClaimMapping { accept_unverified: true, ..mapping.clone() };
        assert_eq!(believing.email(&claims(&json!({"upn": "boss@b", "email": "a@b"}))), Ok("boss@b".into()));
    }

    #[test]
    fn claims_stand_for_organizations_and_permissions() {
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
