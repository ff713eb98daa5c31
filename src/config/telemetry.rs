//! The block `telemetry`: log, access log, metrics by convention, and traces.

use tracing::level_filters::LevelFilter;

use super::traces;
use platform::settings::{Reported, Section, Value};
use platform::telemetry::access_log::{self, FACILITIES, LoggedRequests, SinkSettings, SyslogServer, SyslogSettings};
use platform::telemetry::{LogFormat, Settings, trace};

/// Facility of the access log: the first of those for local use.
const FACILITY: u8 = 16;

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
    let syslog = section.optional("syslog", |value| value.section(syslog).map(SinkSettings::Syslog));
    let choices = [("all", LoggedRequests::All), ("unaudited", LoggedRequests::Unaudited)];
    let requests = section.value_or("requests", LoggedRequests::All, |value| value.choice(&choices));
    let mut sinks = [file?, stdout?.flatten(), syslog?].into_iter().flatten();
    match (sinks.next(), sinks.next()) {
        (Some(sink), None) => Ok(access_log::Settings { sink, requests, gateway: gateway.to_owned() }),
        (None, _) => {
            Err(section.report("file", "is missing; give file: PATH, stdout: true, or syslog: { server: ADDRESS }"))
        }
        (Some(_), Some(_)) => {
            Err(section.report("file", "is one of several destinations; give file, stdout or syslog"))
        }
    }
}

fn syslog(section: &mut Section<'_>) -> Result<SyslogSettings, Reported> {
    let server = section.required("server", server);
    let names: Vec<&str> = FACILITIES.to_vec();
    let facility = section.optional("facility", |value| value.name_of("a facility", &names));
    let facility = facility?.map_or(FACILITY, |number| u8::try_from(number).expect("there are 24 facilities"));
    Ok(SyslogSettings { server: server?, facility })
}

/// Reads `udp://HOST:PORT`, `tcp://HOST:PORT` or `unix:PATH`.
fn server(value: &Value<'_>) -> Result<SyslogServer, Reported> {
    let text = value.text()?;
    let address = |address: &str| {
        let (host, port) = address.rsplit_once(':')?;
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        let is_host = !host.is_empty() && !host.contains('/') && (!host.contains(':') || host.starts_with('['));
        (is_port && is_host).then(|| address.to_owned())
    };
    let server = match text.split_once(':') {
        Some(("udp", rest)) => rest.strip_prefix("//").and_then(address).map(SyslogServer::Udp),
        Some(("tcp", rest)) => rest.strip_prefix("//").and_then(address).map(SyslogServer::Tcp),
        Some(("unix", path)) if path.starts_with('/') => Some(SyslogServer::Unix(path.into())),
        _ => None,
    };
    match server {
        Some(server) => Ok(server),
        None => value.reject(format_args!(
            "`{text}` is not the address of a syslog server such as udp://127.0.0.1:514, tcp://logs.example.com:601 or \
             unix:/dev/log"
        )),
    }
}
