//! Connections to a database.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::Error;
use super::settings::Settings;
use crate::tls::ClientTls;

/// Protocol of PostgreSQL in TLS (ALPN), which version 17 requires of clients that begin with TLS
/// and older ones ignore.
const PROTOCOLS: &[&[u8]] = &[b"postgresql"];
/// Time for a connection: several addresses, TLS and authentication.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Oldest version whose statements are used.
const OLDEST: u32 = 15;
/// Encoding of the databases: in another one, a text that a client sends may have no form.
const ENCODING: &str = "UTF8";

/// Makes connections to one database. Its TLS files and its password can be replaced while it is used.
pub struct Connector {
    settings: Settings,
    tls: Option<ClientTls>,
    passwords: ArcSwap<Passwords>,
}

/// Passwords of the user. The server knows one at a time, so around a rotation either may be the one that it knows.
#[derive(Default)]
struct Passwords {
    /// None when the settings have none.
    current: Option<Vec<u8>>,
    /// Tried when the server refuses the current one; none before the first rotation.
    previous: Option<Vec<u8>>,
}

impl Connector {
    /// Reads the TLS files of the settings; makes no connection.
    ///
    /// # Errors
    /// [`Error::Tls`] names the file that cannot be used.
    pub fn open(settings: Settings) -> Result<Self, Error> {
        let open = || ClientTls::open(settings.tls(), PROTOCOLS).map_err(Error::Tls);
        let tls = settings.is_encrypted().then(open).transpose()?;
        let current = settings.config().get_password().map(<[u8]>::to_vec);
        let passwords = ArcSwap::from_pointee(Passwords { current, previous: None });
        Ok(Self { settings, tls, passwords })
    }

    /// Replaces the password by that of other settings, for new connections; true when it is another one. Until the
    /// server accepts it, connections are made with the one before.
    pub fn replace_password(&self, settings: &Settings) -> bool {
        let passwords = self.passwords.load();
        let current = settings.config().get_password().map(<[u8]>::to_vec);
        let is_other = current.is_some() && current != passwords.current;
        if is_other {
            self.passwords.store(Arc::new(Passwords { current, previous: passwords.current.clone() }));
        }
        is_other
    }

    /// Reloads the TLS files, as [`ClientTls::reload`] does.
    ///
    /// # Errors
    /// As for [`ClientTls::reload`].
    pub fn reload(&self) -> Result<Vec<PathBuf>, crate::tls::Error> {
        self.tls.as_ref().map_or_else(|| Ok(Vec::new()), ClientTls::reload)
    }

    /// Hosts and database, for messages.
    pub fn server(&self) -> String {
        self.settings.to_string()
    }

    /// Makes a connection; `name` is the `application_name` that the server shows. The connection runs in a task of the
    /// current runtime, which ends when the client is dropped.
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::Timeout`], [`Error::TooOld`], [`Error::Encoding`].
    pub async fn connect(&self, name: &str) -> Result<Client, Error> {
        let config = self.config(name);
        let timed_out = |_| Error::Timeout { server: self.server(), within: CONNECT_WITHIN };
        let connected = tokio::time::timeout(CONNECT_WITHIN, self.establish(&config)).await.map_err(timed_out)?;
        // The task ends when the client is dropped.
        let (client, _task) = connected.map_err(|source| Error::of_connect(self.server(), source))?;
        self.check_server(&client).await?;
        Ok(client)
    }

    /// Parameters of a connection with this `application_name`.
    pub(super) fn config(&self, name: &str) -> Config {
        let mut config = self.settings.config().clone();
        config.application_name(name);
        // A peer that vanished is noticed by TCP also while no statement runs.
        config.keepalives_idle(Duration::from_secs(30)).tcp_user_timeout(Duration::from_secs(30));
        config
    }

    /// Makes a connection, and starts the task that serves it.
    pub(super) async fn establish(&self, config: &Config) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
        let passwords = self.passwords.load_full();
        let connected = self.log_in(config, passwords.current.as_deref()).await;
        match &connected {
            Err(error) if error.code() == Some(&SqlState::INVALID_PASSWORD) && passwords.previous.is_some() => {
                let server = self.server();
                tracing::warn!(server, "PostgreSQL does not accept the new password yet; the previous one is used");
                self.log_in(config, passwords.previous.as_deref()).await
            }
            _ => connected,
        }
    }

    async fn log_in(
        &self,
        config: &Config,
        password: Option<&[u8]>,
    ) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
        let mut config = config.clone();
        if let Some(password) = password {
            config.password(password);
        }
        match &self.tls {
            Some(tls) => Self::establish_with(&config, MakeRustlsConnect::new(tls.config())).await,
            None => Self::establish_with(&config, NoTls).await,
        }
    }

    async fn establish_with<T>(config: &Config, tls: T) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error>
    where
        T: MakeTlsConnect<Socket> + Send,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let (client, connection) = config.connect(tls).await?;
        let task = tokio::spawn(async move {
            // The statement that fails with the connection reports the error; this is for a connection that is idle.
            if let Err(error) = connection.await {
                tracing::debug!(error = &error as &dyn std::error::Error, "a connection to PostgreSQL has ended");
            }
        });
        Ok((client, task))
    }

    /// Checks the version of the server, and the encoding of the database.
    pub(super) async fn check_server(&self, client: &Client) -> Result<(), Error> {
        let settings = "SELECT current_setting('server_version'), current_setting('server_encoding')";
        let row = client.query_one(settings, &[]).await?;
        let version: String = row.get(0);
        let encoding: String = row.get(1);
        if encoding != ENCODING {
            return Err(Error::Encoding { server: self.server(), encoding });
        }
        let major = version.split(|c: char| !c.is_ascii_digit()).next().and_then(|major| major.parse::<u32>().ok());
        match major {
            Some(major) if major >= OLDEST => Ok(()),
            _ => Err(Error::TooOld { server: self.server(), version }),
        }
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connector({})", self.settings)
    }
}

/// The part of [`ClientTls`] that the library of connections needs: a copy of its configuration.
trait CurrentConfig {
    fn config(&self) -> rustls::ClientConfig;
}

impl CurrentConfig for ClientTls {
    fn config(&self) -> rustls::ClientConfig {
        let connector = self.connector();
        let config: &Arc<rustls::ClientConfig> = connector.config();
        rustls::ClientConfig::clone(config)
    }
}
