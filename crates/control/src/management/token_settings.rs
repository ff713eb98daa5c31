//! Settings of a new management token, and their checks: within bounds, and within the rights of its creator.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Actor, ManagementError};
use domain::clock::{self, Micros};
use domain::key::policy::Network;
use domain::management_token::{DEFAULT_DAYS, MAX_DAYS, MAX_NETWORKS, ManagementToken, TokenScope};

/// Bytes of a subject alternative name at most.
const MAX_SAN: usize = 255;
/// Microseconds of a day.
const DAY_US: u64 = 24 * 3600 * 1_000_000;
/// Scopes that an administrator of an organization may give to a token of it.
const ADMIN_SCOPES: [TokenScope; 11] = [
    TokenScope::OrgsRead,
    TokenScope::UsersRead,
    TokenScope::UsersWrite,
    TokenScope::KeysRead,
    TokenScope::KeysCreate,
    TokenScope::KeysRotate,
    TokenScope::KeysRevoke,
    TokenScope::KeysSet,
    TokenScope::UsageRead,
    TokenScope::AuditRead,
    TokenScope::TokensManage,
];

/// Settings of a token that is to be created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenSettings {
    /// Its name.
    pub name: String,
    /// Id or name of the only organization that it manages; none for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org: Option<String>,
    /// Operations that it may perform, one at least.
    pub allow: BTreeSet<TokenScope>,
    /// Time from which it is refused, at most 366 days from now; none for 90 days from now.
    #[serde(default, with = "clock::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub expires: Option<Micros>,
    /// Networks from which it is accepted; none for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Network>,
    /// Subject alternative name that the client's certificate has to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_san: Option<String>,
}

/// The expiry of a token for which none is asked: never after that of the token that creates it.
pub(super) fn default_expiry(actor: &Actor, now: Micros) -> Micros {
    let default = Micros(now.0 + DEFAULT_DAYS * DAY_US);
    if let Actor::Program(program) = actor { default.min(program.token.expires) } else { default }
}

/// Checks the settings of a token that is created `now`.
pub(super) fn check_settings(token: &ManagementToken, now: Micros) -> Result<(), ManagementError> {
    let last = Micros(now.0 + MAX_DAYS * DAY_US);
    let is_name =
        |san: &String| !san.is_empty() && san.len() <= MAX_SAN && san.bytes().all(|byte| byte.is_ascii_graphic());
    let invalid = if token.scopes.is_empty() {
        "a token needs one scope at least"
    } else if token.expires <= now {
        "the token would have expired already"
    } else if token.expires > last {
        "a token expires after 366 days at most"
    } else if token.networks.len() > MAX_NETWORKS {
        "a token has 32 networks at most"
    } else if !token.client_san.iter().all(is_name) {
        "the name of a certificate has 1 to 255 visible ASCII characters"
    } else if token.org.is_some() && token.scopes.contains(&TokenScope::StateExport) {
        "the state is exported by tokens of all organizations only"
    } else {
        return Ok(());
    };
    Err(ManagementError::InvalidToken(invalid))
}

/// Checks that a new token does not exceed the rights of its creator.
pub(super) fn check_creator(actor: &Actor, token: &ManagementToken) -> Result<(), ManagementError> {
    match actor {
        Actor::Program(program) if !token.is_within(&program.token) => Err(ManagementError::TokenExceeds(
            "organization, scopes, networks, certificate and expiry are those of its creator, or narrower",
        )),
        Actor::User(_) if !token.scopes.iter().all(|scope| ADMIN_SCOPES.contains(scope)) => {
            Err(ManagementError::TokenExceeds("administrators give no orgs:write and no state:export"))
        }
        _ => Ok(()),
    }
}
