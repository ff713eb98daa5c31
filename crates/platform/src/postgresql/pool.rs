//! Pools of connections to one database (`deadpool-postgres`).
//!
//! - A connection is made by the [`Connector`]: TLS, time-outs and the check of the version are the
//!   same as without a pool.
//! - A connection that has ended is not handed out again: the pool makes a new one.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{BuildError, Connect, Hook, HookError, Manager, ManagerConfig, RecyclingMethod, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config};

use super::connector::{CONNECT_WITHIN, Connector};
use super::error::Error;

/// A pool of connections.
pub type Pool = deadpool_postgres::Pool;

/// Options of a pool.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// `application_name` that the server shows.
    pub name: &'static str,
    /// Maximum number of connections.
    pub connections: usize,
    /// Time to wait for a free connection.
    pub wait: Duration,
    /// Statements that set up the session of each new connection.
    pub session: String,
}

/// Creates a pool, which makes its connections when they are needed.
///
/// # Errors
/// Never with the runtime of this program; the library checks that there is one for the time-outs.
pub fn build_pool(connector: &Arc<Connector>, options: PoolOptions) -> Result<Pool, BuildError> {
    let PoolOptions { name, connections, wait, session } = options;
    let manager = Manager::from_connect(
        connector.config(name),
        PooledConnect(Arc::clone(connector)),
        // A closed connection is noticed by its task; a query before each use would cost a round trip.
        ManagerConfig { recycling_method: RecyclingMethod::Fast },
    );
    Pool::builder(manager)
        .max_size(connections)
        .wait_timeout(Some(wait))
        .create_timeout(Some(CONNECT_WITHIN))
        .runtime(Runtime::Tokio1)
        .post_create(set_up_session(Arc::clone(connector), session))
        .build()
}

/// Checks the server's version and sets up the session of a new connection.
fn set_up_session(connector: Arc<Connector>, session: String) -> Hook {
    let session: Arc<str> = session.into();
    Hook::async_fn(move |client, _| {
        let connector = Arc::clone(&connector);
        let session = Arc::clone(&session);
        Box::pin(async move {
            connector.check_server(client).await.map_err(|error| match error {
                Error::Statement(error) => HookError::Backend(error),
                other => HookError::message(other.to_string()),
            })?;
            client.batch_execute(&session).await.map_err(HookError::Backend)
        })
    })
}

/// Connections of the pool, made by the [`Connector`].
struct PooledConnect(Arc<Connector>);

/// A connection that is being made.
type Connecting<'a> =
    Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), tokio_postgres::Error>> + Send + 'a>>;

impl Connect for PooledConnect {
    fn connect(&self, config: &Config) -> Connecting<'_> {
        let config = config.clone();
        Box::pin(async move { self.0.establish(&config).await })
    }
}
