//! Settings of routes.

use std::str::FromStr;
use std::sync::Arc;

use http::{HeaderName, Method};

use super::cors::CorsSettings;
use super::host::HostPattern;
use domain::budget::Cost;
use domain::identity::Permission;

/// Settings of one route: the requests that match it, their name, and the permission that they require.
///
/// - `path` begins with `/`. A segment `{name}` matches any one segment; `/**` at the end matches any rest, also none.
/// - No two routes have the same name, and no two have the same host, method and path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteSettings {
    /// Name: the action in audit records, and the label in metrics.
    pub name: String,
    /// Hosts; none: all.
    pub host: Option<HostPattern>,
    /// Methods; empty for all.
    pub methods: Vec<Method>,
    /// Pattern of the path.
    pub path: String,
    /// Upstream that requests go to: its place in the list of upstreams.
    pub upstream: usize,
    /// Origins whose pages may read answers; none: the gateway says nothing of it.
    pub cors: Option<CorsSettings>,
    /// Resource that the gateway answers with itself; none: the upstream answers.
    pub serve: Option<ServedResource>,
    /// Beginning of `path`, up to the end of a segment, which the upstream does not see.
    pub strip_prefix: Option<String>,
    /// True if requests need no key.
    pub is_public: bool,
    /// Permission that the user must have; none: every authenticated caller may use the route.
    pub permission: Option<Permission>,
    /// Cost of a request.
    pub cost: Cost,
    /// Field of the response that says what the request has cost of a budget; none: the cost is known beforehand.
    pub cost_from: Option<CostSource>,
    /// True if `Authorization` is the upstream's: the key comes in another field.
    pub pass_authorization: bool,
    /// True if audit records show the query string.
    pub query_in_audit: bool,
    /// True if the access log shows the query string.
    pub log_query: bool,
    /// Protocols to which a connection may be switched, such as `websocket`.
    pub upgrade: Vec<http::HeaderValue>,
    /// True if responses may have trailers.
    pub trailers: bool,
    /// True if requests may be executed twice, whatever their method: they may be sent again when they fail.
    pub idempotent: bool,
    /// True if paths may have encoded slashes, each a character of its segment.
    pub encoded_slash: bool,
    /// True if paths may have empty segments, which are left out where paths are compared.
    pub empty_segments: bool,
}

/// Places of a response in which it says what its request has cost of a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostSource {
    /// Field of its head or its trailers.
    pub field: Option<HeaderName>,
    /// Member of its body, where no field says it.
    pub member: Option<CostMember>,
    /// Decimal places of its number that are whole units: 6 where a unit is 0.000001. 0: a whole number of units.
    pub places: u8,
}

/// Member of a JSON document, by the names on the way to it, such as `usage.total_tokens`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostMember {
    /// JSON Pointer (RFC 6901).
    pub pointer: Arc<str>,
    /// The last name, in quotation marks, as a document has it.
    pub last: Arc<str>,
}

/// A text that is not the path of a member.
#[derive(Debug, thiserror::Error)]
#[error("is not names of members with dots between them, each of letters, digits, `_` and `-`")]
pub struct InvalidMember;

impl FromStr for CostMember {
    type Err = InvalidMember;

    fn from_str(text: &str) -> Result<Self, InvalidMember> {
        let is_plain = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        };
        if !text.split('.').all(is_plain) {
            return Err(InvalidMember);
        }
        let last = text.rsplit('.').next().unwrap_or_default();
        Ok(Self { pointer: format!("/{}", text.replace('.', "/")).into(), last: format!("\"{last}\"").into() })
    }
}

impl RouteSettings {
    /// A route for all hosts and methods, and with the defaults of the configuration.
    pub fn new(name: &str, path: &str) -> Self {
        Self {
            name: name.into(),
            host: None,
            methods: Vec::new(),
            path: path.into(),
            upstream: 0,
            cors: None,
            serve: None,
            strip_prefix: None,
            is_public: false,
            permission: None,
            cost: Cost::ONE,
            cost_from: None,
            pass_authorization: false,
            query_in_audit: false,
            log_query: false,
            upgrade: Vec::new(),
            trailers: false,
            idempotent: false,
            encoded_slash: false,
            empty_segments: false,
        }
    }

    /// The route for people: its name, methods, host and path, such as `health (GET, a.example/health)`.
    pub fn describe(&self) -> String {
        let Self { name, path, .. } = self;
        let methods = match &self.methods[..] {
            [] => "all methods".to_owned(),
            methods => methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", "),
        };
        let host = self.host.as_ref().map(ToString::to_string).unwrap_or_default();
        format!("{name} ({methods}, {host}{path})")
    }
}

/// Resource that the gateway answers with itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedResource {
    /// Usage and limits of the caller's own key.
    Usage,
}
