//! Admin socket: management over HTTP/1.1 on a Unix socket.
//!
//! - `/v1/…` is the [API](crate::api), for the operator.
//! - `GET /v1/upstreams` lists the endpoints of the upstreams, or of one (`upstream`), a page at a time
//!   (`cursor`, `limit`).
//! - `GET /v1/shipping` lists the sinks of the audit, with their lag.
//! - `GET /v1/state` exports the state, as the lines of a file; `POST /v1/state` imports some of them.
//! - `POST /v1/handover` switches to the protocol by which a new process takes over; `POST /v1/upgrade` starts one.
//! - Changes are recorded with the user of the peer (`SO_PEERCRED`); of a peer that is root, also with the user that
//!   `Keygate-Sudo-Uid` names.
//! - `GET /v1/config` reports the active configuration, `GET /v1/health` that the gateway serves the socket.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Context;

use http::{Method, Request, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use tokio::net::UnixListener;

use super::ConfigStatus;
use super::backup;
use super::handover::{HANDOVER_PATH, HandoverServices, UPGRADE_PATH};
use super::response::{self, AdminResponse};
use super::serving;
use super::upstreams;
use crate::api::Api;
use crate::management::{Actor, ManagementError, UnixUser};
use domain::page::Page;
use journal::shipping::SinkReport;
use platform::abort_on_drop::AbortOnDrop;
use platform::accept_errors::AcceptErrorLog;
use upstream::EndpointReport;

/// Path of the API.
pub const API_PATH: &str = "/v1";
/// Path of the health check of the socket.
const HEALTH_PATH: &str = "/v1/health";
/// Path of the report of the active configuration.
pub const CONFIG_PATH: &str = "/v1/config";
/// Path of the list of the upstream's endpoints.
pub const UPSTREAMS_PATH: &str = "/v1/upstreams";
/// Path of the list of the audit's sinks.
pub const SHIPPING_PATH: &str = "/v1/shipping";
/// Path of the state as a whole.
pub const STATE_PATH: &str = "/v1/state";
/// Field by which a command of root sends its `SUDO_UID`.
pub const SUDO_UID_HEADER: &str = "keygate-sudo-uid";
/// Advice for a command of an earlier version.
const EARLIER: &str = "this command is of an earlier version than the gateway; run the keygate of the gateway";
/// Bytes of the body of a call at most; the largest one has a few names and permissions.
const MAX_BODY: usize = 64 << 10;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// Reason why the socket could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another gateway listens on the socket.
    #[error("{0}: another gateway listens on this socket; stop it, or configure another admin.socket")]
    InUse(PathBuf),
    /// The path exists and is not a socket.
    #[error("{0}: is there, and is not a socket; remove it, or configure another admin.socket")]
    NotASocket(PathBuf),
    /// The file system refused.
    #[error("{path}: the admin socket cannot be made")]
    Io {
        /// The socket.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: io::Error,
    },
}

/// Binds the socket with mode 0600, in a directory that is created with mode 0700 when it is missing. Replaces a stale
/// socket, which a gateway that is gone left behind. Call it on a runtime.
///
/// # Errors
/// [`BindError`]; a socket on which a process listens is never replaced.
pub fn bind_socket(path: &Path) -> Result<UnixListener, BindError> {
    let failed = |source| BindError::Io { path: path.to_owned(), source };
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    }
    remove_stale(path)?;
    listen(path).map_err(failed)
}

fn remove_stale(path: &Path) -> Result<(), BindError> {
    let failed = |source| BindError::Io { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(failed(e)),
        // A wrong path in the configuration must not delete a file.
        Ok(found) if !found.file_type().is_socket() => Err(BindError::NotASocket(path.to_owned())),
        // The kernel keeps no record of a socket file's owner; only a connection attempt tells a stale one.
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => Err(BindError::InUse(path.to_owned())),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(failed),
            Err(e) => Err(failed(e)),
        },
    }
}

/// Sets the mode between `bind` and `listen`: a socket that does not listen yet refuses connections, so that no process
/// connects before the mode holds.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    UnixListener::from_std(socket.into())
}

/// Source of reports: what it returns is shown as it is at that moment.
pub type Reports<T> = Arc<dyn Fn() -> Vec<T> + Send + Sync>;

