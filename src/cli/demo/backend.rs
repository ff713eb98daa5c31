//! The upstream of a demo's gateway: query-store, or a server of the caller.

use std::path::Path;

use query_store::service::Caller;

use super::store::Store;
use super::{KEYS_FILE, UPSTREAM_KEYS_FILE};

/// Routes of query-store, with the permissions that they need.
const STORE_ROUTES: &str = r#"
  - { name: queries.list, methods: [GET], path: "/api/queries", permission: "queries:read" }
  - { name: queries.create, methods: [POST], path: "/api/queries", permission: "queries:write" }
  - { name: queries.read, methods: [GET], path: "/api/queries/{id}", permission: "queries:read" }
  - { name: queries.update, methods: [PUT], path: "/api/queries/{id}", permission: "queries:write" }
  - { name: queries.delete, methods: [DELETE], path: "/api/queries/{id}", permission: "queries:write" }
"#;
/// Every path of another server, for every key.
const ALL_ROUTES: &str = "\n  - { name: all, path: \"/**\", upgrade: [websocket] }\n";

/// The upstream of the gateway.
pub(super) enum Backend {
    /// The query store of the demo.
    Store(Store),
    /// A server of the caller: its origin.
    Server(String),
}

impl Backend {
    /// Starts query-store, unless there is a server to forward to.
    pub(super) fn start(dir: &Path, upstream: Option<String>) -> anyhow::Result<Self> {
        Ok(match upstream {
            Some(url) => Self::Server(url.trim_end_matches('/').to_owned()),
            None => Self::Store(Store::start(dir)?),
        })
    }

    /// The endpoint, for the configuration.
    pub(super) fn endpoint(&self) -> String {
        match self {
            Self::Store(store) => format!("http://{}", store.address),
            Self::Server(url) => url.clone(),
        }
    }

    /// The list of routes, for the configuration.
    pub(super) fn routes(&self) -> &'static str {
        match self {
            Self::Store(_) => STORE_ROUTES,
            Self::Server(_) => ALL_ROUTES,
        }
    }

    /// Name of the file of the keys.
    pub(super) fn keys_file(&self) -> &'static str {
        match self {
            Self::Store(_) => KEYS_FILE,
            Self::Server(_) => UPSTREAM_KEYS_FILE,
        }
    }

    /// Stores the queries of a demo that has query-store.
    pub(super) fn seed(&self, caller: Caller) -> anyhow::Result<()> {
        match self {
            Self::Store(store) => store.seed(caller),
            Self::Server(_) => Ok(()),
        }
    }

    /// Stops what was started.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        match self {
            Self::Store(store) => store.stop(),
            Self::Server(_) => Ok(()),
        }
    }
}
