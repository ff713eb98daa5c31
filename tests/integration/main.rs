//! The integration tests: one binary, a file per behaviour, on real sockets.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, unreachable_pub, reason = "tests")]

#[allow(dead_code, unused_imports, reason = "shared by all test binaries")]
#[path = "../support/mod.rs"]
mod support;

// The gateway, as its users see it.
mod access_log;
mod answers;
mod credentials;
mod decisions;
mod routing;
mod forwarding;
mod grpc;
mod hostile_upstream;
mod failing_upstreams;
mod several_upstreams;
mod http2;
mod limits;
mod quota;
mod litellm;
mod lost_state;
mod usage;
mod refusals;
mod revocation;
mod revoked_exchanges;
mod gateways_on_redis;
mod tls;
mod upgrades;
mod wire;
mod edge;
mod federation;
mod leaks;
mod dashboard_api;
mod discovery;
mod pools;
mod traces;
mod proxies;

// Its parts.
mod config;
mod config_messages;
mod config_quota;
mod config_redis;
mod config_removed;
mod config_session;
mod config_shipping;
mod config_warnings;
mod journal;
mod key_policy;
mod offline_keys;
mod shipping;
mod audit_view;
mod state_contract;
mod management;
mod management_api;
mod openapi;
mod command_line;
mod remote;
mod doctor;
mod doctor_providers;
mod migration;
mod oidc;
mod sign_in;

// The service behind it.
mod query_store;

// The servers that the above is tried against.
mod redis_harness;

// The mechanisms, as the pages of docs/design tell them.
mod design;

// The code and what is shipped with it.
mod deploy;
mod packaging;
mod docs;
mod cli_page;
mod helm;
mod monitoring;
