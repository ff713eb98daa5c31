//! keygate: an API-key gateway, and query-store, the upstream that ships with it.
//!
//! # Request lifecycle
//!
//! One request passes each module once, and so does its response:
//!
//! 1. [`transport`] accepts the connection, reads its PROXY header, performs the TLS handshake with the certificates of
//!    [`tls`], parses heads strictly, enforces time-outs and sizes, and hands each request with its [`identity::Peer`] to the
//!    gateway.
//! 2. [`gateway`] asks [`admission`] to authorize the request, opens its audit entry, has [`forward`] rewrite the head,
//!    sends it through [`upstream`], and returns the response in a body that holds the permit and the audit entry until
//!    its last frame.
//! 3. [`admission`] reads the credential, finds the route, and asks [`state`] for one decision: key, permission, token and
//!    slot. All or nothing: a refusal leaves everything as it was.
//! 4. [`forward`] rewrites heads, in both directions: a head goes in, a head or a refusal comes out. It removes first, then
//!    sets.
//! 5. [`upstream`] picks an endpoint and a pooled connection, validates the response, and classifies failures.
//! 6. [`audit`] has the record before the request leaves for the upstream, and its outcome after the last byte.
//!
//! `docs/architecture.md` walks through a request and a management operation with file names; `docs/glossary.md` explains
//! the terms.
//!
//! # Map
//!
//! Imports go strictly down and form no circle. `tests/integration/house/` holds the exact table.
//!
//! ```text
//! main > cli > app, doctor > config > {gateway | admin, dashboard} > {admission | management}
//!      > {transport, forward, upstream, oidc, audit, state} > platform > domain
//! ```
//!
//! - The data plane (`gateway`, `admission`) and the control plane (`admin`, `dashboard`, `management`) never import each
//!   other, and mechanisms (`transport` to `state`) never import each other.
//! - [`management`] has one function for each operation on organizations, users, keys and sessions. [`admin`] offers them on
//!   a socket for programs, [`dashboard`] on web pages and as a JSON API for users, who sign in with [`oidc`].
//! - [`doctor`] diagnoses a running gateway and its environment.
//! - [`migration`] copies an embedded state to Redis, and imports the records of an exported state.
//! - [`shipping`] follows the journal, and delivers its records to sinks.
//! - [`query_store`] is a program of its own. It lives in this crate so that the demo can embed it, and uses only the
//!   platform, the domain and [`transport`].

// Data plane.
pub mod gateway;
pub mod admission;

// Assembly.
pub mod config;
pub mod doctor;
pub mod app;
pub mod cli;
