//! Reading of the audit of all gateways, where it is shipped to PostgreSQL.

use std::time::Duration;

use anyhow::Context as _;

use crate::config::Config;
use control::management;
use control::management::Management;
use journal::audit::Fleet;

/// Time that a page waits for PostgreSQL before it shows this gateway's own records.
const DEADLINE: Duration = Duration::from_secs(3);

/// Prepares to read from the database of the first sink that is one; makes no connection.
pub(super) fn open_fleet(config: &Config) -> anyhow::Result<Option<Fleet>> {
    let settings = config.shipping.postgresql().map(|settings| settings.database.clone());
    let fleet = settings.map(|settings| Fleet::open(settings, DEADLINE)).transpose();
    fleet.context("the audit of all gateways cannot be read from PostgreSQL")
}

/// Reads from the database of a changed configuration, or from none.
pub(super) fn replace_fleet(management: &Management, config: &Config) {
    match open_fleet(config) {
        Ok(fleet) => management::set_fleet(management, fleet),
        Err(error) => {
            let error: &dyn std::error::Error = error.as_ref();
            tracing::error!(error, "the audit of all gateways is still read from the database of before; reload again");
        }
    }
}
