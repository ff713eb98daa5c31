//! The routes as they are configured.

use crate::identity::Permission;

/// One route: which requests it is for, what they are called, and what they need.
///
/// - `path` begins with `/`. A segment `{name}` stands for any one segment; `/**` at the end for any rest, also none.
/// - No two routes have the same name, and no two are for the same method and path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteSettings {
    /// The name: the action in audit records, the label in metrics.
    pub name: String,
    /// The methods; empty for all.
    pub methods: Vec<http::Method>,
    /// The path's pattern.
    pub path: String,
    /// What the user must be permitted; none: any valid key will do.
    pub permission: Option<Permission>,
    /// Whether audit records show the query string.
    pub query_in_audit: bool,
    /// The protocols to which a connection may be switched, such as `websocket`.
    pub upgrade: Vec<http::HeaderValue>,
    /// Whether responses may have trailers.
    pub trailers: bool,
}
