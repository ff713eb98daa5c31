//! Settings of the sinks.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;

use crate::audit::{Outcome, Record, RecordKind};
use domain::refusal::Refusal;
use domain::secret::Secret;
use platform::outbound::HttpUrl;
use platform::postgresql;
use platform::tls::ClientSettings;

/// Settings of all sinks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The sinks; their names are unique.
    pub sinks: Vec<SinkSettings>,
}

/// Settings of one sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkSettings {
    /// Its name: label of its metrics, and of the file with its position. A sink of another name begins anew.
    pub name: String,
    /// The place to which records go.
    pub destination: Destination,
    /// The records that go there.
    pub records: ShippedRecords,
}

/// Records that go to a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShippedRecords {
    /// All of them, and the checkpoints.
    #[default]
    All,
    /// Changes: by people, by programs, and what the gateway announces.
    Changes,
    /// Requests that were refused because their key is disabled or expired, or its budget is spent.
    Refusals,
}

impl ShippedRecords {
    /// Their names in the configuration.
    pub const NAMES: [(&str, Self); 3] = [("all", Self::All), ("changes", Self::Changes), ("refusals", Self::Refusals)];

    /// Returns whether a record is one of them.
    pub fn include(self, record: &Record) -> bool {
        match self {
            Self::All => true,
            Self::Changes => record.kind() == RecordKind::Change,
            Self::Refusals => matches!(
                record.outcome,
                Outcome::Refused(Refusal::KeyDisabled | Refusal::KeyExpired | Refusal::QuotaExhausted)
            ),
        }
    }
}

/// Place to which records go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Tables of a database.
    Postgresql(PostgresqlSettings),
    /// Compressed objects in a directory.
    Files(FilesSettings),
    /// Webhooks of HTTP.
    Webhook(WebhookSettings),
    /// A collector of OpenTelemetry.
    Otlp(OtlpSettings),
    /// A syslog server.
    Syslog(SyslogSettings),
}

/// Settings of a sink in PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresqlSettings {
    /// The database.
    pub database: postgresql::Settings,
    /// Age of a day's records at which their partition is dropped; none: never.
    pub retention: Option<Duration>,
}

/// Settings of a directory of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesSettings {
    /// The directory.
    pub path: PathBuf,
    /// Bytes on the disk from which on an object is closed.
    pub size: u64,
    /// Age of its first record at which an object is closed.
    pub every: Duration,
}

/// Settings of a receiver of webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    /// Address to which messages are posted.
    pub url: HttpUrl,
    /// Secret of the signatures, as [`check_secret`](super::check_secret) accepts it.
    pub secret: Secret,
    /// Trusted authorities, and the gateway's own certificate.
    pub tls: ClientSettings,
    /// Time for one message to be taken.
    pub timeout: Duration,
}

/// Settings of a collector of OpenTelemetry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpSettings {
    /// Address to which requests are posted.
    pub url: HttpUrl,
    /// Header fields of each request, such as a token.
    pub headers: Vec<(HeaderName, Secret)>,
    /// Trusted authorities, and the gateway's own certificate.
    pub tls: ClientSettings,
    /// Time for one request to be taken.
    pub timeout: Duration,
}

/// Facilities by their names, in the order of their numbers (RFC 5424, section 6.2.1).
pub const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp",
    "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];

/// Settings of a syslog server, which is verified by TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyslogSettings {
    /// A name, or an address without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Trusted authorities, and the gateway's own certificate.
    pub tls: ClientSettings,
    /// Facility of the messages: 0 to 23.
    pub facility: u8,
}

impl Settings {
    /// The first database among the sinks, for those who read the records of all gateways.
    pub fn postgresql(&self) -> Option<&PostgresqlSettings> {
        self.sinks.iter().find_map(|sink| match &sink.destination {
            Destination::Postgresql(settings) => Some(settings),
            _ => None,
        })
    }
}

impl Destination {
    /// TLS of its connections; none of a directory.
    pub fn tls(&self) -> Option<&ClientSettings> {
        match self {
            Self::Postgresql(settings) => Some(settings.database.tls()),
            Self::Files(_) => None,
            Self::Webhook(settings) => Some(&settings.tls),
            Self::Otlp(settings) => Some(&settings.tls),
            Self::Syslog(settings) => Some(&settings.tls),
        }
    }

    /// The place on another machine to which records go unencrypted, and what to do; none when there is no such place.
    pub fn plain_place(&self) -> Option<(String, &'static str)> {
        match self {
            Self::Postgresql(PostgresqlSettings { database, .. })
                if !database.is_encrypted() && !database.is_local() =>
            {
                Some((database.to_string(), "write ?sslmode=require in its url, or give it a block `tls`"))
            }
            Self::Webhook(WebhookSettings { url, .. }) | Self::Otlp(OtlpSettings { url, .. })
                if !url.is_encrypted() && !url.is_local() =>
            {
                Some((url.authority().to_owned(), "write https in its address"))
            }
            _ => None,
        }
    }

    /// The word for its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Postgresql(_) => "postgresql",
            Self::Files(_) => "files",
            Self::Webhook(_) => "http",
            Self::Otlp(_) => "otlp",
            Self::Syslog(_) => "syslog",
        }
    }
}
