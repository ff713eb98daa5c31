//! keygate: an API-key gateway, and query-store, the upstream that ships with it.
//!
//! # Request lifecycle
//!
//! One request passes each module once, and so does its response:
//!
//! 1. [`edge::transport`] accepts the connection, reads its PROXY header, performs the TLS handshake with the
//!    certificates of [`platform::tls`], parses heads strictly, enforces time-outs and sizes, and hands each request
//!    with its [`domain::identity::Peer`] to the gateway.
//! 2. [`gateway`] asks [`admission`] to authorize the request, opens its audit entry, has [`edge::forward`] rewrite the
//!    head, sends it through [`upstream`], and returns the response in a body that holds the permit and the audit entry
//!    until its last frame.
//! 3. [`admission`] reads the credential, finds the route, and asks [`state`] for one decision: key, permission, token
//!    and slot. All or nothing: a refusal leaves everything as it was.
//! 4. [`edge::forward`] rewrites heads, in both directions: a head goes in, a head or a refusal comes out. It
//!    removes first, then sets.
//! 5. [`upstream`] picks an endpoint and a pooled connection, validates the response, and classifies failures.
//! 6. [`journal::audit`] has the record before the request leaves for the upstream, and its outcome
//!    after the last byte.
//!
//! `docs/development/architecture.md` walks through a request and a management operation with file names, and has the
//! map of all crates; `docs/development/glossary.md` explains the terms.
//!
//! # Map
//!
//! This crate puts the parts together. Its modules import strictly down; the walls between the crates below are
//! in their `Cargo.toml`.
//!
//! ```text
//! main > cli > app, doctor > config > gateway > admission
//!      > control > {edge, upstream, journal, state > redis-client} > platform > domain
//! ```
//!
//! - The data plane ([`gateway`], [`admission`]) and the control plane ([`control`]) never import each other.
//! - [`doctor`] diagnoses a running gateway and its environment.
//! - [`query_store`] is a program of its own, which the demo embeds.

// Data plane.
pub mod gateway;
pub mod admission;

// Assembly.
pub mod config;
pub mod doctor;
pub mod app;
pub mod cli;