/// Services behind the socket.
#[derive(Clone)]
pub struct SocketServices {
    /// Performs calls, below [`API_PATH`].
    pub api: Api,
    /// The active configuration.
    pub config: Arc<ConfigStatus>,
    /// The endpoints of the upstream.
    pub upstreams: Reports<EndpointReport>,
    /// The sinks of the audit.
    pub shipping: Reports<SinkReport>,
    /// Hand-overs to a new process.
    pub handover: HandoverServices,
    /// Log of failed accepts.
    pub accept_errors: AcceptErrorLog,
}

/// Serves the socket until the shutdown future completes.
pub async fn serve_socket(listener: UnixListener, services: SocketServices, shutdown: impl Future<Output = ()>) {
    // Again: systemd, or the process before, may have opened it, and clients see who has called this last as their peer
    // (unix(7), SO_PEERCRED).
    if let Err(error) = SockRef::from(&listener).listen(BACKLOG) {
        tracing::warn!(%error, "cannot listen on the admin socket again; `keygate doctor` may look at another process");
    }
    let accept = move |cx: &mut Context<'_>| {
        listener.poll_accept(cx).map(|accepted| {
            let (stream, _) = accepted?;
            let uid = stream.peer_cred()?.uid();
            Ok((stream, uid))
        })
    };
    let errors = services.accept_errors.clone();
    let handle = move |request, uid| handle(request, uid, services.clone());
    serving::serve(accept, handle, &errors, shutdown).await;
}

async fn handle(request: Request<Incoming>, uid: u32, services: SocketServices) -> AdminResponse {
    let SocketServices { api, config, upstreams: endpoints, shipping: sinks, handover, .. } = services;
    let actor = Actor::operator(UnixUser::of_process(uid, sudo_uid(&request)));
    match (request.method(), request.uri().path()) {
        (&Method::GET, STATE_PATH) => backup::export(Arc::clone(api.management()), actor).await,
        (&Method::POST, STATE_PATH) => backup::import(request.into_body(), Arc::clone(api.management()), actor).await,
        (&Method::GET, CONFIG_PATH) => response::json(StatusCode::OK, &config.report()),
        (&Method::GET, UPSTREAMS_PATH) => upstreams::respond(endpoints(), request.uri().query()),
        // There are a few sinks, by the configuration: one page has all.
        (&Method::GET, SHIPPING_PATH) => {
            response::json(StatusCode::OK, &Page::<SinkReport> { items: sinks(), next: None })
        }
        (&Method::POST, HANDOVER_PATH) => handover.switch(request),
        (&Method::POST, UPGRADE_PATH) => handover.upgrade(request.into_body()).await,
        (&Method::GET, HEALTH_PATH) => response::json(StatusCode::OK, &serde_json::json!({ "status": "ok" })),
        // The path of all operations in version 0.2.
        (_, "/v1/operations") => response::problem(StatusCode::GONE, "earlier_version", EARLIER.to_owned()),
        (_, HANDOVER_PATH | UPGRADE_PATH) => response::method_not_allowed("POST"),
        (_, STATE_PATH) => response::method_not_allowed("GET, POST"),
        (_, CONFIG_PATH | UPSTREAMS_PATH | SHIPPING_PATH | HEALTH_PATH) => response::method_not_allowed("GET"),
        _ => call(request, actor, api).await,
    }
}

/// The user for whom the peer says that it acts by sudo.
fn sudo_uid(request: &Request<Incoming>) -> Option<u32> {
    request.headers().get(SUDO_UID_HEADER)?.to_str().ok()?.parse().ok()
}

/// Performs a call of the API. A change has a task of its own, so that a client that disconnects does not cancel it on
/// its way. A read is abandoned then.
async fn call(request: Request<Incoming>, operator: Actor, api: Api) -> AdminResponse {
    let (head, body) = request.into_parts();
    let is_read = head.method.is_safe();
    let Ok(body) = response::read_body(body, MAX_BODY).await else {
        return api.refuse_operator(&ManagementError::BodyLost).map(|body| Either::Left(Full::new(body)));
    };
    let request = Request::from_parts(head, body);
    let task = tokio::spawn(async move { api.serve_operator(operator, request).await });
    let performed = if is_read { AbortOnDrop::new(task).await } else { task.await };
    match performed {
        Ok(response) => response.map(|body| Either::Left(Full::new(body))),
        Err(error) => {
            tracing::error!(%error, "a call by the admin socket panicked");
            response::panicked("call")
        }
    }
}
