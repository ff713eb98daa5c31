//! Outcomes of uses, with texts for users.

/// An outcome of the audit journal, with its texts. There is one for each of the journal's outcomes; a test holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutcomeText {
    /// The journal's name of the outcome.
    pub name: &'static str,
    /// Short text.
    pub label: &'static str,
    /// Meaning, and advice.
    pub advice: &'static str,
    /// Class, for filtering and colours.
    pub class: OutcomeClass,
}

/// Class of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeClass {
    /// The request is in progress, or completed.
    Good,
    /// The gateway refused the request before forwarding it.
    Refused,
    /// The request was admitted and failed.
    Failed,
}

#[rustfmt::skip]
const ALL: [OutcomeText; 25] = [
    good("completed", "Completed", "The whole response was sent."),
    good("decided", "Decided", "The request was admitted, and another proxy has forwarded it."),
    good("in_progress", "In progress", "The request has not ended yet."),
    refused("rate_limited", "Rate limited",
        "The key had no requests left. Spread requests out, and wait for the seconds in Retry-After; for more, ask for \
         a higher limit."),
    refused("cost_over_limit", "Over the limit",
        "The request costs more than the limit of the key ever allows at once. Ask for a higher limit."),
    refused("quota_exhausted", "Budget spent",
        "The budget of the period is spent. Wait for the next period, or ask for a larger budget."),
    refused("too_many_in_flight", "Too many in flight",
        "The organization had as many requests in flight as its limit allows. Send fewer at a time."),
    refused("forbidden", "Forbidden",
        "The key, or its owner, lacks the permission that this request needs. Ask an admin for it."),
    refused("not_found", "No such route", "No route has this method and path. Check the address."),
    refused("revoked", "Key revoked", "The key was revoked. Programs that still use it need another key."),
    refused("expired", "Key replaced",
        "The key was rotated, and the old secret is not valid any more. Use the new one."),
    refused("key_expired", "Key expired",
        "The key has expired. Create another one, or ask an admin of the organization for a later expiry."),
    refused("key_disabled", "Key disabled",
        "The key is disabled. Its owner or an admin of the organization can enable it."),
    refused("address_refused", "Address refused",
        "The request came from an address that is in none of the networks of the key."),
    refused("user_removed", "Owner removed", "The owner of the key was removed. Create a key for another user."),
    refused("user_suspended", "Owner suspended",
        "The owner of the key is suspended. An admin of the organization can resume the owner."),
    refused("org_suspended", "Organization suspended",
        "The organization is suspended. Ask the operator of this service."),
    refused("unknown", "Unknown key", "There is no such key. Check that it was copied whole."),
    failed("upstream_error", "Upstream error",
        "The service behind the gateway failed or was too slow. Try again later."),
    failed("client_error", "Client error", "The request body was too large, too slow or malformed."),
    failed("terminated", "Terminated",
        "The key, its owner, the organization or the session was revoked while the request was open. Use a key that is \
         valid."),
    failed("aborted", "Aborted", "The client disconnected before the response ended, or the gateway was stopped."),
    failed("unconfirmed", "Not confirmed",
        "The change was made, but too few replicas of the state confirmed it in time: a failover may undo it. Look \
         whether it holds."),
    failed("in_doubt", "Not known",
        "It is not known whether the change was made: the state gave no answer, or the gateway was stopped. Look \
         whether it holds."),
    failed("internal_error", "Gateway error", "The gateway failed. Give its operator the time of the request."),
];

impl OutcomeText {
    /// All outcomes, in the order of the filter.
    pub fn all() -> &'static [Self] {
        &ALL
    }

    /// The outcome with the journal's name.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|outcome| outcome.name == name)
    }

    /// Returns `true` if the gateway refused the request.
    pub fn is_refused(&self) -> bool {
        self.class == OutcomeClass::Refused
    }

    /// Class in the style sheet.
    pub fn css_class(&self) -> &'static str {
        match self.class {
            OutcomeClass::Good => "good",
            OutcomeClass::Refused => "refused",
            OutcomeClass::Failed => "failed",
        }
    }
}

const fn good(name: &'static str, label: &'static str, advice: &'static str) -> OutcomeText {
    OutcomeText { name, label, advice, class: OutcomeClass::Good }
}

const fn refused(name: &'static str, label: &'static str, advice: &'static str) -> OutcomeText {
    OutcomeText { name, label, advice, class: OutcomeClass::Refused }
}

const fn failed(name: &'static str, label: &'static str, advice: &'static str) -> OutcomeText {
    OutcomeText { name, label, advice, class: OutcomeClass::Failed }
}
