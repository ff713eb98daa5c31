//! Signing in by an identity provider, end to end through running gateways, and the attacks on it.
//!
//! Gateways are reached in the clear at a port of this machine, and believe that browsers reach them as [`ORIGIN`], as they
//! do behind a load balancer. [`visitor::Visitor`] is such a browser.

mod rig;
mod served;
mod visitor;

mod certified;
mod directory;
mod refused;
mod attacks;
mod links;
mod bounds;
mod listeners;
mod api;
mod cookies;
mod over_gateways;
mod silence;

/// Where browsers believe the gateway to be.
const ORIGIN: &str = "https://gateway.test";
