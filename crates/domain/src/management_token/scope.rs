//! Scopes of a management token: the operations that it may perform.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Scope of a management token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TokenScope {
    /// Reads organizations.
    OrgsRead,
    /// Creates and changes organizations; one of all organizations only may create them.
    OrgsWrite,
    /// Reads users.
    UsersRead,
    /// Creates, changes and removes users.
    UsersWrite,
    /// Reads keys.
    KeysRead,
    /// Creates keys.
    KeysCreate,
    /// Gives keys new secrets.
    KeysRotate,
    /// Revokes keys.
    KeysRevoke,
    /// Changes, disables and enables keys.
    KeysSet,
    /// Reports leaked keys.
    KeysLeak,
    /// Reads the usage of keys and organizations.
    UsageRead,
    /// Reads the audit.
    AuditRead,
    /// Exports the state.
    StateExport,
    /// Lists, creates and revokes tokens.
    TokensManage,
}

/// Error: the text is not a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a scope is one of {}", TokenScope::ALL.map(TokenScope::as_str).join(", "))]
pub struct InvalidScope;

impl TokenScope {
    /// All scopes.
    pub const ALL: [Self; 14] = [
        Self::OrgsRead,
        Self::OrgsWrite,
        Self::UsersRead,
        Self::UsersWrite,
        Self::KeysRead,
        Self::KeysCreate,
        Self::KeysRotate,
        Self::KeysRevoke,
        Self::KeysSet,
        Self::KeysLeak,
        Self::UsageRead,
        Self::AuditRead,
        Self::StateExport,
        Self::TokensManage,
    ];

    /// The scope as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OrgsRead => "orgs:read",
            Self::OrgsWrite => "orgs:write",
            Self::UsersRead => "users:read",
            Self::UsersWrite => "users:write",
            Self::KeysRead => "keys:read",
            Self::KeysCreate => "keys:create",
            Self::KeysRotate => "keys:rotate",
            Self::KeysRevoke => "keys:revoke",
            Self::KeysSet => "keys:set",
            Self::KeysLeak => "keys:leak",
            Self::UsageRead => "usage:read",
            Self::AuditRead => "audit:read",
            Self::StateExport => "state:export",
            Self::TokensManage => "tokens:manage",
        }
    }
}

impl fmt::Display for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for TokenScope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text).ok_or(InvalidScope)
    }
}

impl TryFrom<String> for TokenScope {
    type Error = InvalidScope;

    fn try_from(text: String) -> Result<Self, InvalidScope> {
        text.parse()
    }
}

impl From<TokenScope> for String {
    fn from(scope: TokenScope) -> Self {
        scope.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scope_is_parsed_from_its_text() {
        for scope in TokenScope::ALL {
            assert_eq!(scope.as_str().parse(), Ok(scope));
        }
        assert_eq!("keys:*".parse::<TokenScope>(), Err(InvalidScope));
        assert!(InvalidScope.to_string().ends_with("state:export, tokens:manage"));
    }
}
