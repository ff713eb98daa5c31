//! The calls of the management API that perform the operations of commands, as one table.
//!
//! An operation's members fill the braces of the path; the others are the query of a `GET` or `DELETE`, else the
//! body. Some are renamed for that. An operation that has no call has the reason, which a command says and
//! `docs/remote.md` has.

use anyhow::{Context as _, anyhow};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use crate::cli::{CliError, ExitStatus};
use ::control::admin::Operation;
use platform::settings::parse_duration;

/// The row of one operation.
struct Row {
    /// Name of the operation on the admin socket.
    operation: &'static str,
    way: Way,
}

/// Way in which an operation is performed at a gateway elsewhere.
enum Way {
    Call {
        method: Method,
        /// Path below `/v1/`; members in braces.
        path: &'static str,
        /// Makes the members those of the API.
        adjust: fn(&mut Members),
        answer: ReplyOf,
    },
    /// It has no call, for this reason.
    None(&'static str),
}

/// Members of an operation by name.
pub(super) type Members = Map<String, Value>;

/// Reply of an operation, by the name that it has on the admin socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyOf {
    /// A record.
    Record(&'static str),
    /// A list, or another object.
    List(&'static str),
    /// A key with its secret.
    NewKey,
    /// A management token.
    NewToken,
    /// A federation rule.
    FederationRule,
}

/// A call of the API.
pub(super) struct Call {
    pub(super) method: Method,
    /// Path below `/v1/`, percent-encoded.
    path: String,
    query: Vec<(String, String)>,
    pub(super) body: Option<Value>,
    pub(super) answer: ReplyOf,
}

/// Sessions and links are credentials of people, who sign in themselves.
const OF_PEOPLE: &str = "sessions and sign-in links are of people, and no program makes or ends them; run it on the \
                         machine of the gateway, without --server";
/// Accepting a state undoes revocations that it lacks.
const OF_STATE: &str =
    "a state is accepted on the machine of a gateway, where it can be looked at; run it there, without --server";
const ORG: ReplyOf = ReplyOf::Record("org");
const USER: ReplyOf = ReplyOf::Record("user");
const KEY: ReplyOf = ReplyOf::Record("key");
const TOKEN: ReplyOf = ReplyOf::Record("token");
const RULE: ReplyOf = ReplyOf::FederationRule;

const ROWS: &[Row] = &[
    row("org.create", Method::POST, "orgs", as_it_is, ORG),
    row("org.list", Method::GET, "orgs", as_it_is, ReplyOf::List("orgs")),
    row("org.show", Method::GET, "orgs/{org}", as_it_is, ORG),
    row("org.suspend", Method::PATCH, "orgs/{org}", suspend, ORG),
    row("org.resume", Method::PATCH, "orgs/{org}", resume, ORG),
    row("org.limits", Method::PATCH, "orgs/{org}", as_it_is, ORG),
    row("org.policy", Method::PATCH, "orgs/{org}", as_it_is, ORG),
    row("org.activity", Method::GET, "orgs/{org}/activity", as_it_is, ReplyOf::List("activity")),
    row("user.create", Method::POST, "orgs/{org}/users", as_it_is, USER),
    row("user.create_service", Method::POST, "orgs/{org}/users", service, USER),
    row("user.list", Method::GET, "orgs/{org}/users", as_it_is, ReplyOf::List("users")),
    row("user.show", Method::GET, "orgs/{org}/users/{user}", as_it_is, USER),
    row("user.permit", Method::PATCH, "orgs/{org}/users/{user}", as_it_is, USER),
    row("user.change_permissions", Method::PATCH, "orgs/{org}/users/{user}", as_it_is, USER),
    row("user.remove", Method::DELETE, "orgs/{org}/users/{user}", as_it_is, USER),
    row("user.suspend", Method::PATCH, "orgs/{org}/users/{user}", suspend, USER),
    row("user.resume", Method::PATCH, "orgs/{org}/users/{user}", resume, USER),
    row("user.reassign", Method::PATCH, "orgs/{org}/users/{user}", as_it_is, USER),
    row("key.create", Method::POST, "orgs/{org}/keys", as_it_is, ReplyOf::NewKey),
    row("key.import", Method::POST, "orgs/{org}/keys/import", as_it_is, KEY),
    row("key.list", Method::GET, "orgs/{org}/keys", key_filter, ReplyOf::List("keys")),
    row("key.find", Method::GET, "keys", as_it_is, ReplyOf::List("found_keys")),
    row("key.show", Method::GET, "keys/{key}", as_it_is, KEY),
    row("key.set", Method::PATCH, "keys/{key}", as_it_is, KEY),
    row("key.limits", Method::PATCH, "keys/{key}", limits, KEY),
    row("key.disable", Method::POST, "keys/{key}/disable", as_it_is, KEY),
    row("key.enable", Method::POST, "keys/{key}/enable", as_it_is, KEY),
    row("key.revoke", Method::POST, "keys/{key}/revoke", as_it_is, KEY),
    row("key.rotate", Method::POST, "keys/{key}/rotate", overlap, ReplyOf::NewKey),
    row("key.requests", Method::GET, "keys/{key}/requests", request_filter, ReplyOf::List("requests")),
    row("explain", Method::GET, "keys/{key}/explain", as_it_is, ReplyOf::Record("explanation")),
    row("token.create", Method::POST, "tokens", settings, ReplyOf::NewToken),
    row("token.list", Method::GET, "tokens", as_it_is, ReplyOf::List("tokens")),
    row("token.revoke", Method::DELETE, "tokens/{token}", as_it_is, TOKEN),
    row("federation.create", Method::POST, "orgs/{org}/federation-rules", rule, RULE),
    row("federation.list", Method::GET, "orgs/{org}/federation-rules", as_it_is, ReplyOf::List("federation_rules")),
    row("federation.show", Method::GET, "orgs/{org}/federation-rules/{rule}", as_it_is, RULE),
    row("federation.remove", Method::DELETE, "orgs/{org}/federation-rules/{rule}", as_it_is, RULE),
    none("state.accept", OF_STATE),
    none("session.link", OF_PEOPLE),
    none("session.list", OF_PEOPLE),
    none("session.end", OF_PEOPLE),
    none("session.end_all", OF_PEOPLE),
];

const fn row(
    operation: &'static str,
    method: Method,
    path: &'static str,
    adjust: fn(&mut Members),
    answer: ReplyOf,
) -> Row {
    Row { operation, way: Way::Call { method, path, adjust, answer } }
}

const fn none(operation: &'static str, reason: &'static str) -> Row {
    Row { operation, way: Way::None(reason) }
}

/// The call of an operation.
pub(super) fn call(operation: &Operation) -> Result<Call, CliError> {
    let value = serde_json::to_value(operation).context("cannot serialize the operation")?;
    let Value::Object(mut members) = value else { unreachable!("operations are objects") };
    let name = members.remove("operation").unwrap_or_default();
    let found = ROWS.iter().find(|row| name == row.operation);
    match found.map(|row| &row.way) {
        Some(Way::Call { method, path, adjust, answer }) => {
            adjust(&mut members);
            Ok(Call::new(method.clone(), path, members, *answer))
        }
        Some(Way::None(reason)) => Err(CliError::new(ExitStatus::Usage, anyhow!(*reason))),
        None => unreachable!("the table has all operations, as its test says"),
    }
}

impl Call {
    /// A call with these members.
    pub(super) fn new(method: Method, path: &str, mut members: Members, answer: ReplyOf) -> Self {
        let segments = path.split('/').map(|segment| {
            let name = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}'));
            name.map_or_else(|| segment.to_owned(), |name| encoded(&members.remove(name).unwrap_or_default()))
        });
        let path = segments.collect::<Vec<_>>().join("/");
        if method == Method::GET || method == Method::DELETE {
            let query = members.into_iter().filter_map(|(name, value)| Some((name, text(&value)?))).collect();
            return Self { method, path, query, body: None, answer };
        }
        let body = (!members.is_empty()).then_some(Value::Object(members));
        Self { method, path, query: Vec::new(), body, answer }
    }

    /// Returns whether the body has this member.
    pub(super) fn has_member(&self, name: &str) -> bool {
        self.body.as_ref().is_some_and(|body| body.get(name).is_some())
    }

    /// Path with its query.
    pub(super) fn target(&self) -> String {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.query).finish();
        let separator = if query.is_empty() { "" } else { "?" };
        format!("/v1/{}{separator}{query}", self.path)
    }
}

