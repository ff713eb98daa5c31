//! Settings of query-store, and their file. `config/query-store.yaml` shows every key with its default.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing::level_filters::LevelFilter;

use crate::cursor::{Keyring, KeyringError, MIN_SECRET};
use crate::store::postgresql::PostgresqlSettings;
use crate::store::{DEFAULT_MAX_HISTORY, HistoryLimit};
use domain::secret::Secret;
use platform::postgresql;
use platform::settings::{Document, Reported, Section, SettingsErrors, Value};
use platform::telemetry;

/// Default address: reachable from this machine only, because the service trusts everyone who reaches it.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);
/// Default lifetime of cursors, as promised to API users.
const CURSOR_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum cursor lifetime: the rows that a snapshot sees are kept for as long.
const MAX_CURSOR_LIFETIME: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// Default maximum of a request body: the largest query fits, even when every character of it is escaped.
const MAX_BODY: u64 = 1 << 20;
/// Default maximum of connections to the database. PostgreSQL has 100 for all of its clients by default, and a few are
/// enough: an operation uses one for a millisecond or so.
const CONNECTIONS: usize = 10;
/// Advice for a file with `replicas`, from which the service of 0.2.0 read pages.
const NO_REPLICAS: &str = "is no setting any more, as all pages come from the database of `url`; remove it, and name \
     the hosts of a failover in `url`: postgresql://user@a,b/queries?target_session_attrs=read-write";
/// Default deadline of an operation: many times what one takes, and less than a gateway waits for a response.
const DEADLINE: Duration = Duration::from_secs(5);
/// Default drain time: half of the time that most orchestrators wait before they kill a process.
const DRAIN: Duration = Duration::from_secs(15);

/// The checked settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address to listen on, for the gateway.
    pub listen: SocketAddr,
    /// Store of the queries.
    pub store: StoreSettings,
    /// Keys and lifetime of cursors.
    pub cursor: CursorSettings,
    /// Bound of each organization's replaced and deleted queries that live snapshots keep.
    pub history: HistoryLimit,
    /// Maximum size of a request body, in bytes.
    pub max_body: u64,
    /// Time that requests in flight have after the signal to stop.
    pub drain: Duration,
    /// The logs.
    pub telemetry: telemetry::Settings,
}

/// Store of the queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSettings {
    /// One SQLite file, created when missing.
    Sqlite {
        /// The file.
        path: PathBuf,
    },
    /// A PostgreSQL database, which several query-stores may share.
    Postgresql(Box<PostgresqlSettings>),
}

/// The file or the hosts and the database, for messages.
impl fmt::Display for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite { path } => write!(f, "{}", path.display()),
            Self::Postgresql(settings) => write!(f, "{}", settings.database),
        }
    }
}

/// Keys and lifetime of cursors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorSettings {
    /// Keys with their ids; the first one seals, all open. When empty, a key is generated in a file beside the store. A
    /// store in PostgreSQL has no such place, and needs keys.
    pub keys: Vec<(u8, Secret)>,
    /// Lifetime of a cursor from its creation.
    pub lifetime: Duration,
}

impl Settings {
    /// Path of the settings file, unless another one is given.
    pub const DEFAULT_PATH: &str = "config/query-store.yaml";

    /// Default settings with a SQLite file, for programs that embed the service.
    pub fn embedded(path: PathBuf) -> Self {
        Self {
            listen: LISTEN,
            store: StoreSettings::Sqlite { path },
            cursor: CursorSettings { keys: Vec::new(), lifetime: CURSOR_LIFETIME },
            history: HistoryLimit::default(),
            max_body: MAX_BODY,
            drain: DRAIN,
            telemetry: telemetry::Settings::default(),
        }
    }

    /// Reads a settings file.
    ///
    /// # Errors
    /// [`SettingsErrors`]: all problems of the file.
    pub fn load(path: &Path) -> Result<Self, SettingsErrors> {
        Document::load(path)?.read(read)
    }

    /// Reads settings from the text of a file; `path` is for messages.
    ///
    /// # Errors
    /// [`SettingsErrors`]: all problems of the file.
    pub fn parse(path: &Path, text: &str) -> Result<Self, SettingsErrors> {
        Document::parse(path, text)?.read(read)
    }
}

