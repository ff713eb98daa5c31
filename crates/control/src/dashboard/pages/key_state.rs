//! The state of a key, as text.

/// Authentication status of a key: active, or the reason why its requests are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// Requests are admitted within the limits.
    Active,
    /// The key was revoked, for good.
    Revoked,
    /// The owner was removed.
    OwnerRemoved,
    /// The organization is suspended.
    OrgSuspended,
}

impl KeyState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Active, Self::Revoked, Self::OwnerRemoved, Self::OrgSuspended];

    /// Shown text.
    pub fn label(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::Revoked => "Revoked",
            Self::OwnerRemoved => "Owner removed",
            Self::OrgSuspended => "Organization suspended",
        }
    }

    /// Name in addresses and style sheets.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Revoked => "revoked",
            Self::OwnerRemoved => "owner-removed",
            Self::OrgSuspended => "org-suspended",
        }
    }

    /// The state with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}
