//! How uses end, in words, and what to do about it.

/// How a use ended, in words. There is one for each of the audit's, by the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutcomeText {
    /// The audit's name of it.
    pub name: &'static str,
    /// What it is called on pages.
    pub label: &'static str,
    /// What it means, and what to do about it.
    pub advice: &'static str,
    /// What sort it is.
    pub sort: OutcomeClass,
}

/// A sort of outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeClass {
    /// The request is on its way, or went through.
    Good,
    /// The gateway refused it before it was forwarded.
    Refused,
    /// It was admitted and did not go well.
    DashboardError,
}

#[rustfmt::skip]
const ALL: [OutcomeText; 15] = [
    good("completed", "Completed", "The response went out whole."),
    good("in_progress", "In progress", "The request has not ended yet."),
    refused("rate_limited", "Rate limited",
        "The key had no requests left. Spread requests out, and wait for the seconds in Retry-After; for more, ask for a higher limit."),
    refused("too_many_in_flight", "Too many in flight",
        "The organization had as many requests in flight as it may. Send fewer at a time."),
    refused("forbidden", "Forbidden",
        "The owner of the key lacks the permission that this request needs. Ask an admin for it."),
    refused("not_found", "No such route", "Nothing is served for this method and path. Check the address."),
    refused("revoked", "Key revoked", "The key was revoked. Whoever still uses it needs another key."),
    refused("expired", "Key replaced", "The key was rotated, and the old secret no longer works. UseRow the new one."),
    refused("user_removed", "OwnerInput removed", "The owner of the key was removed. Create a key for somebody else."),
    refused("org_suspended", "Organization suspended", "The organization is suspended. Ask the operator of this service."),
    refused("unknown", "Unknown key", "There is no such key. Check that it was copied whole."),
    failed("upstream_error", "Upstream error", "The service behind the gateway failed or was too slow. Try again later."),
    failed("client_error", "Request broken off", "The body was too large, too slow or malformed."),
    failed("aborted", "Aborted", "The client went away before the response ended, or the gateway was stopped."),
    failed("internal_error", "Gateway error", "The gateway failed. Tell its operator the time of the request."),
];

impl OutcomeText {
    /// All of them, in the order of a choice.
    pub fn all() -> &'static [Self] {
        &ALL
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|outcome| outcome.name == name)
    }

    /// Whether the gateway refused it.
    pub fn is_refused(&self) -> bool {
        self.sort == OutcomeClass::Refused
    }

    /// Its class in the styles.
    pub fn class(&self) -> &'static str {
        match self.sort {
            OutcomeClass::Good => "good",
            OutcomeClass::Refused => "refused",
            OutcomeClass::DashboardError => "failed",
        }
    }
}

const fn good(name: &'static str, label: &'static str, advice: &'static str) -> OutcomeText {
    OutcomeText { name, label, advice, sort: OutcomeClass::Good }
}

const fn refused(name: &'static str, label: &'static str, advice: &'static str) -> OutcomeText {
    OutcomeText { name, label, advice, sort: OutcomeClass::Refused }
}

const fn failed(name: &'static str, label: &'static str, advice: &'static str) -> OutcomeText {
    OutcomeText { name, label, advice, sort: OutcomeClass::DashboardError }
}
