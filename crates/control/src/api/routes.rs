//! The table of the API: which function performs a method and a path, for whom. `docs/openapi.json` lists the same
//! operations and query parameters for the same callers; a test compares them.

use super::call::{Operation, Subject};
use super::mount::Mount;
use super::{apply, audit, document, keys, orgs, quota, sessions, state_export, tokens, users};
use crate::management::RouteError;

/// Weight of a call among those of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// It is counted with the other calls.
    Counted,
    /// It revokes or disables something, or ends a session: counted apart.
    Withdrawal,
    /// It ends the sessions that could send it again, and is always served.
    Free,
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Route {
    /// A method, where `GET` includes `HEAD`.
    pub(super) method: &'static str,
    /// Path below that of the mount. A segment in braces stands for any one segment.
    pub(super) path: &'static str,
    /// The mounts that have it, as bits of [`Mount`].
    mounts: u8,
    /// Query parameters that are accepted; others are refused.
    pub(super) query: &'static [&'static str],
    pub(crate) weight: Weight,
    pub(super) subject: Subject,
    /// The member of its answer that has a secret, which is shown once.
    pub(super) secret: Option<&'static str>,
    pub(super) operation: Operation,
}

/// The row of a call.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    pub(crate) route: &'static Route,
    /// The segments at the places of the braces, still percent-encoded.
    pub(super) values: Vec<&'a str>,
}

/// Everybody.
const ALL: u8 = SOCKET | NETWORK | BROWSER;
/// The operator, and programs.
const ADMIN: u8 = SOCKET | NETWORK;
const SOCKET: u8 = Mount::Socket as u8;
const NETWORK: u8 = Mount::Network as u8;
const BROWSER: u8 = Mount::Browser as u8;

/// Query parameters of a list.
const PAGE: &[&str] = &["cursor", "limit"];
/// Query parameters of a list of all organizations or one.
const OF_ORG: &[&str] = &["cursor", "limit", "org"];
/// Query parameters of a list of keys.
const KEYS: &[&str] =
    &["cursor", "limit", "search", "name", "user", "status", "unused_for", "expires_within", "newest_first", "sort"];
/// The same without a page: the filter and the order.
const ALL_KEYS: &[&str] = &["search", "name", "user", "status", "unused_for", "expires_within", "newest_first", "sort"];
/// Query parameters of a list of changes.
const CHANGES: &[&str] = &["cursor", "limit", "by", "token", "key", "action", "outcome", "since", "until"];
/// The same without a page.
const ALL_CHANGES: &[&str] = &["by", "token", "key", "action", "outcome", "since", "until"];
/// Query parameters of a list of requests.
const USES: &[&str] = &["cursor", "limit", "action", "outcome", "refused", "since", "until"];
/// Query parameters of a quota.
const QUOTA: &[&str] = &["org", "user", "key"];
/// Query parameters of usage.
const USAGE: &[&str] = &["by", "per", "since", "until", "org", "by_gateway", "scope"];
/// Query parameters of usage in a range of time.
const RANGE: &[&str] = &["range"];
/// Query parameters of a list of audit records.
const RECORDS: &[&str] = &[
    "cursor", "limit", "org", "key", "user", "subject", "token", "since", "until", "id", "outcome", "refused", "kind",
];

