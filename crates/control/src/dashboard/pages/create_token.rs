//! The form that creates a management token.

use askama::Template;

use super::layout::Layout;
use domain::management_token::TokenScope;

/// The form. Fields: `name`, `scope`, once for each that is ticked, `expiry` and `networks`.
#[derive(Clone, Debug, Template)]
#[template(path = "create_token.html")]
pub struct CreateTokenPage {
    /// Page frame.
    pub layout: Layout,
    /// The name that was entered.
    pub name: String,
    /// The scopes to choose from.
    pub scopes: Vec<ScopeChoice>,
    /// The selected expiry.
    pub expiry: TokenExpiry,
    /// The networks that were entered, one on a line.
    pub networks: String,
    /// Errors in what was submitted.
    pub errors: TokenErrors,
}

/// A scope to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeChoice {
    /// The scope.
    pub scope: TokenScope,
    /// True if it is ticked.
    pub is_ticked: bool,
}

/// Expiry of a token in a form: after so many days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenExpiry(u16);

/// Errors in what was submitted, by field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenErrors {
    /// In the name.
    pub name: Option<String>,
    /// In the scopes.
    pub scopes: Option<String>,
    /// In the expiry.
    pub expiry: Option<String>,
    /// In the networks.
    pub networks: Option<String>,
    /// In no single field.
    pub general: Option<String>,
}

impl ScopeChoice {
    /// The operations that the scope allows in an organization, as a sentence.
    pub fn sentence(&self) -> &'static str {
        match self.scope {
            TokenScope::OrgsRead => "Read the organization, with its limits and its policy for new keys.",
            TokenScope::OrgsWrite => "Change the organization.",
            TokenScope::UsersRead => "List users, with their permissions.",
            TokenScope::UsersWrite => "Suspend and resume users.",
            TokenScope::KeysRead => "List keys, with what each may do, and see why one is refused.",
            TokenScope::KeysCreate => "Create keys for every user, and so act as anyone in the organization.",
            TokenScope::KeysRotate => "Give keys new secrets, and so act as their owners.",
            TokenScope::KeysRevoke => "Revoke keys, for good.",
            TokenScope::KeysSet => "Change the policies of keys; disable and enable keys.",
            TokenScope::KeysLeak => "Report keys that have leaked, which disables or revokes them.",
            TokenScope::UsageRead => "Read which requests were made with keys.",
            TokenScope::AuditRead => "Read the changes of the organization.",
            TokenScope::StateExport => "Export the state.",
            TokenScope::TokensManage => "List and revoke the tokens of the organization; create some that do no more.",
        }
    }
}

impl TokenExpiry {
    /// The expiries to choose from.
    pub const ALL: [Self; 4] = [Self(30), Self(90), Self(180), Self(366)];

    /// Days until the token expires.
    pub fn days(self) -> u16 {
        self.0
    }

    /// Submitted value.
    pub fn value(self) -> String {
        format!("{}d", self.0)
    }

    /// The expiry with this submitted value.
    pub fn from_value(value: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|expiry| expiry.value() == value)
    }
}

impl Default for TokenExpiry {
    fn default() -> Self {
        Self(90)
    }
}

impl TokenErrors {
    /// All errors, each with the id of its field.
    pub fn all(&self) -> Vec<(&'static str, &str)> {
        let fields = [
            ("main", &self.general),
            ("name", &self.name),
            ("scopes", &self.scopes),
            ("expiry", &self.expiry),
            ("networks", &self.networks),
        ];
        fields.into_iter().filter_map(|(field, error)| Some((field, error.as_deref()?))).collect()
    }
}
