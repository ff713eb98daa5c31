//! Scope of a view, and how fresh it is.

use serde::{Deserialize, Serialize};

use domain::clock::{self, Micros};

/// Scope of a view, and how fresh it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewStatus {
    /// The gateways whose records it has.
    pub scope: ViewScope,
    /// The reason why it has those of one gateway only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<OwnOnlyReason>,
    /// The gateways that have shipped records, by name; empty for the scope of one gateway.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<GatewayFreshness>,
}

/// The gateways whose records a view has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViewScope {
    /// All gateways: the records in PostgreSQL, and those that this gateway has not shipped yet.
    Fleet,
    /// This gateway: the records in its journal.
    Gateway,
}

/// The reason why a view has the records of one gateway, although those of all are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnOnlyReason {
    /// PostgreSQL cannot be read, or not in time.
    Unavailable,
    /// This gateway has not shipped so many records that they cannot be read in time.
    Behind,
    /// The records of all gateways are being added up.
    AddingUp,
    /// The listing began while one of these was true, and goes on as it began.
    Cursor,
}

/// Freshness of the records of one gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayFreshness {
    /// Its name.
    pub gateway: String,
    /// The view has everything that it recorded before this time.
    #[serde(with = "clock::rfc3339")]
    pub complete_until: Micros,
    /// Time at which it has shipped last.
    #[serde(with = "clock::rfc3339")]
    pub updated: Micros,
}

impl ViewStatus {
    /// The records of all gateways.
    pub(super) fn fleet(gateways: Vec<GatewayFreshness>) -> Self {
        Self { scope: ViewScope::Fleet, reason: None, gateways }
    }

    /// The records of this gateway alone.
    pub(super) fn own_only(reason: OwnOnlyReason) -> Self {
        Self { scope: ViewScope::Gateway, reason: Some(reason), gateways: Vec::new() }
    }
}
