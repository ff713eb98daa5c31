//! A management token as management shows it: without its digest, with its status and its creator.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{ApiKey, KeyActor};
use domain::clock::{self, Micros};
use domain::identity::OrgId;
use domain::key::KeyId;
use domain::key::policy::Network;
use domain::management_token::{ManagementToken, TokenId, TokenScope, TokenUse};
use state;

/// Management token, as operations show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Its id.
    pub id: TokenId,
    /// Its name.
    pub name: String,
    /// The only organization that it manages; none for all.
    pub org: Option<OrgId>,
    /// Active, or the reason to refuse it.
    pub status: TokenStatus,
    /// Operations that it may perform.
    pub allow: BTreeSet<TokenScope>,
    /// Networks from which it is accepted; empty for any.
    pub networks: Vec<Network>,
    /// Subject alternative name that the client's certificate has to have.
    pub client_san: Option<String>,
    /// Time of its creation.
    #[serde(with = "clock::rfc3339")]
    pub created: Micros,
    /// Actor who created it.
    pub created_by: KeyActor,
    /// Time from which it is refused.
    #[serde(with = "clock::rfc3339")]
    pub expires: Micros,
    /// Time of its revocation.
    #[serde(with = "clock::rfc3339::option")]
    pub revoked: Option<Micros>,
    /// The last call that was authenticated with it; none when there was none.
    #[serde(default)]
    pub last_use: Option<TokenUse>,
    /// Descendants; in the answer of its revocation alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descendants: Option<Descendants>,
}

/// Status of a management token: active, or the first reason to refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenStatus {
    /// Calls are authenticated, from its networks.
    Active,
    /// It was revoked.
    Revoked,
    /// It has expired.
    Expired,
    /// The administrator who created it, or the token that did, is suspended, withdrawn or removed, or an administrator
    /// no longer. It works again when they are one.
    CreatorNotAdmin,
}

/// New token, with its text. `Debug` does not show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewToken {
    /// The token as lists show it.
    #[serde(flatten)]
    pub token: Token,
    /// Its text, to be shown once.
    #[serde(rename = "token")]
    pub secret: ApiKey,
}

/// Descendants of a token that was revoked: the tokens ended with it, the others as `ended` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descendants {
    /// Tokens that it made, and that these made.
    pub tokens: Vec<TokenId>,
    /// Federation rules that they created, as `ORGANIZATION/RULE`.
    pub federation_rules: Vec<String>,
    /// Keys that they created, or that tokens were exchanged for by these rules, and that were not revoked.
    pub keys: Vec<KeyId>,
    /// True when these rules and keys have ended; false when they go on working.
    pub ended: bool,
}

impl Token {
    pub(super) fn new(
        token: ManagementToken,
        created_by: KeyActor,
        status: TokenStatus,
        last_use: Option<TokenUse>,
    ) -> Self {
        Self {
            id: token.id,
            org: token.org,
            status,
            name: token.name,
            allow: token.scopes,
            networks: token.networks,
            client_san: token.client_san,
            created: token.created,
            created_by,
            expires: token.expires,
            revoked: token.revoked,
            last_use,
            descendants: None,
        }
    }
}

impl TokenStatus {
    /// The first reason to refuse a token. `administrator` is the user whose rights bound it, if it has one and the
    /// organization has them.
    pub(super) fn new(token: &ManagementToken, administrator: Option<&state::User>, now: Micros) -> Self {
        let is_bounded = token.admin.is_some();
        if token.revoked.is_some() {
            Self::Revoked
        } else if !token.is_live(now) {
            Self::Expired
        } else if is_bounded && !administrator.is_some_and(|user| user.is_active() && user.is_admin()) {
            Self::CreatorNotAdmin
        } else {
            Self::Active
        }
    }

    /// The status in words.
    pub fn label(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::Revoked => "Revoked",
            Self::Expired => "Expired",
            Self::CreatorNotAdmin => "Refused",
        }
    }

    /// The cause of a refusal that the status in words does not tell, as a sentence.
    pub fn cause(self) -> Option<&'static str> {
        (self == Self::CreatorNotAdmin).then_some("Its creator is no longer an admin.")
    }

    /// Name in style sheets: refused tokens look as keys do.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
            Self::CreatorNotAdmin => "owner-suspended",
        }
    }

    /// Returns whether a token with this status may be accepted at a later time: there is something to revoke.
    pub fn is_revocable(self) -> bool {
        matches!(self, Self::Active | Self::CreatorNotAdmin)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use domain::identity::UserId;
    use domain::management_token::PlainToken;

    const NOW: Micros = Micros(5_000_000);

    fn user(permissions: &[&str]) -> state::User {
        state::User {
            permissions: permissions.iter().map(|permission| permission.parse().unwrap()).collect(),
            ..state::User::new(UserId::generate(), OrgId::generate(), "ada@example.com", Micros(1))
        }
    }

    pub(in super::super) fn token(admin: Option<UserId>) -> ManagementToken {
        let plain = PlainToken::generate().unwrap();
        ManagementToken {
            id: plain.id(),
            digest: plain.digest(),
            name: "pipeline".into(),
            org: Some(OrgId::generate()),
            admin,
            scopes: [TokenScope::KeysRead].into(),
            networks: Vec::new(),
            client_san: None,
            created: Micros(1),
            created_by: "unix:root(0)".into(),
            expires: Micros(9_000_000),
            revoked: None,
        }
    }

    #[test]
    fn token_of_an_administrator_is_active_while_they_are_one() {
        let ada = user(&["org:admin", "queries:read"]);
        let bounded = token(Some(ada.id));
        let status = |user: Option<&state::User>| TokenStatus::new(&bounded, user, NOW);
        assert_eq!(status(Some(&ada)), TokenStatus::Active);
        let removed = state::User { removed: Some(NOW), ..ada.clone() };
        let withdrawn = state::User { withdrawn: Some(NOW), ..ada.clone() };
        let suspended = state::User { suspended: Some(NOW), ..ada };
        for user in [&removed, &withdrawn, &suspended, &user(&["queries:read"])] {
            assert_eq!(status(Some(user)), TokenStatus::CreatorNotAdmin, "{user:?}");
        }
        assert_eq!(status(None), TokenStatus::CreatorNotAdmin, "the organization does not have them");
        assert_eq!(TokenStatus::new(&token(None), None, NOW), TokenStatus::Active, "a token of the operator");
    }

    #[test]
    fn revocation_and_expiry_are_told_before_the_creator() {
        let bounded = token(Some(UserId::generate()));
        assert_eq!(TokenStatus::new(&bounded, None, bounded.expires), TokenStatus::Expired);
        let revoked = ManagementToken { revoked: Some(NOW), ..bounded };
        assert_eq!(TokenStatus::new(&revoked, None, revoked.expires), TokenStatus::Revoked);
    }
}
