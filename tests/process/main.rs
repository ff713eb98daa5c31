//! Tests of the real binaries: gateway and query-store together, signals, exit codes, memory, and kills.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, unreachable_pub, reason = "tests")]

#[allow(dead_code, unused_imports, reason = "shared by all test binaries")]
#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code, reason = "the integration tests need more of it")]
#[path = "../integration/tls/authority.rs"]
mod authority;

#[allow(dead_code, reason = "the integration tests need more of it")]
#[path = "../integration/edge/frames.rs"]
mod frames;

#[allow(dead_code, reason = "the integration tests need more of it")]
#[path = "../integration/proxies/program.rs"]
mod proxy;

mod key_limit;
mod access_log;
mod canary;
mod demo;
mod fleet_demo;
mod init;
mod drain;
mod reload;
mod broken_configuration;
mod leaked_keys;
mod management_api;
mod unconfirmed_changes;
mod owner;
mod rolling;
mod systemd;
mod warnings;
mod full_disk;
mod hostile;
mod log;
mod soak;
mod idle_connections;
mod refusals;
mod replay;
mod four_gateways;
mod envoys;
mod events;
mod retention;
mod procedures;
mod pages;
mod runbooks;
mod shipping;
mod signing_key;
mod proofs;
mod sudden_death;
mod compression_death;
mod streaming;
mod upstream_restarts;
mod handover;
