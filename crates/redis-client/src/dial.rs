//! Opening a connection: TCP, TLS, login.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, cmd};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::connection::Connection;
use super::server_info::Unsuitable;
use super::settings::{Address, Login};
use super::shared::ClientShared;
use platform::settings::WithUnit;
use platform::tls;

/// Time-out of each step of connecting. No request waits for it, and a link that is down tries again and again: long
/// enough for a loaded server, short enough to notice soon that it came back.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_millis(1500);

/// A failed attempt to connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server cannot be reached.
    #[error("cannot reach {address}")]
    Io {
        /// The server.
        address: Address,
        /// The error of the socket or of TLS.
        #[source]
        source: io::Error,
    },
    /// The server does not answer.
    #[error("the server does not answer within {}", WithUnit::Duration(*.0))]
    Silent(Duration),
    /// The host cannot be in a certificate.
    #[error("`{0}` is not a host that a certificate can name")]
    Host(String),
    /// The server replied with an error.
    #[error("the server refused the connection")]
    Refused(#[from] RedisError),
    /// The server is a replica.
    #[error("the server is a replica, not the primary")]
    Replica,
    /// The server is loading its data from disk.
    #[error("the server is still loading its data")]
    Loading,
    /// A write takes longer than a decision may.
    #[error("the server takes longer than the deadline of {}", WithUnit::Duration(*.0))]
    Slow(Duration),
    /// The server cannot hold the state.
    #[error(transparent)]
    Unsuitable(#[from] Unsuitable),
    /// No configured sentinel answers.
    #[error("no sentinel answers")]
    NoSentinel,
    /// The sentinels do not monitor the service.
    #[error("the sentinels know no service `{0}`")]
    UnknownService(String),
}

impl ConnectError {
    /// Returns whether retrying cannot help: an operator must change the configuration of keygate or of the server.
    pub fn is_lasting(&self) -> bool {
        use redis::{ErrorKind, ServerErrorKind};
        match self {
            Self::Unsuitable(_) | Self::Host(_) => true,
            Self::Refused(error) => {
                let denied = matches!(error.code(), Some("WRONGPASS" | "NOAUTH" | "NOPERM"));
                let kind = error.kind();
                denied || kind == ErrorKind::AuthenticationFailed || kind == ErrorKind::Server(ServerErrorKind::NoPerm)
            }
            _ => false,
        }
    }
}

/// The task that drives the I/O of a connection. Dropping it ends the task.
pub(super) struct Driver {
    task: JoinHandle<()>,
    ended: Arc<Notify>,
}

impl Driver {
    fn spawn(io: impl Future<Output = ()> + Send + 'static) -> Self {
        let ended = Arc::new(Notify::new());
        let notify = Arc::clone(&ended);
        let task = tokio::spawn(async move {
            io.await;
            notify.notify_one();
        });
        Self { task, ended }
    }

    /// Notified when the connection has ended.
    pub(super) fn ended(&self) -> Arc<Notify> {
        Arc::clone(&self.ended)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens a connection and logs in.
///
/// # Errors
/// [`ConnectError`]. Reaching the server, and TLS with login, may each take [`CONNECT_TIMEOUT`].
pub(super) async fn dial(
    shared: &ClientShared,
    address: &Address,
    login: &Login,
    database: u16,
) -> Result<(Connection, Driver), ConnectError> {
    let reach = async {
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    let io_error = |source| ConnectError::Io { address: address.clone(), source };
    let silent = |_| ConnectError::Silent(CONNECT_TIMEOUT);
    let stream = timeout(CONNECT_TIMEOUT, reach).await.map_err(silent)?.map_err(io_error)?;
    let set_up = async {
        match &shared.tls {
            None => log_in(login, database, stream).await,
            Some(tls) => {
                let name = ServerName::try_from(address.host.clone());
                let name = name.map_err(|_| ConnectError::Host(address.host.clone()))?;
                log_in(login, database, tls::connect(tls, name, stream).await.map_err(io_error)?).await
            }
        }
    };
    timeout(CONNECT_TIMEOUT, set_up).await.unwrap_or(Err(ConnectError::Silent(CONNECT_TIMEOUT)))
}

async fn log_in(
    login: &Login,
    database: u16,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<(Connection, Driver), ConnectError> {
    let (connection, task) = Connection::new(stream);
    let driver = Driver::spawn(task);
    if login.user.is_some() || login.password.is_some() {
        let mut auth = cmd("AUTH");
        auth.arg(&login.user);
        // A `nopass` user is accepted with any password.
        auth.arg(login.password.as_ref().map_or("", |password| password.expose()));
        if let Err(error) = connection.query::<()>(&auth).await {
            return Err(refused_login(error));
        }
    }
    if database != 0 {
        let mut select = cmd("SELECT");
        connection.query::<()>(select.arg(database)).await?;
    }
    Ok((connection, driver))
}

/// The error of a refused login: whatever the server says about it, an operator must change something.
fn refused_login(error: RedisError) -> ConnectError {
    if error.is_io_error() {
        return error.into();
    }
    RedisError::from((ErrorKind::AuthenticationFailed, "the login is refused", error.to_string())).into()
}
