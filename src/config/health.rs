//! The block `upstream.health`: active checks of the endpoints.

use std::time::Duration;

use http::uri::PathAndQuery;

use platform::settings::{Reported, Section, Value};
use upstream::{HealthKind, HealthSettings, Protocol};

/// Most checks in a row that a change of state can need.
const MOST_CHECKS: u32 = 100;
/// Bytes of the name of a gRPC service.
const MAX_SERVICE: usize = 100;

/// Reads the block `health`.
pub(super) fn health(
    section: &mut Section<'_>,
    protocol: Protocol,
    host: Option<&str>,
) -> Result<HealthSettings, Reported> {
    let has_grpc = section.contains("grpc");
    let path = section.optional("path", path);
    let expect = section.value_or("expect", Vec::new(), |value| value.one_or_list(|status| status.integer(100..=599)));
    let grpc = section.optional("grpc", service);
    let mut time = |name, seconds, least| {
        section.value_or(name, Duration::from_secs(seconds), |value| value.duration(least..=Duration::from_hours(1)))
    };
    let interval = time("interval", 10, Duration::from_millis(100));
    let timeout = time("timeout", 2, Duration::from_millis(1));
    let mut count = |name, default| section.value_or(name, default, |value| value.integer(1..=MOST_CHECKS));
    let healthy = count("healthy", 2);
    let unhealthy = count("unhealthy", 3);
    let required = section.value_or("required", false, |value| value.boolean());
    let kind = match (path?, grpc?) {
        (Some(path), None) => HealthKind::Http { path, expect },
        (None, Some(_)) if protocol == Protocol::Http1 => {
            return Err(
                section.report("grpc", "needs HTTP/2; set `protocol: http2` of the upstream, or check a `path`")
            );
        }
        (None, Some(service)) => HealthKind::Grpc { service },
        (Some(_), Some(_)) => return Err(section.report("grpc", "is given besides `path`; remove one of the two")),
        (None, None) if has_grpc => return Err(section.report("grpc", "is empty; give `server`, or a service")),
        (None, None) => return Err(section.report("path", "is missing; give `path`, or `grpc`")),
    };
    Ok(HealthSettings { kind, interval, timeout, healthy, unhealthy, required, host: host.map(str::to_owned) })
}

fn path(value: &Value<'_>) -> Result<PathAndQuery, Reported> {
    match value.parsed::<PathAndQuery>("a path such as /health")? {
        path if path.as_str().starts_with('/') => Ok(path),
        path => value.reject(format_args!("`{path}` is not a path such as /health; begin with a slash")),
    }
}

/// Name of a gRPC service; `server` stands for the whole server, whose name is empty.
fn service(value: &Value<'_>) -> Result<String, Reported> {
    match value.text()? {
        name if name == "server" => Ok(String::new()),
        name if name.len() <= MAX_SERVICE => Ok(name),
        _ => value.reject(format_args!("is longer than {MAX_SERVICE} bytes")),
    }
}