#[rustfmt::skip]
pub(super) const ROUTES: &[Route] = &[
    get("orgs", ADMIN, PAGE, |call| Box::pin(orgs::list(call))),
    post("orgs", ADMIN, |call| Box::pin(orgs::create(call))).of(Subject::Installation),
    get("orgs/{org}", ALL, &[], |call| Box::pin(orgs::show(call))),
    patch("orgs/{org}", ADMIN, |call| Box::pin(orgs::update(call))).of(Subject::Org),
    get("orgs/{org}/users", ALL, PAGE, |call| Box::pin(users::list(call))),
    post("orgs/{org}/users", ALL, |call| Box::pin(users::create(call))).of(Subject::Org),
    get("orgs/{org}/users/{user}", ALL, &[], |call| Box::pin(users::show(call))),
    patch("orgs/{org}/users/{user}", ALL, |call| Box::pin(users::update(call))).of(Subject::Org),
    delete("orgs/{org}/users/{user}", ALL, &[], |call| Box::pin(users::remove(call))).of(Subject::Org),
    post("orgs/{org}/users/{user}/sign-in-links", SOCKET | BROWSER, |call| Box::pin(sessions::create_link(call))),
    delete("orgs/{org}/users/{user}/sessions", SOCKET, &[], |call| Box::pin(sessions::end_of_user(call))),
    get("orgs/{org}/keys", ALL, KEYS, |call| Box::pin(keys::list(call))),
    get("orgs/{org}/keys.csv", ALL, ALL_KEYS, |call| Box::pin(keys::list_as_csv(call))),
    post("orgs/{org}/keys", ALL, |call| Box::pin(keys::create(call))).of(Subject::Org).with_secret("key"),
    put("orgs/{org}/keys/by-digest/{sha256}", ADMIN, |call| Box::pin(keys::put(call))).of(Subject::Org),
    post("orgs/{org}/keys/import", ADMIN, |call| Box::pin(keys::import(call))).of(Subject::Org),
    get("orgs/{org}/activity", ALL, &["keys"], |call| Box::pin(audit::show_activity(call))),
    get("orgs/{org}/overview", ALL, RANGE, |call| Box::pin(audit::show_overview(call))),
    get("orgs/{org}/changes", ALL, CHANGES, |call| Box::pin(audit::list_changes(call))),
    get("orgs/{org}/changes.csv", ALL, ALL_CHANGES, |call| Box::pin(audit::list_changes_as_csv(call))),
    get("orgs/{org}/changes.ndjson", ALL, ALL_CHANGES, |call| Box::pin(audit::list_changes_as_ndjson(call))),
    get("orgs/{org}/federation-rules", ADMIN, PAGE, |call| Box::pin(orgs::list_rules(call))),
    post("orgs/{org}/federation-rules", ADMIN, |call| Box::pin(orgs::create_rule(call))).of(Subject::Org),
    get("orgs/{org}/federation-rules/{rule}", ADMIN, &[], |call| Box::pin(orgs::show_rule(call))),
    delete("orgs/{org}/federation-rules/{rule}", ADMIN, &[], |call| Box::pin(orgs::remove_rule(call))).of(Subject::Org),
    get("keys", ADMIN, &["sha256"], |call| Box::pin(keys::find(call))),
    get("keys/{key}", ALL, &[], |call| Box::pin(keys::show(call))),
    patch("keys/{key}", ALL, |call| Box::pin(keys::update(call))).of(Subject::Key),
    post("keys/{key}/rotate", ALL, |call| Box::pin(keys::rotate(call))).of(Subject::Key).with_secret("key"),
    post("keys/{key}/revoke", ALL, |call| Box::pin(keys::revoke(call))).withdrawal().of(Subject::Key),
    post("keys/{key}/disable", ALL, |call| Box::pin(keys::disable(call))).withdrawal().of(Subject::Key),
    post("keys/{key}/enable", ALL, |call| Box::pin(keys::enable(call))).of(Subject::Key),
    get("keys/{key}/requests", ALL, USES, |call| Box::pin(audit::list_uses(call))),
    get("keys/{key}/usage", ALL, RANGE, |call| Box::pin(audit::show_key_usage(call))),
    get("keys/{key}/explain", ALL, &[], |call| Box::pin(keys::explain(call))),
    post("leaks", ADMIN, |call| Box::pin(keys::report_leak(call))).withdrawal(),
    put("apply", ADMIN, |call| Box::pin(apply::apply(call))).with_query(&["dry_run"]),
    get("quota", ALL, QUOTA, |call| Box::pin(quota::show(call))),
    post("quota/reset", ADMIN, |call| Box::pin(quota::reset(call))),
    post("quota/recount", ADMIN, |call| Box::pin(quota::recount(call))),
    get("usage", ALL, USAGE, |call| Box::pin(audit::show_usage(call))),
    get("audit", ALL, RECORDS, |call| Box::pin(audit::list_records(call))),
    get("tokens", ALL, OF_ORG, |call| Box::pin(tokens::list(call))),
    post("tokens", ALL, |call| Box::pin(tokens::create(call))).of(Subject::Tokens).with_secret("token"),
    delete("tokens/{token}", ALL, &["with_descendants"], |call| Box::pin(tokens::revoke(call)))
        .withdrawal().of(Subject::Tokens),
    get("sessions", SOCKET | BROWSER, OF_ORG, |call| Box::pin(sessions::list(call))),
    delete("sessions", BROWSER, &[], |call| Box::pin(sessions::end_others(call))).free(),
    delete("sessions/{session}", SOCKET | BROWSER, &[], |call| Box::pin(sessions::end(call))).withdrawal(),
    get("session", BROWSER, &[], |call| Box::pin(sessions::show(call))),
    patch("session", BROWSER, |call| Box::pin(sessions::choose_org(call))),
    delete("session", BROWSER, &[], |call| Box::pin(sessions::sign_out(call))).free(),
    // The socket sends an export as it is read, of any size.
    get("state", NETWORK, &[], |call| Box::pin(state_export::export(call))),
    // Programs and people get theirs without a credential.
    get("openapi.json", SOCKET, &[], |call| Box::pin(document::show(call))),
    post("state/accept", SOCKET, |call| Box::pin(state_export::accept(call))),
];

