//! List of the audit's sinks on the admin socket. There are a few, by the configuration: one page has all.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;

use super::response::{self, AdminResponse};
use domain::page::Page;
use journal::shipping::SinkReport;

/// Source of the reports of all sinks.
#[derive(Clone)]
pub struct ShippingReports(Arc<dyn Fn() -> Vec<SinkReport> + Send + Sync>);

impl ShippingReports {
    /// Reports that this function makes.
    pub fn new(report: impl Fn() -> Vec<SinkReport> + Send + Sync + 'static) -> Self {
        Self(Arc::new(report))
    }

    /// Responds with the list.
    pub(super) fn respond(&self) -> AdminResponse {
        response::json(StatusCode::OK, &Page::<SinkReport> { items: (self.0)(), next: None })
    }
}

impl fmt::Debug for ShippingReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShippingReports")
    }
}
