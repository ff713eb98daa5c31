//! Settings of a PostgreSQL database: a URL, and TLS.

use std::fmt;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::tls::ClientSettings;
use domain::secret::Secret;

/// Text that is not the URL of a database, or one that is not accepted. Contains nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum InvalidUrl {
    #[error("is not a PostgreSQL url, such as postgresql://user@host:5432/database; percent-encode special characters")]
    Syntax,
    #[error("begins with something else than postgresql:// or postgres://")]
    Scheme,
    #[error("names no host; write postgresql://user@host:5432/database")]
    Host,
    #[error("names no database; write it behind the host: postgresql://user@host:5432/database")]
    Database,
    #[error("names no user; write it before the host: postgresql://user@host:5432/database")]
    User,
    #[error(
        "has sslmode=prefer or none, which a machine in the path can downgrade; write sslmode=require or \
         sslmode=disable"
    )]
    SslMode,
    #[error("has sslmode=disable and a `tls` section; remove one of them")]
    TlsDisabled,
}

/// Settings of a database.
///
/// - `Debug` shows hosts and database only.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    config: Config,
    tls: ClientSettings,
}

impl Settings {
    /// Parses a URL as libpq defines it ("Connection URIs"): `postgresql://user:password@host:port/database`, with
    /// several hosts separated by commas. `tls` is `None` when no certificate files are configured: connections are
    /// encrypted with `sslmode=require` in the URL, and verified with the authorities of the system.
    ///
    /// # Errors
    /// [`InvalidUrl`].
    pub fn parse(url: &str, tls: Option<ClientSettings>) -> Result<Self, InvalidUrl> {
        if !["postgresql://", "postgres://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(InvalidUrl::Scheme);
        }
        let mut config: Config = url.parse().map_err(|_| InvalidUrl::Syntax)?;
        if config.get_hosts().is_empty() {
            return Err(InvalidUrl::Host);
        }
        if config.get_dbname().is_none_or(str::is_empty) {
            return Err(InvalidUrl::Database);
        }
        if config.get_user().is_none_or(str::is_empty) {
            return Err(InvalidUrl::User);
        }
        let named = url.contains("sslmode=");
        match (config.get_ssl_mode(), named, &tls) {
            (SslMode::Disable, _, None) | (SslMode::Require, ..) => {}
            (SslMode::Disable, _, Some(_)) => return Err(InvalidUrl::TlsDisabled),
            (_, false, Some(_)) => {
                config.ssl_mode(SslMode::Require);
            }
            (_, false, None) => {
                config.ssl_mode(SslMode::Disable);
            }
            (_, true, _) => return Err(InvalidUrl::SslMode),
        }
        Ok(Self { config, tls: tls.unwrap_or_default() })
    }

    /// Replaces the password of the URL.
    pub fn set_password(&mut self, password: &Secret) {
        self.config.password(password.expose());
    }

    /// True when there is a password.
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// True when connections are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.config.get_ssl_mode() == SslMode::Require
    }

    /// True when every host is this machine: a loopback address, `localhost` or a Unix socket.
    pub fn is_local(&self) -> bool {
        self.config.get_hosts().iter().all(|host| match host {
            Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback()),
            Host::Unix(_) => true,
        })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// TLS of connections to it.
    pub fn tls(&self) -> &ClientSettings {
        &self.tls
    }
}

/// Hosts and database, for messages: `db.example:5432/audit`.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, host) in self.config.get_hosts().iter().enumerate() {
            if number > 0 {
                f.write_str(",")?;
            }
            match host {
                Host::Tcp(name) => f.write_str(name)?,
                Host::Unix(path) => write!(f, "{}", path.display())?,
            }
            let ports = self.config.get_ports();
            if let Some(port) = ports.get(number).or(ports.first()) {
                write!(f, ":{port}")?;
            }
        }
        write!(f, "/{}", self.config.get_dbname().unwrap_or_default())
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Settings({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Settings, InvalidUrl> {
        Settings::parse(url, None)
    }

    #[test]
    fn url_names_user_host_and_database() {
        let settings = parse("postgresql://audit:hunter2@db.example:5433/past").unwrap();
        assert_eq!(settings.to_string(), "db.example:5433/past");
        assert_eq!(format!("{settings:?}"), "Settings(db.example:5433/past)");
        assert!(!settings.is_encrypted() && !settings.is_local());
        assert!(parse("postgres://a@localhost/b").unwrap().is_local());
        assert!(parse("postgres://a@127.0.0.1,[::1]/b").unwrap().is_local());
        for (url, error) in [
            ("mysql://a@b/c", InvalidUrl::Scheme),
            ("postgresql://a@b:port/c", InvalidUrl::Syntax),
            ("postgresql://a@/c", InvalidUrl::Host),
            ("postgresql://a@b", InvalidUrl::Database),
            ("postgresql://b/c", InvalidUrl::User),
            ("postgresql://a@b/c?sslmode=prefer", InvalidUrl::SslMode),
        ] {
            assert_eq!(parse(url), Err(error), "{url}");
        }
    }

    #[test]
    fn tls_is_required_or_not_used() {
        assert!(parse("postgresql://a@b/c?sslmode=require").unwrap().is_encrypted());
        assert!(!parse("postgresql://a@b/c?sslmode=disable").unwrap().is_encrypted());
        let with_files = |url| Settings::parse(url, Some(ClientSettings::default()));
        assert!(with_files("postgresql://a@b/c").unwrap().is_encrypted());
        assert_eq!(with_files("postgresql://a@b/c?sslmode=disable"), Err(InvalidUrl::TlsDisabled));
    }
}