/// Reads all blocks, and only then looks at their results, so that an error in one block hides none in another.
fn read(file: &mut Section<'_>) -> Result<Settings, Reported> {
    let listen = file.value_or("listen", LISTEN, |value| {
        value.parsed("an IP address with a port, such as 127.0.0.1:8081 or [::1]:8081")
    });
    let store = file.section("store", store);
    let cursor = file.section("cursor", |section| Ok(cursor(section)));
    let history = file.section("snapshots", |snapshots| {
        Ok(snapshots.value_or("history", DEFAULT_MAX_HISTORY, |value| value.size(1 << 20..=1 << 40)))
    });
    let max_body = file.section("http", |http| Ok(http.value_or("max_body", MAX_BODY, |v| v.size(1024..=1 << 30))));
    let drain = file.section("timeouts", |timeouts| {
        Ok(timeouts.value_or("drain", DRAIN, |v| v.duration(Duration::from_millis(1)..=Duration::from_secs(86_400))))
    });
    let telemetry = file.section("telemetry", |section| Ok(telemetry(section)));
    let store = store?;
    let cursor = cursor?;
    if matches!(store, StoreSettings::Postgresql(_)) && cursor.keys.is_empty() {
        let what = "has no `keys`, which a store in PostgreSQL needs: all query-stores of one database give the same \
                    ones, so that each of them takes the cursors of the others";
        return Err(file.report("cursor", what));
    }
    let history = HistoryLimit(history?);
    Ok(Settings { listen, store, cursor, history, max_body: max_body?, drain: drain?, telemetry: telemetry? })
}

fn store(section: &mut Section<'_>) -> Result<StoreSettings, Reported> {
    if section.contains("sqlite") && section.contains("postgresql") {
        return Err(
            section.report("postgresql", "is given beside `sqlite`; a service has one store, so remove one of them")
        );
    }
    if let Some(settings) = section.optional("postgresql", |value| value.section(postgresql))? {
        return Ok(StoreSettings::Postgresql(Box::new(settings)));
    }
    section.required("sqlite", |value| {
        value.section(|sqlite| sqlite.required("path", Value::path).map(|path| StoreSettings::Sqlite { path }))
    })
}

fn postgresql(section: &mut Section<'_>) -> Result<PostgresqlSettings, Reported> {
    let database = postgresql::read_database(section);
    let connections = section.value_or("connections", CONNECTIONS, |value| value.integer(1..=1000));
    let deadline = section
        .value_or("deadline", DEADLINE, |value| value.duration(Duration::from_millis(100)..=Duration::from_secs(60)));
    section.removed("replicas", NO_REPLICAS);
    Ok(PostgresqlSettings { database: database?, connections, deadline })
}

fn cursor(section: &mut Section<'_>) -> CursorSettings {
    let lifetime = Duration::from_secs(1)..=MAX_CURSOR_LIFETIME;
    CursorSettings {
        keys: section.value_or("keys", Vec::new(), keys),
        lifetime: section.value_or("lifetime", CURSOR_LIFETIME, |value| value.duration(lifetime)),
    }
}

fn keys(value: &Value<'_>) -> Result<Vec<(u8, Secret)>, Reported> {
    let keys = value.list(|item| {
        item.section(|section| {
            let id = section.required("id", |id| id.integer(0..=255));
            let secret = section.required("secret", secret);
            Ok((id?, secret?))
        })
    })?;
    match Keyring::new(keys.iter().map(|(id, secret)| (*id, secret))) {
        Ok(_) | Err(KeyringError::Empty) => Ok(keys),
        Err(error) => value.reject(format_args!("cannot be used: {error}")),
    }
}

fn secret(value: &Value<'_>) -> Result<Secret, Reported> {
    let secret = value.secret()?;
    if secret.expose().chars().count() < MIN_SECRET {
        let what = "is too short; give at least 32 random characters, such as `openssl rand -base64 32` prints";
        return value.reject(what);
    }
    Ok(secret)
}

fn telemetry(section: &mut Section<'_>) -> telemetry::Settings {
    let default = telemetry::Settings::default();
    let formats = [("text", telemetry::LogFormat::Text), ("json", telemetry::LogFormat::Json)];
    let levels = [
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("info", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
    ];
    telemetry::Settings {
        format: section.value_or("log", default.format, |value| value.choice(&formats)),
        level: section.value_or("level", default.level, |value| value.choice(&levels)),
    }
}
