//! Admin interfaces of a gateway, for operators and their programs.
//!
//! - The **admin socket**: management as JSON over HTTP/1.1 on a Unix socket of mode 0600. Any process that may open it
//!   is the operator, who may do everything.
//! - The **admin listener**: `/metrics` for Prometheus, `/live` and `/ready` for orchestrators and load balancers.
//!
//! An [`Operation`] is what travels to the socket and a [`Reply`] what comes back; [`perform`] dispatches one to the
//! typed functions of [`management`](crate::management). The command line performs operations with it as well, on the
//! state's files, when no gateway runs.
//!
//! Binding is separate from serving, so that a gateway binds all its listeners before it serves any. Both
//! interfaces serve on the runtime that polls them, and end with the shutdown future: requests under way finish
//! first, within seconds.

mod operation;
mod reads;
mod reply;
mod dispatch;
mod backup;
mod socket;
mod config_status;
mod upstreams;
mod handover;
mod listener;
mod readiness;
mod serving;
mod response;

pub use config_status::{ConfigReport, ConfigStatus, RejectedConfig};
pub use dispatch::perform;
pub use handover::{
    HANDOVER_PATH, HANDOVER_PROTOCOL, HandoverServices, UPGRADE_PATH, UpgradeInProgress, UpgradeReport, UpgradeRequest,
};
pub use listener::serve_http;
pub use operation::Operation;
pub use readiness::{Cause, Readiness, ReadinessReport};
pub use reply::Reply;
pub use socket::{
    BindError, CONFIG_PATH, OPERATIONS_PATH, Reports, SHIPPING_PATH, STATE_PATH, SUDO_UID_HEADER, SocketServices,
    UPSTREAMS_PATH, bind_socket, serve_socket,
};
