//! The block `telemetry`: log, access log, metrics by convention, and traces.

use tracing::level_filters::LevelFilter;

use super::traces;
use platform::settings::{Reported, Section};
use platform::telemetry::access_log::{self, LoggedRequests, SinkSettings};
use platform::telemetry::{LogFormat, Settings, trace};

/// Advice for a file with the destination `syslog`, which the access log of 0.2.0 had.
const NO_SYSLOG: &str = "is no destination any more; give file: PATH or stdout: true, from which a syslog daemon or a \
     log collector reads the lines";

/// The settings of the block.
pub(super) struct Telemetry {
    pub(super) log: Settings,
    pub(super) access_log: Option<access_log::Settings>,
    pub(super) otel_metrics: bool,
    pub(super) traces: Option<trace::Settings>,
}

/// Reads the block `telemetry`; `gateway` is the gateway's name in the lines.
pub(super) fn telemetry(section: &mut Section<'_>, gateway: &str) -> Result<Telemetry, Reported> {
    let log = log(section);
    let access_log = section.optional("access_log", |value| value.section(|section| access_log(section, gateway)));
    let traces = section.optional("traces", |block| block.section(|block| traces::traces(block, gateway)));
    let otel_metrics = section.value_or("otel_metrics", false, |value| value.boolean());
    Ok(Telemetry { log, access_log: access_log?, otel_metrics, traces: traces? })
}

fn log(section: &mut Section<'_>) -> Settings {
    let default = Settings::default();
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    let levels = [
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("info", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
    ];
    Settings {
        format: section.value_or("log", default.format, |value| value.choice(&formats)),
        level: section.value_or("level", default.level, |value| value.choice(&levels)),
    }
}

fn access_log(section: &mut Section<'_>, gateway: &str) -> Result<access_log::Settings, Reported> {
    let file = section.optional("file", |value| value.path().map(SinkSettings::File));
    let stdout = section.optional("stdout", |value| Ok(value.boolean()?.then_some(SinkSettings::Stdout)));
    let syslog = section.removed("syslog", NO_SYSLOG);
    let choices = [("all", LoggedRequests::All), ("unaudited", LoggedRequests::Unaudited)];
    let requests = section.value_or("requests", LoggedRequests::All, |value| value.choice(&choices));
    match (file?, stdout?.flatten(), syslog) {
        (_, _, Some(reported)) => Err(reported),
        (Some(sink), None, None) | (None, Some(sink), None) => {
            Ok(access_log::Settings { sink, requests, gateway: gateway.to_owned() })
        }
        (None, None, None) => Err(section.report("file", "is missing; give file: PATH or stdout: true")),
        (Some(_), Some(_), None) => Err(section.report("file", "is one of several destinations; give file or stdout")),
    }
}
