//! The list `audit.ship`: the sinks to which the journal is shipped.

use std::time::Duration;

use super::tls::check_for;
use super::traces::headers;
use journal::shipping::{
    Destination, FACILITIES, FilesSettings, OTLP_PATH, OtlpSettings, PostgresqlSettings, ShippedRecords, SinkSettings,
    SyslogSettings, WebhookSettings, check_secret,
};
use platform::outbound::HttpUrl;
use platform::postgresql;
use platform::settings::{Reported, Section, Value};
use platform::tls::ClientSettings;

/// Length of the longest name of a sink. It is a label of metrics, and the name of a file.
const MAX_NAME: usize = 32;
/// One day.
const DAY: Duration = Duration::from_secs(86_400);

/// Default size and age at which an object is closed.
const OBJECT_SIZE: u64 = 64 << 20;
const OBJECT_AGE: Duration = Duration::from_secs(300);
/// Default time for a message or a request to be taken.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Port of syslog over TLS (RFC 5425).
const SYSLOG_PORT: u16 = 6514;
/// Facility "log audit" (RFC 5424, section 6.2.1).
const AUDIT_FACILITY: u8 = 13;

/// Reads the list.
pub(super) fn sinks(value: &Value<'_>) -> Result<Vec<SinkSettings>, Reported> {
    let sinks = value.list(|item| item.section(sink))?;
    for (number, sink) in sinks.iter().enumerate() {
        if sinks[..number].iter().any(|other| other.name == sink.name) {
            let name = &sink.name;
            return value.reject(format_args!("has two sinks named `{name}`; give each a `name` of its own"));
        }
    }
    Ok(sinks)
}

fn sink(section: &mut Section<'_>) -> Result<SinkSettings, Reported> {
    let name = section.optional("name", name);
    let kinds = [
        section.optional("postgresql", |value| value.section(postgresql).map(Destination::Postgresql)),
        section.optional("files", |value| value.section(files).map(Destination::Files)),
        section.optional("http", |value| value.section(webhook).map(Destination::Webhook)),
        section.optional("otlp", |value| value.section(otlp).map(Destination::Otlp)),
        section.optional("syslog", |value| value.section(syslog).map(Destination::Syslog)),
    ];
    let names = ShippedRecords::NAMES.map(|(name, _)| name);
    let records = section.value_or("records", 0, |value| value.name_of("a set of records", &names));
    let (_, records) = ShippedRecords::NAMES[records];
    let name = name?;
    let kinds = kinds.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut kinds = kinds.into_iter().flatten();
    match (kinds.next(), kinds.next()) {
        (Some(Destination::Postgresql(_)), None) if records != ShippedRecords::All => Err(section.report(
            "records",
            "has no meaning at PostgreSQL, where all gateways read the records of each other; remove it",
        )),
        (Some(destination), None) => {
            let name = name.unwrap_or_else(|| destination.kind().to_owned());
            Ok(SinkSettings { name, destination, records })
        }
        (None, _) => Err(section
            .report("postgresql", "is missing: a sink has one kind, which is postgresql, files, http, otlp or syslog")),
        (Some(_), Some(_)) => Err(section.report(
            "name",
            "is of a sink with several kinds, but a sink has one kind; list each as a sink of its own",
        )),
    }
}

fn name(value: &Value<'_>) -> Result<String, Reported> {
    let name = value.text()?;
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"_-".contains(&c);
    if name.len() > MAX_NAME || name == "journal" || !name.bytes().all(plain) {
        return value
            .reject(format_args!("`{name}` is not a name: 1 to {MAX_NAME} of lower-case letters, digits and _ -"));
    }
    Ok(name)
}

fn postgresql(section: &mut Section<'_>) -> Result<PostgresqlSettings, Reported> {
    let retention = section.optional("retention", |value| value.duration(DAY..=DAY * 36_600));
    let database = postgresql::read_database(section)?;
    Ok(PostgresqlSettings { database, retention: retention? })
}

fn files(section: &mut Section<'_>) -> Result<FilesSettings, Reported> {
    let path = section.required("path", Value::path);
    let size = section.value_or("size", OBJECT_SIZE, |value| value.size((1 << 20)..=(1 << 34)));
    let every = section.value_or("every", OBJECT_AGE, |value| value.duration(Duration::from_secs(1)..=DAY));
    Ok(FilesSettings { path: path?, size, every })
}

fn webhook(section: &mut Section<'_>) -> Result<WebhookSettings, Reported> {
    let url = section.required("url", url);
    let secret = section.required("secret", |value| {
        let secret = value.secret()?;
        check_secret(secret.expose()).map(|()| secret).map_err(|error| value.report(error))
    });
    let tls = section.section("tls", |section| Ok(ClientSettings::read(section)));
    let timeout = section.value_or("timeout", TIMEOUT, timeout);
    let url = url?;
    let secret = secret?;
    let tls = check_for(section, "url", &url, tls?)?;
    Ok(WebhookSettings { url, secret, tls, timeout })
}

fn otlp(section: &mut Section<'_>) -> Result<OtlpSettings, Reported> {
    let url = section.required("endpoint", url);
    let headers = section.value_or("headers", Vec::new(), headers);
    let tls = section.section("tls", |section| Ok(ClientSettings::read(section)));
    let timeout = section.value_or("timeout", TIMEOUT, timeout);
    let url = url?;
    let tls = check_for(section, "endpoint", &url, tls?)?;
    Ok(OtlpSettings { url: url.with_default_path(OTLP_PATH), headers, tls, timeout })
}

fn syslog(section: &mut Section<'_>) -> Result<SyslogSettings, Reported> {
    let server = section.required("server", syslog_server);
    let tls = section.section("tls", |section| Ok(ClientSettings::read(section)));
    let facility = section.optional("facility", |value| value.name_of("a facility", &FACILITIES));
    let facility = facility?.map_or(AUDIT_FACILITY, |number| u8::try_from(number).expect("there are 24 facilities"));
    let (host, port) = server?;
    let tls = tls?;
    if let Err(error) = tls.config() {
        return Err(section.report("tls", error.in_full()));
    }
    Ok(SyslogSettings { host, port, tls, facility })
}

/// Reads `tls://HOST` or `tls://HOST:PORT`.
fn syslog_server(value: &Value<'_>) -> Result<(String, u16), Reported> {
    let text = value.text()?;
    let authority = text.strip_prefix("tls://").and_then(|rest| rest.parse::<http::uri::Authority>().ok());
    let Some(authority) =
        authority.filter(|authority| !authority.as_str().contains('@') && !authority.host().is_empty())
    else {
        let expected = "a syslog server such as tls://logs.example.com:6514";
        return value.reject(format_args!("`{text}` is not the address of {expected}"));
    };
    let host = authority.host();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Ok((host.to_owned(), authority.port_u16().unwrap_or(SYSLOG_PORT)))
}

fn url(value: &Value<'_>) -> Result<HttpUrl, Reported> {
    // The text may have a token in it.
    value.text()?.parse().map_err(|error| value.report(error))
}

fn timeout(value: &Value<'_>) -> Result<Duration, Reported> {
    value.duration(Duration::from_millis(100)..=Duration::from_secs(50))
}
