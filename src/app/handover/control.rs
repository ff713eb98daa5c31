//! Hand-overs of a running gateway: to a process that asks for it, and to one that it starts.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::new_process::Takeover;
use super::old_process::{HandoverParts, HandoverServer};
use super::upgrade::Upgrades;
use crate::app::listeners::KeptListeners;
use crate::config::Config;
use control::admin::HandoverServices;
use edge::transport::ListenerRelease;

/// Hand-overs of a running gateway.
pub(crate) struct HandoverControl {
    /// Copies of the listening sockets.
    pub(crate) kept: Arc<KeptListeners>,
    pub(crate) release: ListenerRelease,
    pub(crate) server: Arc<HandoverServer>,
    pub(crate) upgrades: Arc<Upgrades>,
}

impl HandoverControl {
    /// `takeover` is the process that this one takes over from.
    pub(crate) fn new(config: &Config, parts: HandoverParts, takeover: Option<&Takeover>) -> Self {
        let kept = Arc::clone(&parts.listeners);
        let release = parts.release.clone();
        let predecessor: Option<Arc<AtomicBool>> = takeover.map(Takeover::liveness);
        let server = HandoverServer::new(config, parts, predecessor);
        let upgrades = Arc::new(Upgrades::new(&server, &config.source.given));
        Self { kept, release, server, upgrades }
    }

    /// Hand-overs, as the admin socket offers them.
    pub(crate) fn services(&self) -> HandoverServices {
        let server = Arc::clone(&self.server);
        let upgrades = Arc::clone(&self.upgrades);
        HandoverServices {
            take_over: Arc::new(move |stream, process| server.serve(stream, process)),
            upgrade: Arc::new(move |binary| upgrades.run(binary)),
        }
    }
}
