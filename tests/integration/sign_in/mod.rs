//! Signing in by identity providers and links, and web sessions, end to end through running gateways.
//!
//! Gateways listen without TLS on a local port, and are configured with [`ORIGIN`], as behind a load balancer.
//! [`gateway_browser::GatewayBrowser`] simulates a browser at that origin.

pub mod fixture;
mod process;
pub mod gateway_browser;

mod certified;
mod entitlements;
mod withdrawals;
mod persons;
mod users;
mod services;
mod refused;
mod attacks;
mod links;
mod silent;
mod tabs;
mod full_disk;
mod limits;
mod listeners;
mod new_keys;
mod provider_choice;
mod api_requests;
mod cookies;
mod several_gateways;
mod secrets_in_logs;

/// The gateway's origin for browsers.
const ORIGIN: &str = "https://gateway.test";
