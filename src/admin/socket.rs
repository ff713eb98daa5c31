//! Management over a Unix socket: `POST /v1/operations` takes an operation as JSON and answers with its reply, or with a
//! problem. `GET /v1/config` tells which configuration is in force, `GET /v1/health` that somebody listens.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;

use super::ConfigStatus;
use super::answer::{self, Answer};
use super::serving;
use crate::clock;
use crate::management::{Management, ManagementError, Operation, Reply};

/// Where operations go.
pub const OPERATIONS_PATH: &str = "/v1/operations";
/// Where to ask whether somebody listens.
pub const HEALTH_PATH: &str = "/v1/health";
/// Where to ask which configuration is in force.
pub const CONFIG_PATH: &str = "/v1/config";
/// Bytes of an operation; the largest has a few names and permissions.
const OPERATION_SIZE: usize = 64 << 10;
/// Connections waiting to be accepted.
const BACKLOG: i32 = 64;

/// Why the socket could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another gateway has it.
    #[error("{0}: another gateway listens on this socket; stop it, or configure another admin.socket")]
    InUse(PathBuf),
    /// Something else is there.
    #[error("{0}: is there, and is not a socket; remove it, or configure another admin.socket")]
    NotASocket(PathBuf),
    /// The file system said no.
    #[error("{path}: the admin socket cannot be made")]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Makes the socket, with mode 0600, in a directory that is made with mode 0700 when it is missing. A socket left behind
/// by a gateway that is gone is replaced. Call it on a runtime.
///
/// # Errors
/// [`BindError`]; a socket that somebody listens on is never replaced.
pub fn bind_socket(path: &Path) -> Result<UnixListener, BindError> {
    let failed = |source| BindError::Io { path: path.to_owned(), source };
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    }
    remove_stale(path)?;
    bound(path).map_err(failed)
}

fn remove_stale(path: &Path) -> Result<(), BindError> {
    let failed = |source| BindError::Io { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(failed(e)),
        Ok(found) if !found.file_type().is_socket() => Err(BindError::NotASocket(path.to_owned())),
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => Err(BindError::InUse(path.to_owned())),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(failed),
            Err(e) => Err(failed(e)),
        },
    }
}

/// The mode is set before anybody can connect: a socket that does not listen yet refuses.
fn bound(path: &Path) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    UnixListener::from_std(socket.into())
}

/// Serves until the shutdown future completes.
pub async fn serve_socket(
    listener: UnixListener,
    management: Arc<Management>,
    config: Arc<ConfigStatus>,
    shutdown: impl Future<Output = ()>,
) {
    let accept = move |cx: &mut Context<'_>| listener.poll_accept(cx).map_ok(|(stream, _)| stream);
    let handle = move |request| handle(request, Arc::clone(&management), Arc::clone(&config));
    serving::serve(accept, handle, shutdown).await;
}

async fn handle(request: Request<Incoming>, management: Arc<Management>, config: Arc<ConfigStatus>) -> Answer {
    match (request.method(), request.uri().path()) {
        (&Method::POST, OPERATIONS_PATH) => match operation(request.into_body()).await {
            Ok(operation) => perform(operation, management).await,
            Err(refusal) => refusal,
        },
        (_, OPERATIONS_PATH) => answer::method_not_allowed("POST"),
        (&Method::GET, CONFIG_PATH) => answer::json(StatusCode::OK, &config.report()),
        (_, CONFIG_PATH) => answer::method_not_allowed("GET"),
        (&Method::GET, HEALTH_PATH) => answer::json(StatusCode::OK, &serde_json::json!({ "status": "ok" })),
        (_, HEALTH_PATH) => answer::method_not_allowed("GET"),
        _ => answer::not_found(),
    }
}

async fn operation(body: Incoming) -> Result<Operation, Answer> {
    let invalid = |detail| answer::problem(StatusCode::BAD_REQUEST, "invalid_operation", detail);
    let body = Limited::new(body, OPERATION_SIZE).collect().await;
    let body: Bytes = body.map_err(|e| invalid(format!("the operation cannot be read: {e}")))?.to_bytes();
    serde_json::from_slice(&body).map_err(|e| invalid(format!("the body is not an operation: {e}")))
}

/// Performs in a task of its own, so that a client that goes away does not break off a change on its way.
async fn perform(operation: Operation, management: Arc<Management>) -> Answer {
    let performed = tokio::spawn(async move { management.perform(operation, clock::now()).await });
    match performed.await {
        Ok(result) => answered(result),
        Err(error) => {
            tracing::error!(%error, "an operation ended unexpectedly");
            let detail = "the operation ended unexpectedly; see the gateway's log".to_owned();
            answer::problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
        }
    }
}

fn answered(result: Result<Reply, ManagementError>) -> Answer {
    match result {
        Ok(reply) => answer::json(StatusCode::OK, &reply),
        Err(error) => answer::problem(error.kind().status(), error.code(), error.in_full()),
    }
}
