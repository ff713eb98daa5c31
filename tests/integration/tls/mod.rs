//! TLS: what clients are shown and asked for, what changes while serving, and whom the gateway believes upstream.

pub mod authority;
mod handshake;

// The listeners' side, handshake by handshake.
mod names;
mod versions;
mod clients;
mod tickets;
mod files;

// The gateway, as its users and its upstream see it.
mod client;
mod downstream;
mod swap;
mod upstream;
mod config;
