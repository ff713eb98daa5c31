//! Counts requests to the dashboard, each against the bucket for its kind.

use http::StatusCode;

use super::Dashboard;
use super::counting::Counting;
use crate::management::{ManagementError, SignedInUser};
use crate::person_limiter::Bucket;
use domain::clock::Micros;

impl Dashboard {
    /// Counts a request against the bucket for requests of its kind, which is returned; some are always served.
    pub(super) fn count_request(
        &self,
        user: &SignedInUser,
        counting: Counting,
        now: Micros,
    ) -> Result<Option<Bucket>, ManagementError> {
        let bucket = match counting {
            Counting::Request => Bucket::Requests(user.person()),
            Counting::Revocation => Bucket::Revocations(user.session.id),
            Counting::Confirmation => Bucket::Confirmations(user.session.id),
            Counting::Never => return Ok(None),
        };
        self.person_limiter.count_request(bucket, now).map_err(|seconds| {
            self.metrics.dashboard_limited.inc();
            ManagementError::TooManyRequests(seconds)
        })?;
        Ok(Some(bucket))
    }

    /// Takes back a revocation that was counted and, by the status of its response, has changed nothing.
    pub(super) fn uncount_failed_revocation(&self, bucket: Option<Bucket>, status: StatusCode) {
        if let Some(bucket @ Bucket::Revocations(_)) = bucket
            && status.is_client_error()
        {
            self.person_limiter.uncount_request(bucket);
        }
    }
}
