//! Usage in a range of time, of this gateway or of all.

use std::io;

use super::fleet::{FleetError, Snapshot};
use super::{AuditView, OwnOnlyReason, ViewStatus};
use crate::audit::read::range_usage::{OrgUsage, UsageRange, UsageSeries};
use crate::audit::read::reader::Reader;
use domain::clock::Micros;
use domain::identity::OrgId;
use domain::key::KeyId;

impl AuditView {
    /// Usage of an organization in a range that ends at `now`, with at most `top` keys and routes.
    ///
    /// # Errors
    /// If the index of the journal is behind, or cannot be read.
    pub fn org_usage(
        &self,
        org: OrgId,
        range: UsageRange,
        now: Micros,
        top: usize,
    ) -> io::Result<(OrgUsage, Option<ViewStatus>)> {
        self.in_range(
            |snapshot| snapshot.org_usage(org, range, now, top),
            |reader| reader.org_usage(org, range, now, top),
        )
    }

    /// Usage of a key in a range that ends at `now`.
    ///
    /// # Errors
    /// As [`AuditView::org_usage`].
    pub fn key_usage(
        &self,
        org: OrgId,
        key: KeyId,
        range: UsageRange,
        now: Micros,
    ) -> io::Result<(UsageSeries, Option<ViewStatus>)> {
        self.in_range(
            |snapshot| snapshot.key_usage(org, key, range, now),
            |reader| reader.key_usage(org, key, range, now),
        )
    }

    /// Reads the records of all gateways, where these are configured, else the index of this one; of this one also
    /// while the others cannot be read.
    fn in_range<T>(
        &self,
        of_fleet: impl FnOnce(&Snapshot<'_>) -> Result<T, FleetError>,
        of_gateway: impl FnOnce(&Reader) -> io::Result<T>,
    ) -> io::Result<(T, Option<ViewStatus>)> {
        let mut status = None;
        if let Some(fleet) = self.fleet.load_full() {
            let read = || {
                let snapshot = fleet.snapshot()?;
                let (usage, gateways) = (of_fleet(&snapshot)?, snapshot.freshness()?);
                snapshot.finish();
                Ok::<_, FleetError>((usage, ViewStatus::fleet(gateways)))
            };
            match read() {
                Ok((usage, status)) => return Ok((usage, Some(status))),
                Err(error) => {
                    if !matches!(error, FleetError::JustFailed) {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "usage of all gateways cannot be read from PostgreSQL in time; this gateway's is shown"
                        );
                    }
                    status = Some(ViewStatus::own_only(OwnOnlyReason::Unavailable));
                }
            }
        }
        let reader = self.journal.reader()?.with_stop(self.stop.clone());
        Ok((of_gateway(&reader)?, status))
    }
}
