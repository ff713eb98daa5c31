//! Usage to bill by, of this gateway or of all.

use std::io;

use super::fleet::FleetError;
use super::{AuditView, GatewayFreshness, ViewScope, ViewStatus};
use crate::audit::read::metering::query::{SpentBy, UsageQuery};
use crate::audit::read::metering::report::UsageReport;
use domain::clock::Micros;
use domain::counted::Counted;

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

    /// Units of a budget by the records of all gateways in PostgreSQL, and how fresh these are.
    ///
    /// # Errors
    /// As [`AuditView::usage_of_fleet`], and when records of the period were removed.
    pub fn units_of_fleet(&self, spent: &SpentBy) -> io::Result<(u64, Vec<GatewayFreshness>)> {
        let (reports, status) = self.usage_of_fleet(spent.query())?;
        let units = reports.iter().map(|report| all_units(spent, report)).sum::<io::Result<u64>>()?;
        Ok((units, status.gateways))
    }

    /// Units of a budget by the journal of this gateway, with all that it has recorded by now.
    ///
    /// # Errors
    /// As [`AuditView::usage_of_gateway`], and when records of the period were removed, or cannot be read.
    pub fn units_of_gateway(&self, spent: &SpentBy, now: Micros) -> io::Result<u64> {
        all_units(spent, &self.journal.reader()?.with_stop(self.stop.clone()).usage(spent.query(), now)?)
    }
}

/// The units of a report that lacks none: a sum of some would give back what others have spent.
fn all_units(spent: &SpentBy, report: &UsageReport) -> io::Result<u64> {
    if let Some(from) = report.complete_from.filter(|from| *from > spent.from) {
        return Err(io::Error::other(format!("records of the period from before {from} were removed")));
    }
    match report.damaged_lines {
        0 => Ok(report.rows.iter().map(|row| row.units).sum()),
        lines => {
            let lines = Counted(lines, "damaged line");
            Err(io::Error::other(format!("{lines} cannot be counted; run `keygate audit verify`")))
        }
    }
}
