//! Usage in a range of time, of this gateway or of all.

use std::io;

use super::{AuditView, OwnOnlyReason, ViewStatus};
use crate::audit::read::range_usage::{OrgUsage, UsageRange, UsageSeries};
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
        let reader = self.journal.reader()?.with_stop(self.stop.clone());
        Ok((reader.org_usage(org, range, now, top)?, self.own_status()))
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
        let reader = self.journal.reader()?.with_stop(self.stop.clone());
        Ok((reader.key_usage(org, key, range, now)?, self.own_status()))
    }

    /// The status of the records of this gateway alone.
    fn own_status(&self) -> Option<ViewStatus> {
        self.has_fleet().then(|| ViewStatus::own_only(OwnOnlyReason::Unavailable))
    }
}