const fn get(path: &'static str, mounts: u8, query: &'static [&'static str], operation: Operation) -> Route {
    let (weight, subject) = (Weight::Counted, Subject::None);
    Route { method: "GET", path, mounts, query, weight, subject, secret: None, operation }
}

const fn post(path: &'static str, mounts: u8, operation: Operation) -> Route {
    Route { method: "POST", ..get(path, mounts, &[], operation) }
}

const fn put(path: &'static str, mounts: u8, operation: Operation) -> Route {
    Route { method: "PUT", ..get(path, mounts, &[], operation) }
}

const fn patch(path: &'static str, mounts: u8, operation: Operation) -> Route {
    Route { method: "PATCH", ..get(path, mounts, &[], operation) }
}

const fn delete(path: &'static str, mounts: u8, query: &'static [&'static str], operation: Operation) -> Route {
    Route { method: "DELETE", ..get(path, mounts, query, operation) }
}

/// Finds the row of a method (`GET` for `HEAD`) and the segments of a path below that of the mount.
pub(crate) fn find<'a>(mount: Mount, method: &str, segments: &[&'a str]) -> Result<Found<'a>, RouteError> {
    let of_mount = || ROUTES.iter().filter(|route| route.is_at(mount));
    let same_path = || of_mount().filter_map(|route| Some(Found { route, values: route.matches(segments)? }));
    let same_method = same_path().find(|found| found.route.method == method);
    same_method.ok_or_else(|| RouteError::new(same_path().map(|found| found.route.method)))
}

impl Route {
    const fn of(self, subject: Subject) -> Self {
        Self { subject, ..self }
    }

    const fn with_query(self, query: &'static [&'static str]) -> Self {
        Self { query, ..self }
    }

    const fn with_secret(self, member: &'static str) -> Self {
        Self { secret: Some(member), ..self }
    }

    const fn withdrawal(self) -> Self {
        Self { weight: Weight::Withdrawal, ..self }
    }

    const fn free(self) -> Self {
        Self { weight: Weight::Free, ..self }
    }

    /// Returns whether a mount has it.
    pub(super) const fn is_at(&self, mount: Mount) -> bool {
        self.mounts & mount as u8 != 0
    }

    /// Compares the path with these segments; on a match, the segments at the places of the braces.
    fn matches<'a>(&self, segments: &[&'a str]) -> Option<Vec<&'a str>> {
        let own = self.path.split('/');
        if own.clone().count() != segments.len() {
            return None;
        }
        let mut values = Vec::new();
        for (own, given) in own.zip(segments) {
            if own.starts_with('{') && !given.is_empty() {
                values.push(*given);
            } else if own != *given {
                return None;
            }
        }
        Some(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(mount: Mount, method: &str, path: &'static str) -> Result<(&'static str, Vec<&'static str>), RouteError> {
        let segments: Vec<&str> = path.split('/').collect();
        find(mount, method, &segments).map(|found| (found.route.path, found.values))
    }

    #[test]
    fn calls_find_their_rows() {
        let find = |method, path| found(Mount::Network, method, path);
        assert_eq!(find("GET", "orgs"), Ok(("orgs", vec![])));
        assert_eq!(find("PATCH", "orgs/acme/users/ada"), Ok(("orgs/{org}/users/{user}", vec!["acme", "ada"])));
        assert_eq!(find("POST", "keys/abc/rotate"), Ok(("keys/{key}/rotate", vec!["abc"])));
        for path in ["", "org", "orgs/", "orgs/acme/", "keys/", "keys//rotate", "keys/a/b/c", "orgs/a/users/b/c"] {
            assert_eq!(find("GET", path), Err(RouteError::NotFound), "{path}");
        }
        let allow = |methods: &str| Err(RouteError::MethodNotAllowed(methods.into()));
        assert_eq!(find("PUT", "orgs"), allow("GET, HEAD, POST"));
        assert_eq!(find("GET", "keys/abc/rotate"), allow("POST"));
    }

    #[test]
    fn callers_find_their_own_rows_alone() {
        assert_eq!(found(Mount::Network, "GET", "session"), Err(RouteError::NotFound));
        assert_eq!(found(Mount::Browser, "POST", "state/accept"), Err(RouteError::NotFound));
        assert_eq!(found(Mount::Browser, "POST", "orgs"), Err(RouteError::NotFound));
        assert_eq!(found(Mount::Socket, "POST", "state/accept"), Ok(("state/accept", vec![])));
    }
}