/// A segment of a path.
fn encoded(value: &Value) -> String {
    utf8_percent_encode(value.as_str().unwrap_or_default(), NON_ALPHANUMERIC).to_string()
}

/// A parameter of a query; none of a member that filters nothing.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => (!text.is_empty()).then(|| text.clone()),
        Value::Array(items) => Some(items.iter().filter_map(text).collect::<Vec<_>>().join(",")),
        other => Some(other.to_string()),
    }
}

fn as_it_is(_: &mut Members) {}

/// Limits as a merge patch: what is absent stays, and the burst follows the requests, as the command says.
fn limits(members: &mut Members) {
    let Some(Value::Object(limits)) = members.get_mut("limits") else { return };
    limits.retain(|_, value| !value.is_null());
    if let Some(requests) = limits.get("requests").cloned() {
        limits.entry("burst").or_insert(requests);
    }
}

fn suspend(members: &mut Members) {
    members.insert("suspended".into(), true.into());
}

fn resume(members: &mut Members) {
    members.insert("suspended".into(), false.into());
}

/// A service is a user whose name stands for the email address.
fn service(members: &mut Members) {
    rename(members, "name", "email");
    members.insert("kind".into(), json!("service"));
}

/// The filter of a list of keys: its members are parameters.
fn key_filter(members: &mut Members) {
    spread(members, "query");
    rename(members, "text", "search");
    members.retain(|name, value| name != "newest_first" || *value != json!(false));
}

