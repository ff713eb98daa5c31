//! The settings of query-store, and their file. `config/query-store.yaml` shows every key with its default.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing::level_filters::LevelFilter;

use crate::query_store::cursor::{Keyring, KeyringError, MIN_SECRET};
use crate::secret::Secret;
use crate::settings::{Document, Reported, Section, SettingsErrors, Value};
use crate::telemetry;

/// Where it listens unless told otherwise: on this machine only, because it believes whoever reaches it.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);
/// As the users were promised.
const CURSOR_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest cursor lifetime: what a snapshot sees is kept for as long.
const MAX_CURSOR_LIFETIME: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// Room for the longest query in the most wasteful JSON, with ease.
const MAX_BODY: u64 = 1 << 20;
/// Half of what most orchestrators wait before they kill.
const DRAIN: Duration = Duration::from_secs(15);

/// Everything that can be configured, checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the gateway connects.
    pub listen: SocketAddr,
    /// Where the queries are.
    pub store: StoreSettings,
    /// The cursors.
    pub cursor: CursorSettings,
    /// Bytes of a request body.
    pub max_body: u64,
    /// How long requests in flight may go on after the signal to stop.
    pub drain: Duration,
    /// The logs.
    pub telemetry: telemetry::Settings,
}

/// Where the queries are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSettings {
    /// In one SQLite file, made when missing.
    Sqlite {
        /// The file.
        path: PathBuf,
    },
}

/// The cursors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorSettings {
    /// The keys that open cursors, by id, the one that seals first; when there are none, one is kept beside the store.
    pub keys: Vec<(u8, Secret)>,
    /// How long a cursor is valid from its making.
    pub lifetime: Duration,
}

impl Settings {
    /// The file that is read when none is named.
    pub const DEFAULT_PATH: &str = "config/query-store.yaml";

    /// The defaults, over a SQLite file: what a program that embeds the service begins with.
    pub fn embedded(path: PathBuf) -> Self {
        Self {
            listen: LISTEN,
            store: StoreSettings::Sqlite { path },
            cursor: CursorSettings { keys: Vec::new(), lifetime: CURSOR_LIFETIME },
            max_body: MAX_BODY,
            drain: DRAIN,
            telemetry: telemetry::Settings::default(),
        }
    }

    /// Reads a settings file.
    ///
    /// # Errors
    /// [`SettingsErrors`]: all that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, SettingsErrors> {
        Document::load(path)?.read(read)
    }

    /// Takes a text as the content of a file at a path.
    ///
    /// # Errors
    /// [`SettingsErrors`]: all that is wrong with it.
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
    let max_body = file.section("http", |http| Ok(http.value_or("max_body", MAX_BODY, |v| v.size(1024..=1 << 30))));
    let drain = file.section("timeouts", |timeouts| {
        Ok(timeouts.value_or("drain", DRAIN, |v| v.duration(Duration::from_millis(1)..=Duration::from_secs(86_400))))
    });
    let telemetry = file.section("telemetry", |section| Ok(telemetry(section)));
    Ok(Settings { listen, store: store?, cursor: cursor?, max_body: max_body?, drain: drain?, telemetry: telemetry? })
}

fn store(section: &mut Section<'_>) -> Result<StoreSettings, Reported> {
    section.required("sqlite", |value| {
        value.section(|sqlite| sqlite.required("path", Value::path).map(|path| StoreSettings::Sqlite { path }))
    })
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
