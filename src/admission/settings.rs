//! The routes as they are configured.

use http::Method;

use crate::identity::Permission;

/// One route: what a request to it is called, and what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteSettings {
    /// The action's name in audit records and metrics.
    pub name: String,
    /// The methods; empty for all. `GET` includes `HEAD`.
    pub methods: Vec<Method>,
    /// The path: literal segments, `{name}` for any one segment, and `/**` at the end for any rest.
    pub path: String,
    /// What the user must be permitted; none for every authenticated user.
    pub permission: Option<Permission>,
    /// Whether audit records show the query string.
    pub query_in_audit: bool,
}
