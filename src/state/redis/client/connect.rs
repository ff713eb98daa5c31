//! Making a connection that can be used: reached, encrypted, logged in, found fit, and quick enough.
//!
//! A server that was away may have come back without what it had acknowledged, as a replica that was promoted, or from
//! an older file: the revocations of this gateway are asserted before the connection serves anything else.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisError, cmd};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::info::{Info, Unsuitable};
use super::{Common, sentinel};
use crate::settings::WithUnit;
use crate::state::redis::record_names::RecordNames;
use crate::state::redis::settings::{Address, Login, Servers, Settings};

/// How long a server may take from the first packet to being found fit. A link that is down asks again and again, and
/// nobody waits for it: long enough for a loaded server, short enough to notice soon that it came back.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Commands in the queue of a connection before a sender waits for its driver; what is bounded is the number of
/// commands without an answer, by the link.
const QUEUE: usize = 1024;

/// What a link leads to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    /// This server.
    Server(Address),
    /// Whichever the sentinels say is the primary.
    Primary,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// It cannot be reached.
    #[error("cannot reach {address}")]
    Io {
        /// The server.
        address: Address,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It does not answer.
    #[error("the server does not answer within {}", WithUnit::Duration(*.0))]
    Silent(Duration),
    /// Its host cannot be in a certificate.
    #[error("`{0}` is not a host that a certificate can name")]
    Host(String),
    /// It said no.
    #[error("the server refused the connection")]
    Refused(#[from] RedisError),
    /// It is a replica.
    #[error("the server is a replica, not the primary")]
    Replica,
    /// It reads its data from disk.
    #[error("the server is still loading its data")]
    Loading,
    /// It answers too late to decide anything.
    #[error("the server takes longer than the deadline of {}", WithUnit::Duration(*.0))]
    Slow(Duration),
    /// It cannot hold the state.
    #[error(transparent)]
    Unsuitable(#[from] Unsuitable),
    /// No sentinel is configured that answers.
    #[error("no sentinel answers")]
    NoSentinel,
    /// The sentinels do not know the service.
    #[error("the sentinels know no service `{0}`")]
    UnknownService(String),
}

impl ConnectError {
    /// Whether somebody must change something before it can succeed: waiting does not help.
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

/// A connection that can be used.
pub(super) struct Connected {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: Driver,
    /// The server's process: one that follows another may have less than that had acknowledged.
    pub(super) process: String,
}

/// The task that drives a connection; it ends when this is dropped.
pub(super) struct Driver {
    task: JoinHandle<()>,
    ended: Arc<Notify>,
}

impl Driver {
    fn start(driver: impl Future<Output = ()> + Send + 'static) -> Self {
        let ended = Arc::new(Notify::new());
        let told = Arc::clone(&ended);
        let task = tokio::spawn(async move {
            driver.await;
            told.notify_one();
        });
        Self { task, ended }
    }

    /// Told when the connection is over.
    pub(super) fn ended(&self) -> Arc<Notify> {
        Arc::clone(&self.ended)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Makes connections to one target.
pub(super) struct Connector {
    pub(super) target: Target,
    pub(super) common: Arc<Common>,
    /// Connections that were tried.
    pub(super) attempts: AtomicUsize,
}

impl Connector {
    pub(super) fn new(target: Target, common: Arc<Common>) -> Self {
        Self { target, common, attempts: AtomicUsize::new(0) }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.common.settings
    }

    /// A connection that can be used.
    pub(super) async fn connect(&self) -> Result<Connected, ConnectError> {
        let address = match (&self.target, &self.settings().servers) {
            (Target::Server(address), _) => address.clone(),
            (Target::Primary, Servers::Sentinel { sentinels, service }) => {
                sentinel::primary(self, sentinels, service).await?
            }
            (Target::Primary, _) => return Err(ConnectError::NoSentinel),
        };
        let fit = async {
            let login = self.login(&self.settings().login, self.settings().database);
            let (mut connection, driver) = self.establish(&address, &login).await?;
            let process = self.examine(&mut connection).await?;
            self.common.revocations.assert(&self.common, &process, &mut connection).await?;
            Ok(Connected { connection, driver, process })
        };
        timeout(PATIENCE, fit).await.unwrap_or(Err(ConnectError::Silent(PATIENCE)))
    }

    pub(super) fn login(&self, login: &Login, database: u16) -> RedisConnectionInfo {
        let mut info = RedisConnectionInfo::default().set_db(i64::from(database));
        if let Some(user) = &login.user {
            info = info.set_username(user);
        }
        match &login.password {
            Some(password) => info = info.set_password(password.expose()),
            // The library logs in with a password only; a user who needs none is let in with any.
            None if login.user.is_some() => info = info.set_password(""),
            None => {}
        }
        info
    }

    /// A connection over which somebody has logged in.
    pub(super) async fn establish(
        &self,
        address: &Address,
        login: &RedisConnectionInfo,
    ) -> Result<(MultiplexedConnection, Driver), ConnectError> {
        let reach = async {
            let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let io = |source| ConnectError::Io { address: address.clone(), source };
        let stream = timeout(PATIENCE, reach).await.map_err(|_| ConnectError::Silent(PATIENCE))?.map_err(io)?;
        let set_up = async {
            match &self.common.tls {
                None => driven(login, stream).await,
                Some(tls) => {
                    let name = ServerName::try_from(address.host.clone());
                    let name = name.map_err(|_| ConnectError::Host(address.host.clone()))?;
                    driven(login, tls.connect(name, stream).await.map_err(io)?).await
                }
            }
        };
        timeout(PATIENCE, set_up).await.unwrap_or(Err(ConnectError::Silent(PATIENCE)))
    }

    /// Whether the server is the one to ask, can hold the state, and is quick enough. Which process it is.
    async fn examine(&self, connection: &mut MultiplexedConnection) -> Result<String, ConnectError> {
        let info: String = cmd("INFO").query_async(connection).await?;
        let info = Info::parse(&info);
        if info.is_cluster() && !self.common.cluster.swap(true, Ordering::Relaxed) {
            self.common.topology_changed();
        }
        if info.is_loading() {
            return Err(ConnectError::Loading);
        }
        if !info.is_primary() && !info.is_cluster() {
            return Err(ConnectError::Replica);
        }
        info.suits()?;
        self.time(connection, info.is_cluster()).await?;
        Ok(info.process())
    }

    /// Whether a write is done within the deadline. A node of a Cluster takes only keys of its own slots, so there it
    /// is no write.
    async fn time(&self, connection: &mut MultiplexedConnection, cluster: bool) -> Result<(), ConnectError> {
        let probe = RecordNames::new(&self.settings().prefix).probe();
        let mut probing = cmd("PING");
        if !cluster {
            probing = cmd("SET");
            probing.arg(probe).arg(1).arg("PX").arg(1000);
        }
        let started = Instant::now();
        probing.query_async::<()>(connection).await?;
        let deadline = self.settings().deadline;
        if started.elapsed() > deadline { Err(ConnectError::Slow(deadline)) } else { Ok(()) }
    }
}

/// A connection over a stream, and the task that drives it.
async fn driven(
    login: &RedisConnectionInfo,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<(MultiplexedConnection, Driver), ConnectError> {
    // The link has its own time-outs, and tells an answer that is late from one that is lost.
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(QUEUE);
    let (connection, driver) = MultiplexedConnection::new_with_config(login, stream, config).await?;
    Ok((connection, Driver::start(driver)))
}
