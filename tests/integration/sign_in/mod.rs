//! Signing in by an identity provider, end to end through running gateways, and the attacks on it.
//!
//! Gateways are reached in the clear at a port of this machine, and believe that browsers reach them as [`ORIGIN`], as they
//! do behind a load balancer. [`visitor::Visitor`] is such a browser.

mod rig;
mod process;
mod visitor;

mod certified;
mod entitlements;
mod refused;
mod attacks;
mod links;
mod limits;
mod listeners;
mod api_requests;
mod cookies;
mod several_gateways;
mod secrets_in_logs;

/// Where browsers believe the gateway to be.
const ORIGIN: &str = "https://gateway.test";