/// The filter of a list of requests.
fn request_filter(members: &mut Members) {
    spread(members, "filter");
}

/// The settings of a token are the whole body.
fn settings(members: &mut Members) {
    spread(members, "settings");
}

/// The rule is the whole body.
fn rule(members: &mut Members) {
    spread(members, "rule");
}

/// The overlap in seconds; a part of a second is a whole one.
fn overlap(members: &mut Members) {
    let overlap = members.remove("overlap");
    let overlap = overlap.and_then(|overlap| parse_duration(overlap.as_str()?).ok());
    if let Some(overlap) = overlap {
        let seconds = overlap.as_secs() + u64::from(overlap.subsec_nanos() > 0);
        members.insert("overlap_seconds".into(), seconds.into());
    }
}

fn rename(members: &mut Members, from: &str, to: &str) {
    if let Some(value) = members.remove(from) {
        members.insert(to.to_owned(), value);
    }
}

/// Replaces a member by its own members.
fn spread(members: &mut Members, name: &str) {
    if let Some(Value::Object(inner)) = members.remove(name) {
        members.extend(inner);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    /// The names of all operations, as the error for an unknown one lists them.
    fn operations() -> BTreeSet<String> {
        let error = serde_json::from_value::<Operation>(json!({ "operation": "?" })).unwrap_err().to_string();
        let (_, names) = error.split_once("expected one of ").unwrap();
        names.split(", ").map(|name| name.trim_matches('`').to_owned()).collect()
    }

    #[test]
    fn every_operation_has_a_call_or_a_reason_that_the_documentation_has() {
        let rows: BTreeSet<String> = ROWS.iter().map(|row| row.operation.to_owned()).collect();
        assert_eq!(rows.len(), ROWS.len(), "one row each");
        assert_eq!(rows, operations());
        let page = fs::read_to_string("docs/remote.md").unwrap();
        for Row { operation, way } in ROWS {
            let row = page.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{operation}`")));
            let row = row.unwrap_or_else(|| panic!("docs/remote.md has no row for {operation}"));
            match way {
                Way::Call { method, path, .. } => assert!(row.contains(&format!("`{method} /v1/{path}`")), "{row}"),
                Way::None(_) => assert!(!row.contains("/v1/"), "{row}"),
            }
        }
    }

    #[test]
    fn calls_have_the_members_of_the_api() {
        let made = |operation: Value| {
            let call = call(&serde_json::from_value(operation).unwrap()).ok().unwrap();
            let body = call.body.as_ref().map(Value::to_string).unwrap_or_default();
            format!("{} {} {body}", call.method, call.target())
        };
        for (operation, expected) in [
            (json!({ "operation": "org.list", "limit": 100 }), "GET /v1/orgs?limit=100 "),
            (
                json!({ "operation": "org.suspend", "org": "a/b ü" }),
                "PATCH /v1/orgs/a%2Fb%20%C3%BC {\"suspended\":true}",
            ),
            (
                json!({ "operation": "org.limits", "org": "a", "concurrent": null }),
                "PATCH /v1/orgs/a {\"concurrent\":null}",
            ),
            (
                json!({
                    "operation": "user.create_service", "org": "a", "name": "n", "responsible": "r", "permissions": [],
                }),
                "POST /v1/orgs/a/users {\"email\":\"n\",\"kind\":\"service\",\"permissions\":[],\"responsible\":\"r\"}",
            ),
            (
                json!({ "operation": "key.rotate", "key": "abcDEF123", "overlap": "1h" }),
                "POST /v1/keys/abcDEF123/rotate {\"overlap_seconds\":3600}",
            ),
            (json!({ "operation": "key.enable", "key": "abcDEF123" }), "POST /v1/keys/abcDEF123/enable "),
            (
                json!({
                    "operation": "key.list", "org": "a", "limit": 5,
                    "query": { "text": "x", "status": "active", "unused_for": "90d" },
                }),
                "GET /v1/orgs/a/keys?limit=5&search=x&status=active&unused_for=90d ",
            ),
            (
                json!({ "operation": "org.activity", "org": "a", "keys": ["abcDEF123", "abcDEF124"] }),
                "GET /v1/orgs/a/activity?keys=abcDEF123%2CabcDEF124 ",
            ),
            (
                json!({ "operation": "key.limits", "key": "abcDEF123", "limits": null }),
                "PATCH /v1/keys/abcDEF123 {\"limits\":null}",
            ),
            (
                json!({ "operation": "key.limits", "key": "abcDEF123", "limits": { "requests": 5, "burst": null } }),
                "PATCH /v1/keys/abcDEF123 {\"limits\":{\"burst\":5,\"requests\":5}}",
            ),
            (
                json!({ "operation": "key.limits", "key": "abcDEF123", "limits": { "requests": null, "burst": 7 } }),
                "PATCH /v1/keys/abcDEF123 {\"limits\":{\"burst\":7}}",
            ),
        ] {
            assert_eq!(made(operation), expected);
        }
    }
}
