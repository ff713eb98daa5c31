//! Spoofable fields that the configuration lets through, by name: never the identity, never a reserved name.

use std::str::FromStr;
use std::sync::Arc;

use http::HeaderName;

use super::{field_names, hop_by_hop};
use domain::head_fields::Removal;

/// Spoofable fields that are forwarded all the same. Clones share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassedFields(Arc<[HeaderName]>);

/// Reason why a field cannot be let through by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPassedField {
    /// The name has characters that no field name has, or that some servers fold into another name.
    #[error("is not the name of a field; give letters, digits and `-`, such as X-Real-IP")]
    Name,
    /// Only the gateway sets the field, or the field would name a caller.
    #[error("is set by the gateway, or names the caller, and never passes; remove it")]
    Reserved,
    /// The field is for one connection only.
    #[error("is for one connection only, and never passes; remove it")]
    HopByHop,
    /// The field is not removed in the first place.
    #[error("is forwarded anyway; remove it")]
    NotRemoved,
}

impl PassedFields {
    /// Fields with these names.
    pub fn new(names: &[PassedField]) -> Self {
        Self(names.iter().map(|name| name.0.clone()).collect())
    }

    /// Their names.
    pub fn names(&self) -> &[HeaderName] {
        &self.0
    }
}

/// Name of a field that may be let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedField(HeaderName);

impl FromStr for PassedField {
    type Err = InvalidPassedField;

    fn from_str(text: &str) -> Result<Self, InvalidPassedField> {
        let name = HeaderName::try_from(text).map_err(|_| InvalidPassedField::Name)?;
        if !field_names::is_plain(&name) {
            return Err(InvalidPassedField::Name);
        }
        match Removal::of(name.as_str().as_bytes()) {
            _ if hop_by_hop::contains(&name) => Err(InvalidPassedField::HopByHop),
            Some(Removal::Spoofable) => Ok(Self(name)),
            Some(Removal::Connection) => Err(InvalidPassedField::HopByHop),
            Some(Removal::Reserved) => Err(InvalidPassedField::Reserved),
            None => Err(InvalidPassedField::NotRemoved),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_spoofable_fields_can_be_let_through() {
        let parse = |name: &str| name.parse::<PassedField>().map(|field| field.0.to_string());
        assert_eq!(parse("X-Real-IP"), Ok("x-real-ip".to_owned()));
        assert_eq!(parse("x-envoy-max-retries"), Ok("x-envoy-max-retries".to_owned()));
        for reserved in ["X-User-Id", "Authorization", "X-Forwarded-Prefix", "Remote-User", "CF-Access-Jwt-Assertion"] {
            assert_eq!(parse(reserved), Err(InvalidPassedField::Reserved), "{reserved}");
        }
        for connection in ["HTTP2-Settings", "Upgrade", "Connection", "TE"] {
            assert_eq!(parse(connection), Err(InvalidPassedField::HopByHop), "{connection}");
        }
        for kept in ["Accept", "X-Trace"] {
            assert_eq!(parse(kept), Err(InvalidPassedField::NotRemoved), "{kept}");
        }
        for odd in ["", "X_Real_IP", "x real", "X-Envoy-*"] {
            assert_eq!(parse(odd), Err(InvalidPassedField::Name), "{odd}");
        }
    }
}
