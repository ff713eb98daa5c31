//! The overview of an organization.

use super::*;

pub(super) fn pages() -> Vec<NamedPage> {
    render([
        ("overview", &overview(UsageRange::Day)),
        ("overview-month", &overview(UsageRange::Days(30))),
        ("overview-quarter", &overview(UsageRange::Days(90))),
        ("overview-empty", &empty()),
        ("overview-unreadable", &unreadable()),
    ])
}

fn overview(range: UsageRange) -> OverviewPage {
    let key = |(n, name): (u64, &str)| ShareRow {
        name: name.into(),
        href: Some("/settings/keys/aC3007919".into()),
        requests: 90_000 / (n + 1),
        refusals: n * 7,
        percent: 60 / (n + 1),
    };
    let link = |(n, name): (u64, &str)| KeyLink {
        id: "aC3007919".into(),
        name: name.into(),
        time: (n > 0).then(|| coming(n * DAY)),
    };
    let names = ["Nightly report", LONG, HOSTILE];
    OverviewPage {
        layout: layout(NavEntry::Overview, true),
        suspended: false,
        part: usage_part(range, Vec::new()),
        in_flight: Some(Gauge::new(3, 100)),
        budget: Some(budget(1_734_001)),
        keys: (0..).zip(names).map(key).collect(),
        routes: (0..).zip(["queries.list", "queries.create"]).map(|of| ShareRow { href: None, ..key(of) }).collect(),
        expiring: KeyLinks {
            keys: (1..).zip(names).map(link).collect(),
            more: Some("/settings/keys?state=expiring".into()),
        },
        unused: KeyLinks { keys: (0..).zip(["Old CI"]).map(link).collect(), more: None },
    }
}

fn empty() -> OverviewPage {
    let none = KeyLinks { keys: vec![], more: None };
    OverviewPage {
        suspended: true,
        part: UsagePart::new(UsageRange::Days(7), range_href, Some(no_usage(UsageRange::Days(7)))),
        in_flight: None,
        budget: None,
        keys: vec![],
        routes: vec![],
        expiring: none.clone(),
        unused: none,
        ..overview(UsageRange::Day)
    }
}

fn unreadable() -> OverviewPage {
    OverviewPage { part: UsagePart::new(UsageRange::Day, range_href, None), ..empty() }
}
