//! TLS: certificates for clients and of clients, changes while serving, and the verification of the upstream.

pub mod authority;
mod handshake;

// The listener's side, one handshake at a time.
mod names;
mod versions;
mod clients;
mod tickets;
mod files;
mod flaws;

// The whole gateway, from its clients' and its upstream's side.
mod client;
pub mod downstream;
mod swap;
mod upstream;
mod config;
