//! Admin interfaces of a gateway, for operators and their programs.
//!
//! - The **admin socket**: the [API](crate::api) of management over HTTP/1.1 on a Unix socket of mode 0600. Any process
//!   that may open it is the operator, who may do everything.
//! - The **admin listener**: `/metrics` for Prometheus, `/live` and `/ready` for orchestrators and load balancers.
//!
//! Binding is separate from serving, so that a gateway binds all its listeners before it serves any. Both
//! interfaces serve on the runtime that polls them, and end with the shutdown future: requests under way finish
//! first, within seconds.

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
pub use handover::{
    HANDOVER_PATH, HANDOVER_PROTOCOL, HandoverServices, UPGRADE_PATH, UpgradeInProgress, UpgradeReport, UpgradeRequest,
};
pub use listener::serve_http;
pub use readiness::{Cause, Readiness, ReadinessReport};
pub use socket::{
    API_PATH, BindError, CONFIG_PATH, Reports, SHIPPING_PATH, STATE_PATH, SUDO_UID_HEADER, SocketServices,
    UPSTREAMS_PATH, bind_socket, serve_socket,
};
