//! Usage in a range of time, of this gateway or of all.

use std::io;

use super::fleet::Recent;
use super::{AuditView, ViewStatus};
use crate::audit::read::range_usage::{OrgUsage, RangeRead, RecentUsage, UsageRange, UsageSeries};
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
            (range, now),
            |read, recent| read.of_org(org, recent.of_org(org, range.first_hour(now)), top),
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
            (range, now),
            |read, recent| read.of_key(org, key, std::slice::from_ref(&recent.counts)),
            |reader| reader.key_usage(org, key, range, now),
        )
    }

    /// Reads the sums of the records of all gateways, where these are configured, else the index of this one; of this
    /// one also while the others cannot be read.
    fn in_range<T>(
        &self,
        (range, now): (UsageRange, Micros),
        of_fleet: impl FnOnce(RangeRead<'_>, &Recent) -> io::Result<T>,
        of_gateway: impl FnOnce(&Reader) -> io::Result<T>,
    ) -> io::Result<(T, Option<ViewStatus>)> {
        let mut status = None;
        if self.has_fleet() {
            match self.rollup.read() {
                Ok((stored, recent)) => {
                    let read = RangeRead { stored, stop: &self.stop, range, now };
                    return Ok((of_fleet(read, &recent)?, Some(ViewStatus::fleet(recent.gateways.clone()))));
                }
                Err(reason) => status = Some(ViewStatus::own_only(reason)),
            }
        }
        let reader = self.journal.reader()?.with_stop(self.stop.clone());
        Ok((of_gateway(&reader)?, status))
    }
}

impl Recent {
    /// The usage of an organization, of keys from an hour on.
    fn of_org(&self, org: OrgId, first_hour: u64) -> RecentUsage {
        let keys = self.counts.keys.iter().filter(|((of, _), _)| *of == org).flat_map(|((_, key), usage)| {
            let hours = usage.hours.iter().filter(|(hour, _)| *hour >= first_hour);
            hours.map(|(_, sums)| (*key, [sums.requests, sums.refusals]))
        });
        let routes = self.counts.routes.iter().filter(|((of, ..), _)| *of == org);
        let routes = routes.map(|((_, route, hour), sums)| (*route, *hour, sums.clone()));
        RecentUsage { keys: keys.collect(), routes: routes.collect() }
    }
}
