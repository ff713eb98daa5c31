//! The page of a key.

use super::*;

pub(super) fn pages() -> Vec<NamedPage> {
    render([
        ("key", &key()),
        ("key-empty", &unused_key()),
        ("key-restricted", &restricted_key(true)),
        ("key-disabled-by-operator", &restricted_key(false)),
        ("key-revoked", &revoked_key()),
        ("key-filtered", &filtered_key()),
        ("key-sought", &key_with_unsearched_records()),
    ])
}

fn uses() -> Vec<UseRow> {
    let entry = |(index, name): (usize, &str)| UseRow {
        time: ago(index as u64 * 47 + 12),
        action: if index % 4 == 3 { "GET /api/queries/0193f2".into() } else { "queries.list".into() },
        status: [Some(200), Some(429), Some(403), Some(502), None][index % 5],
        outcome: OutcomeText::from_name(name).expect("every name is one of an outcome"),
        ip: if index == 2 { "2001:db8:85a3:8d3:1319:8a2e:370:7348".into() } else { "203.0.113.87".into() },
        user_agent: [Some("python-requests/2.32.3"), Some(HOSTILE), None, Some(FIREFOX)][index % 4].map(Into::into),
        count: if name == "rate_limited" { 18_204 } else { 1 },
    };
    let names = ["completed", "rate_limited", "forbidden", "upstream_error", "in_progress", "too_many_in_flight"];
    names.into_iter().chain(["aborted", "completed", "completed"]).enumerate().map(entry).collect()
}

fn used_by() -> UsedByPart {
    let counts = |values: &[&str]| {
        let count = |(n, value): (u64, &&str)| Count { value: (*value).into(), requests: 900 / (n * n + 1) };
        ShareRow::of_counts(&(0..).zip(values).map(count).collect::<Vec<_>>(), 1000)
    };
    UsedByPart {
        requests: 1000,
        is_all: false,
        routes: counts(&["queries.list", "queries.create", "GET /api/queries/0193f2"]),
        addresses: counts(&["203.0.113.87", "2001:db8:85a3:8d3:1319:8a2e:370:7348"]),
        agents: counts(&["python-requests/2.32.3", HOSTILE, FIREFOX]),
    }
}

fn refusals() -> Vec<UseRow> {
    uses().into_iter().filter(|entry| entry.outcome.is_refused()).collect()
}

pub(crate) fn key() -> KeyPage {
    let sentence = "requests are admitted, to routes with these permissions: queries:read, queries:write".into();
    KeyPage {
        layout: layout(NavEntry::Keys, true),
        key: details(),
        limits: KeyLimits {
            requests: 1_000,
            per: "hour".into(),
            burst: 1_000,
            is_strict: false,
            is_own: false,
            plan: None,
            concurrent: 100,
        },
        usage: Some(LimitUsage {
            bucket: Gauge::new(873, 1_000),
            next_request: None,
            full: Some(coming(457)),
            in_flight: Gauge::new(3, 100),
            budget: Some(budget(1_734_001)),
        }),
        policy: PolicyFacts::default(),
        verdict: Verdict { admitted: true, sentence },
        part: usage_part(UsageRange::Day, refusals()),
        used_by: Some(used_by()),
        uses: Some(uses()),
        filter: UseFilter::ANY,
        newer: None,
        older: Some(link("/settings/keys/aC3007919", &[("cursor", "AaBb")])),
        source: Some(RecordSource::Gateway { name: "gateway-1".into(), others: None }),
    }
}

