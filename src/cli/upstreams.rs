//! `keygate upstreams`: the endpoints of the running gateway's upstreams.

use anyhow::anyhow;
use serde_json::json;

use super::call::Call;
use super::installation::Installation;
use super::list::{List, Row};
use super::output::{or_dash, seconds, word};
use super::show::Format;
use super::table::Column;
use super::{CliError, control};
use domain::page::{Page, PageLimit};
use upstream::{CheckReport, EndpointReport};

/// Arguments of `keygate upstreams`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show the endpoints of this upstream only
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,
    #[command(flatten)]
    format: Format,
}

impl Args {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        let mut list = List::new("the upstreams have no endpoints", self.format);
        let query = json!({ "upstream": self.upstream, "limit": PageLimit::MAX });
        let mut call = Call::get(&["upstreams"]).with_query(&query);
        loop {
            let page: Page<EndpointReport> = control::fetch(installation, &call.target())?;
            if let (Some(upstream), true) = (&self.upstream, page.items.is_empty()) {
                // Every upstream has an endpoint, if only a name without an address.
                return Err(anyhow!("the gateway has no upstream `{upstream}`").into());
            }
            list.page(&page.items)?;
            let Some(next) = page.next else { return Ok(list.end()?) };
            call = call.at_cursor(next);
        }
    }
}

impl Row for EndpointReport {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("UPSTREAM", 1, |report| report.upstream.clone()),
        Column::new("ENDPOINT", 2, |report| report.endpoint.clone()),
        Column::new("STATE", 3, |report| word(report.state)),
        Column::new("REASON", 4, |report| or_dash(report.reason.as_ref())),
        Column::new("UNTIL", 8, |report| or_dash(report.until.map(seconds))),
        Column::new("PAUSED UNTIL", 13, |report| or_dash(report.paused_until.map(seconds))),
        Column::new("EJECTIONS", 10, |report| report.ejections.to_string()),
        Column::new("CHECK", 9, |report| {
            let text = |check: &CheckReport| format!("{} {}", if check.ok { "ok" } else { "failed" }, check.detail);
            or_dash(report.last_check.as_ref().map(text))
        }),
        Column::new("IN FLIGHT", 5, |report| report.in_flight.to_string()),
        Column::new("P50", 7, |report| or_dash(report.latency.as_ref().map(|latency| milliseconds(latency.p50_us)))),
        Column::new("P99", 6, |report| or_dash(report.latency.as_ref().map(|latency| milliseconds(latency.p99_us)))),
        Column::new("CONNECTIONS", 11, |report| report.connections.to_string()),
        Column::new("WAITING", 12, |report| report.waiting.to_string()),
    ];
}

fn milliseconds(micros: u64) -> String {
    format!("{}.{}ms", micros / 1000, micros % 1000 / 100)
}
