//! Hand-over by the admin socket: a connection that a new process takes over by, and upgrades.

use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, UPGRADE};
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use super::response::{self, AdminResponse};

/// Path at which a new process takes over.
pub const HANDOVER_PATH: &str = "/v1/handover";
/// Protocol that a connection to that path switches to.
pub const HANDOVER_PROTOCOL: &str = "keygate-handover";
/// Path of upgrades.
pub const UPGRADE_PATH: &str = "/v1/upgrade";
/// Bytes of a request for an upgrade at most.
const MAX_REQUEST: usize = 16 << 10;

/// Request for an upgrade.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpgradeRequest {
    /// Absolute path of the binary of the new process.
    pub binary: PathBuf,
}

/// Result of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeReport {
    /// Steps that were made.
    pub steps: Vec<String>,
    /// Reason why no process took over; none when one did.
    pub error: Option<String>,
}

/// Another upgrade goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another upgrade is in progress; try again when it finishes")]
pub struct UpgradeInProgress;

/// Performs an upgrade to the program at a path.
type Upgrade = dyn Fn(&Path) -> Result<UpgradeReport, UpgradeInProgress> + Send + Sync;

/// Serves the connection of a new process with this id, which is unknown in another PID namespace.
type TakeOver = dyn Fn(StdUnixStream, Option<u32>) + Send + Sync;

/// Services behind the socket for connections and requests of hand-overs.
#[derive(Clone)]
pub struct HandoverServices {
    /// Serves the connection of a new process. Does not block.
    pub take_over: Arc<TakeOver>,
    /// Performs an upgrade. Blocks.
    pub upgrade: Arc<Upgrade>,
}

impl HandoverServices {
    /// Of a process that hands nothing over.
    pub fn none() -> Self {
        Self { take_over: Arc::new(|_, _| {}), upgrade: Arc::new(|_| Err(UpgradeInProgress)) }
    }

    /// Hands the connection of a request over, once it has switched protocols.
    pub(super) fn switch(&self, mut request: Request<Incoming>) -> AdminResponse {
        if request.headers().get(UPGRADE).is_none_or(|protocol| protocol != HANDOVER_PROTOCOL) {
            let detail = format!("this path is for connections that switch to {HANDOVER_PROTOCOL}");
            return response::problem(StatusCode::UPGRADE_REQUIRED, "upgrade_required", detail);
        }
        let upgraded = hyper::upgrade::on(&mut request);
        let take_over = Arc::clone(&self.take_over);
        tokio::spawn(async move {
            match upgraded.await.map(|upgraded| upgraded.downcast::<TokioIo<UnixStream>>()) {
                Ok(Ok(parts)) => {
                    let stream = parts.io.into_inner();
                    let process = peer_process(&stream);
                    match stream.into_std() {
                        Ok(stream) => take_over(stream, process),
                        Err(error) => tracing::warn!(%error, "cannot hand a connection of the admin socket over"),
                    }
                }
                Ok(Err(_)) => tracing::warn!("a connection that is no Unix socket cannot be handed over"),
                Err(error) => tracing::debug!(%error, "a connection of the admin socket ended before it switched"),
            }
        });
        let mut switching = response::content(StatusCode::SWITCHING_PROTOCOLS, "text/plain", Bytes::new());
        switching.headers_mut().remove(CONTENT_TYPE);
        switching.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        switching.headers_mut().insert(UPGRADE, HeaderValue::from_static(HANDOVER_PROTOCOL));
        switching
    }

    /// Performs an upgrade, also when the client disconnects meanwhile.
    pub(super) async fn upgrade(&self, body: Incoming) -> AdminResponse {
        let invalid = |detail| response::problem(StatusCode::BAD_REQUEST, "invalid_upgrade", detail);
        let body = match response::read_body(body, MAX_REQUEST).await {
            Ok(body) => body,
            Err(error) => return invalid(format!("the request cannot be read: {error}")),
        };
        let request: UpgradeRequest = match serde_json::from_slice(&body) {
            Ok(request) => request,
            Err(error) => return invalid(format!("the body is not a request for an upgrade: {error}")),
        };
        let upgrade = Arc::clone(&self.upgrade);
        match tokio::task::spawn_blocking(move || upgrade(&request.binary)).await {
            Ok(Ok(report)) => response::json(StatusCode::OK, &report),
            Ok(Err(busy)) => response::problem(StatusCode::CONFLICT, "upgrade_in_progress", busy.to_string()),
            Err(error) => {
                tracing::error!(%error, "an upgrade panicked");
                response::panicked("upgrade")
            }
        }
    }
}

/// Id of the process that has opened a connection; none when it is in another PID namespace.
fn peer_process(stream: &UnixStream) -> Option<u32> {
    let id = stream.peer_cred().ok()?.pid()?;
    u32::try_from(id).ok().filter(|id| *id != 0)
}
