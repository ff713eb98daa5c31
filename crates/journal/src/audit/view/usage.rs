//! Usage to bill by, of this gateway or of all.

use std::io;

use super::fleet::FleetError;
use super::{AuditView, GatewayFreshness, ViewScope, ViewStatus};
use crate::audit::read::metering::query::UsageQuery;
use crate::audit::read::metering::report::UsageReport;
use domain::clock::Micros;

impl AuditView {
    /// Returns whether the records of all gateways are configured to be read.
    pub fn has_fleet(&self) -> bool {
        self.fleet.load().is_some()
    }

    /// Usage of all gateways by their records in PostgreSQL; with `by_gateway` a report for each.
    ///
    /// # Errors
    /// If PostgreSQL cannot be read: bills are not made of the records of some gateways.
    pub fn usage_of_fleet(&self, query: UsageQuery) -> io::Result<(Vec<UsageReport>, ViewStatus)> {
        let fleet = self.fleet.load_full();
        let fleet = fleet.ok_or_else(|| io::Error::other("the records of all gateways are not configured"))?;
        let read = || -> Result<_, FleetError> {
            let snapshot = fleet.snapshot()?;
            let usage = snapshot.usage(query)?;
            snapshot.finish();
            Ok(usage)
        };
        let (reports, gateways) = read().map_err(io::Error::other)?;
        Ok((reports, ViewStatus { scope: ViewScope::Fleet, reason: None, gateways }))
    }

    /// Usage by the journal of this gateway, which has this name.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn usage_of_gateway(
        &self,
        query: UsageQuery,
        gateway: String,
        now: Micros,
    ) -> io::Result<(Vec<UsageReport>, ViewStatus)> {
        let report = self.journal.reader()?.with_stop(self.stop.clone()).usage(query, now)?;
        let gateways = vec![GatewayFreshness { gateway, complete_until: report.settled_before, updated: now }];
        Ok((vec![report], ViewStatus { scope: ViewScope::Gateway, reason: None, gateways }))
    }
}
