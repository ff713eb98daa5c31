//! keygate: an API-key gateway, and query-store, the upstream that ships with it.
//!
//! # The life of a request
//!
//! One request goes straight down, one response comes straight back, and nothing is visited twice:
//!
//! 1. [`transport`] accepts the connection, reads its PROXY header, shakes hands by what [`tls`] has in force, reads
//!    heads strictly, holds time-outs and sizes, and hands each request, with its [`identity::Peer`], to the gateway.
//! 2. [`gateway`] opens the request's audit entry, asks [`admission`], has [`forward`] rewrite the head, sends it
//!    through [`upstream`], and returns the response in a body that keeps the permit and the entry until its last frame.
//! 3. [`admission`] reads the credential, finds the route, and asks [`state`] for one decision: who is this, may they,
//!    is there a token, is there a slot. All or nothing: a refusal leaves everything as it was.
//! 4. [`forward`] is pure: a head goes in, a head or a refusal comes out, in both directions. First it removes, then it
//!    sets.
//! 5. [`upstream`] picks an endpoint and a pooled connection, checks what comes back, and says whose fault a failure
//!    was.
//! 6. [`audit`] has the record before the request leaves for the upstream, and its outcome when the last byte is gone.
//!
//! # The map
//!
//! Modules are declared in reading order. Imports go strictly down, and `tests/integration/house.rs` holds it:
//!
//! ```text
//! main > cli > app > config > {gateway | admin, dashboard} > {admission | management}
//!      > {transport, forward, upstream, oidc, audit, state} > vocabulary
//! ```
//!
//! The data plane (`gateway`, `admission`) and the control plane (`admin`, `dashboard`, `management`) never import each
//! other, and mechanisms never import each other. What can be done to organizations, users, keys and sessions is in
//! [`management`], one function each, with two faces: [`admin`] for programs, [`dashboard`] for people, who sign in by
//! [`oidc`]. [`query_store`] is a program of its own that lives in this crate so that the
//! demo can embed it; it shares with the gateway only the vocabulary and [`transport`].

// The data plane, in the order of a request.
pub mod gateway;
pub mod admission;
pub mod transport;
pub mod forward;
pub mod upstream;
pub mod audit;
pub mod state;
pub mod migration;

// The control plane.
pub mod management;
pub mod admin;
pub mod dashboard;
pub mod oidc;

// Putting it together.
pub mod config;
pub mod app;
pub mod cli;

// The vocabulary: what every module above may speak of.
pub mod clock;
pub mod identity;
pub mod key;
pub mod session;
pub mod failed_auth;
pub mod quota;
pub mod secret;
pub mod problem;
pub mod http_syntax;
pub mod timer;
pub mod request_body;
pub mod refusal;
pub mod byte_stream;
pub mod settings;
pub mod tls;
pub mod metrics;
pub mod telemetry;

// The upstream that ships with keygate.
pub mod query_store;
