//! `keygate upstreams`: the endpoints of the running gateway's upstreams.

use anyhow::anyhow;

use super::installation::Installation;
use super::output::{JsonList, Table, or_dash, seconds, word};
use super::show::Format;
use super::{CliError, control};
use ::control::admin::UPSTREAMS_PATH;
use domain::page::{Page, PageLimit};
use upstream::{EndpointReport, LatencyReport};

/// Arguments of `keygate upstreams`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show the endpoints of this upstream only
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,
    #[command(flatten)]
    format: Format,
}

const HEADER: [&str; 13] = [
    "UPSTREAM",
    "ENDPOINT",
    "STATE",
    "REASON",
    "UNTIL",
    "PAUSED UNTIL",
    "EJECTIONS",
    "CHECK",
    "IN FLIGHT",
    "P50",
    "P99",
    "CONNECTIONS",
    "WAITING",
];

impl Args {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        let mut json = JsonList::default();
        let mut table = Table::new(&HEADER);
        let mut cursor = None;
        loop {
            let page = fetch(installation, self.upstream.as_deref(), cursor.as_deref())?;
            if let (Some(upstream), true) = (&self.upstream, page.items.is_empty()) {
                // Every upstream has an endpoint, if only a name without an address.
                return Err(anyhow!("the gateway has no upstream `{upstream}`").into());
            }
            if self.format.json {
                json.items(&page.items)?;
            } else {
                table.rows(&page.items.iter().map(row).collect::<Vec<_>>())?;
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        if self.format.json {
            json.end()?;
        } else {
            table.end("the upstreams have no endpoints");
        }
        Ok(())
    }
}

/// Fetches a page of the list from the running gateway.
fn fetch(
    installation: &Installation,
    upstream: Option<&str>,
    cursor: Option<&str>,
) -> Result<Page<EndpointReport>, CliError> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("limit", &PageLimit::MAX.get().to_string());
    for (name, value) in [("upstream", upstream), ("cursor", cursor)] {
        value.map(|value| query.append_pair(name, value));
    }
    let target = format!("{UPSTREAMS_PATH}?{}", query.finish());
    control::fetch(installation, &target)
}

fn row(report: &EndpointReport) -> [String; 13] {
    let check = report.last_check.as_ref();
    let latency = |micros: fn(&LatencyReport) -> u64| {
        or_dash(report.latency.as_ref().map(|latency| milliseconds(micros(latency))))
    };
    [
        report.upstream.clone(),
        report.endpoint.clone(),
        word(report.state),
        or_dash(report.reason.as_ref()),
        or_dash(report.until.map(seconds)),
        or_dash(report.paused_until.map(seconds)),
        report.ejections.to_string(),
        or_dash(check.map(|check| format!("{} {}", if check.ok { "ok" } else { "failed" }, check.detail))),
        report.in_flight.to_string(),
        latency(|latency| latency.p50_us),
        latency(|latency| latency.p99_us),
        report.connections.to_string(),
        report.waiting.to_string(),
    ]
}

fn milliseconds(micros: u64) -> String {
    format!("{}.{}ms", micros / 1000, micros % 1000 / 100)
}