fn details() -> KeyDetails {
    KeyDetails {
        responsible: None,
        id: "aC3007919".into(),
        name: "Nightly report".into(),
        owner: "ada.lovelace@acme.example".into(),
        is_own: true,
        permissions: vec!["queries:read".into(), "queries:write".into()],
        state: KeyStatus::Active,
        created: ago(90 * DAY),
        created_by: Some("the operator".into()),
        imported: false,
        last_use: last_use(12, Some("python-requests/2.32.3")),
        refused_attempt: Some(attempt("rate_limited")),
        total_uses: 1_284_441,
        rotated: Some(ago(2 * HOUR)),
        rotated_by: Some("ada.lovelace@acme.example".into()),
        previous_until: Some(coming(22 * HOUR)),
        revoked: None,
        revoked_by: None,
        marks: vec![("Older than a year", "Rotate it.")],
    }
}

pub(crate) fn unused_key() -> KeyPage {
    let key_details = KeyDetails {
        name: HOSTILE.into(),
        responsible: Some(ResponsibleCell { name: HOSTILE.into(), gone: Some(UserStatus::Suspended) }),
        permissions: vec![],
        imported: true,
        last_use: None,
        total_uses: 0,
        ..details()
    };
    let usage = LimitUsage {
        bucket: Gauge::new(0, 10),
        next_request: Some(coming(7)),
        full: Some(coming(3_600)),
        in_flight: Gauge::new(100, 100),
        budget: Some(BudgetCell { of: Spender::User, plan: None, ..budget(2_000_000) }),
    };
    let sentence = "requests are refused (429): the rate limit is reached; the next request is admitted in 7 s".into();
    KeyPage {
        key: key_details,
        limits: KeyLimits {
            requests: 10,
            per: "hour".into(),
            burst: 1,
            is_strict: true,
            is_own: true,
            plan: None,
            concurrent: 100,
        },
        usage: Some(usage),
        verdict: Verdict { admitted: false, sentence },
        part: UsagePart::new(UsageRange::Days(7), range_href, Some(no_usage(UsageRange::Days(7)))),
        used_by: None,
        uses: Some(vec![]),
        older: None,
        ..key()
    }
}

pub(crate) fn restricted_key(can_enable: bool) -> KeyPage {
    let by = if can_enable { "a person of the organization" } else { "the operator of this service" };
    let policy = PolicyFacts {
        has_own_permissions: true,
        expires: Some(coming(6 * DAY)),
        networks: vec!["10.0.0.0/8".into(), "2001:db8:85a3:8d3::/64".into()],
        concurrent: Some("20".into()),
        tags: vec!["team=billing".into(), HOSTILE.into()],
        disabled: Some(DisabledFact { since: ago(3 * DAY), by, can_enable }),
    };
    let plan = PlanCell { name: "pro".into(), of: "the organization", is_missing: !can_enable };
    let sentence = "requests are refused (401): the key is disabled".into();
    KeyPage {
        key: KeyDetails { state: KeyStatus::Disabled, ..details() },
        limits: KeyLimits { plan: Some(plan), ..key().limits },
        policy,
        verdict: Verdict { admitted: false, sentence },
        ..key()
    }
}

pub(crate) fn revoked_key() -> KeyPage {
    KeyPage {
        key: KeyDetails { name: LONG.into(), state: KeyStatus::Revoked, revoked: Some(ago(300)), ..details() },
        usage: None,
        verdict: Verdict { admitted: false, sentence: "requests are refused (401): the key is revoked".into() },
        part: UsagePart::new(UsageRange::Day, range_href, None),
        used_by: None,
        uses: None,
        older: None,
        source: None,
        ..key()
    }
}

pub(crate) fn filtered_key() -> KeyPage {
    let filter = UseFilter {
        admission: AdmissionFilter::Refused,
        outcome: OutcomeText::from_name("rate_limited"),
        ..UseFilter::ANY
    };
    KeyPage { filter, uses: Some(vec![]), newer: Some("/settings/keys/aC3007919".into()), older: None, ..key() }
}

/// No match among the records searched so far, and older ones to search.
pub(crate) fn key_with_unsearched_records() -> KeyPage {
    let older = Some(link("/settings/keys/aC3007919", &[("show", "refused"), ("cursor", "AaBb")]));
    KeyPage { older, newer: None, ..filtered_key() }
}
