//! Source of the records on a page, and how fresh they are.

use super::numbers::format_counted;
use super::timestamp::Timestamp;

/// Gateways of a page whose freshness is shown.
const MAX_ROWS: usize = 20;

/// Source of the records on a page.
#[derive(Clone, Debug)]
pub enum RecordSource {
    /// The journal of one gateway.
    Gateway {
        /// Its name.
        name: String,
        /// Reason why the records of the others are missing; `None` when only this gateway's are configured to be read.
        others: Option<&'static str>,
    },
    /// The records of all gateways.
    Fleet(FleetFreshness),
}

/// Freshness of the records of all gateways.
#[derive(Clone, Debug)]
pub struct FleetFreshness {
    /// Number of gateways.
    pub count: usize,
    /// The gateways that are furthest behind, most of all first.
    pub gateways: Vec<GatewayRow>,
}

/// Freshness of the records of one gateway.
#[derive(Clone, Debug)]
pub struct GatewayRow {
    /// Its name.
    pub gateway: String,
    /// Its records before this time are shown.
    pub complete_until: Timestamp,
    /// Time at which it shipped last.
    pub updated: Timestamp,
    /// So far behind that a reader should know it.
    pub is_late: bool,
}

impl FleetFreshness {
    /// From the freshness of all gateways, those that are furthest behind first.
    pub fn new(gateways: Vec<GatewayRow>) -> Self {
        let count = gateways.len();
        Self { count, gateways: gateways.into_iter().take(MAX_ROWS).collect() }
    }

    /// The number of gateways: `all 3 gateways`.
    pub fn count_text(&self) -> String {
        match self.count {
            0 => "all gateways".to_owned(),
            count => format!("all gateways ({})", format_counted(count as u64, "gateway")),
        }
    }

    /// The gateway that is furthest behind, when a reader should know it.
    pub fn furthest_behind(&self) -> Option<&GatewayRow> {
        self.gateways.first().filter(|row| row.is_late)
    }
}
