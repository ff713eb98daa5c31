//! The block `telemetry.traces`.

use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::tls;
use domain::secret::Secret;
use platform::settings::{Reported, Section, Value};
use platform::telemetry::trace::{ClientContext, Endpoint, Ratio, Settings};
use platform::tls::ClientSettings;

/// Default name of the service.
const SERVICE: &str = "keygate";
/// Default time for a batch: that of OTLP exporters.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Default number of requests that wait to be exported: some megabytes.
const QUEUE: usize = 8192;

/// Reads the block. `gateway` is the name of this gateway.
pub(super) fn traces(section: &mut Section<'_>, gateway: &str) -> Result<Settings, Reported> {
    let endpoint = section.required("endpoint", endpoint);
    let headers = section.value_or("headers", Vec::new(), headers);
    let tls = section.section("tls", |section| Ok(ClientSettings::read(section)));
    let timeout = section
        .value_or("timeout", TIMEOUT, |value| value.duration(Duration::from_millis(100)..=Duration::from_secs(60)));
    let ratio = section.value_or("ratio", Ratio::ALL, |value| {
        let text = value.text()?;
        text.parse().map_err(|error| value.report(format_args!("`{text}` {error}")))
    });
    let choices = [("ignore", ClientContext::Ignore), ("link", ClientContext::Link)];
    let clients = section.value_or("clients", ClientContext::default(), |value| value.choice(&choices));
    let queue = section.value_or("queue", QUEUE, |value| value.integer(16..=1_000_000));
    let service = section.value_or("service", SERVICE.to_owned(), |value| value.text());
    let endpoint = endpoint?;
    let instance = gateway.to_owned();
    let tls = tls::check_for(section, "endpoint", endpoint.url(), tls?)?;
    Ok(Settings { endpoint, headers, tls, timeout, ratio, clients, queue, service, instance })
}

fn endpoint(value: &Value<'_>) -> Result<Endpoint, Reported> {
    let text = value.text()?;
    // The text may have a password in it.
    text.parse().map_err(|error| value.report(error))
}

/// Reads header fields with their secret values.
pub(super) fn headers(value: &Value<'_>) -> Result<Vec<(HeaderName, Secret)>, Reported> {
    value.named(|name, value| {
        let name = HeaderName::try_from(name).map_err(|_| value.report_key("is not the name of a field"))?;
        let secret = value.secret()?;
        match HeaderValue::from_str(secret.expose()) {
            Ok(_) => Ok((name, secret)),
            Err(_) => value.reject("has characters that no field can have"),
        }
    })
}
