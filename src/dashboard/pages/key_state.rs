//! Whether requests with a key would be authenticated, in words.

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// Its requests are admitted, within the limits.
    Active,
    /// It was revoked, for good.
    Revoked,
    /// Its owner was removed.
    OwnerRemoved,
    /// Its organization is suspended.
    OrgSuspended,
}

impl KeyState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Active, Self::Revoked, Self::OwnerRemoved, Self::OrgSuspended];

    /// For people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::Revoked => "Revoked",
            Self::OwnerRemoved => "OwnerInput removed",
            Self::OrgSuspended => "Organization suspended",
        }
    }

    /// In addresses and styles.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Revoked => "revoked",
            Self::OwnerRemoved => "owner-removed",
            Self::OrgSuspended => "org-suspended",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}
