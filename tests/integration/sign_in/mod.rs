//! Signing in by identity providers and links, and web sessions, end to end through running gateways.
//!
//! Gateways listen without TLS on a local port, and are configured with [`ORIGIN`], as behind a load balancer.
//! [`visitor::Visitor`] simulates a browser at that origin.

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

/// The gateway's origin for browsers.
const ORIGIN: &str = "https://gateway.test";
