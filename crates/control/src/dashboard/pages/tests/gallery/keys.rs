//! The table of keys.

use super::*;
use crate::management::KeyCount;

pub(super) fn pages() -> Vec<NamedPage> {
    render([
        ("keys", &keys(rows())),
        ("keys-many", &second_of_three_pages()),
        ("keys-found", &filtered(rows()[..2].to_vec())),
        ("keys-not-found", &filtered(vec![])),
        ("keys-not-found-yet", &KeysPage { paging: middle_page(), ..filtered(vec![]) }),
        ("keys-empty", &keys(vec![])),
        ("keys-empty-member", &member_without_keys()),
        ("keys-suspended", &KeysPage { suspended: true, ..keys(rows()[7..].to_vec()) }),
    ])
}

fn row(number: u64, name: &str, owner: &str, last_use: Option<LastUseCell>, state: KeyStatus) -> KeyRow {
    KeyRow {
        id: format!("aC3{:06}", number * 7919 % 1_000_000),
        name: name.into(),
        owner: owner.into(),
        is_own: owner.starts_with("ada"),
        created: ago(number * 3 * DAY + 5 * HOUR),
        state,
        switch: Some(if state == KeyStatus::Disabled { KeySwitch::Enable } else { KeySwitch::Disable }),
        expires: match number {
            2 => Some(coming(6 * DAY)),
            3 => Some(coming(90 * DAY)),
            10 => Some(ago(2 * DAY)),
            _ => None,
        },
        is_expiring: number == 2,
        refused_attempt: (number % 3 == 2).then(|| attempt(if number == 5 { "revoked" } else { "rate_limited" })),
        marks: match number {
            4 => vec!["Unused for 90 days", "Older than a year"],
            7 => vec!["Older than a year"],
            _ => vec![],
        },
        activity: (number != 6).then(|| activity(if last_use.is_none() { 0 } else { number })),
        last_use,
    }
}

pub(crate) fn rows() -> Vec<KeyRow> {
    use KeyStatus::{Active, Disabled, Expired, OrgSuspended, Revoked, UserRemoved};
    let ada = "ada.lovelace@acme.example";
    let grace = "grace@acme.example";
    let unrecorded = Some(LastUseCell { time: ago(2 * DAY), source: None, not_recorded: NOT_RECORDED });
    let v6 = UseSource { ip: "2001:db8:85a3:8d3:1319:8a2e:370:7348".into(), user_agent: Some(HOSTILE.into()) };
    vec![
        row(1, "Nightly report", ada, last_use(184, Some("python-requests/2.32.3")), Active),
        row(2, "CI pipeline", grace, last_use(9, Some("curl/8.5.0")), Active),
        row(3, "Laptop", ada, None, Active),
        row(4, LONG, "a.person.with.a.rather.long.name@subsidiary.department.acme.example", unrecorded, Active),
        row(5, "Отчёты · 集計 · نسخة", grace, last_use(26 * HOUR, Some(FIREFOX)), Revoked),
        row(6, "Old importer", "hopper@acme.example", last_use(400 * DAY, None), UserRemoved),
        row(
            7,
            HOSTILE,
            grace,
            Some(LastUseCell { time: ago(3 * HOUR), source: Some(v6), not_recorded: NOT_RECORDED }),
            Active,
        ),
        row(9, "Partner feed", grace, last_use(40 * DAY, Some("Java-http-client/21.0.2")), OrgSuspended),
        row(10, "Contractor", grace, last_use(3 * DAY, Some("curl/8.5.0")), Expired),
        row(11, "Leaked script", ada, last_use(3 * DAY, Some("curl/8.5.0")), Disabled),
    ]
}

pub(crate) fn keys(rows: Vec<KeyRow>) -> KeysPage {
    let layout = layout(NavEntry::Keys, true);
    let filter = KeyFilter::default();
    let name = "gateway-1".into();
    let source = Some(RecordSource::Gateway { name, others: None });
    let (paging, csv) = (Paging::default(), "/settings/api/v1/orgs/acme/keys.csv?sort=-created".into());
    let budget = Some(budget(1_734_001));
    let (all_owners, suspended, order) = (true, false, KeyOrder::default());
    let count = KeyCount { counted: rows.len() as u64, is_complete: true, is_sortable: true };
    let columns = SortColumns::new(order, true, |order| link("/settings/keys", &[("sort", &order.parameter())]));
    let select = SelectLink { is_all: false, href: "/settings/keys?selected=all".into() };
    KeysPage { layout, all_owners, suspended, rows, count, filter, order, columns, select, paging, csv, budget, source }
}

fn middle_page() -> Paging {
    Paging::new(Some("AaBb"), Some("CcDd"), |cursor| link("/settings/keys", &[("cursor", cursor)]))
}

fn second_of_three_pages() -> KeysPage {
    let row = |number: u64| {
        row(
            number,
            &format!("Service {number}"),
            "grace@acme.example",
            last_use(number * 999, Some("curl/8.5.0")),
            KeyStatus::Active,
        )
    };
    let mut page = keys((26..51).map(row).collect());
    page.paging = middle_page();
    page.layout.notice = Some(format!("The key {HOSTILE} is revoked."));
    page
}

fn filtered(rows: Vec<KeyRow>) -> KeysPage {
    let filter = KeyFilter { text: HOSTILE.into(), state: Some(StateFilter::Status(KeyStatus::Revoked)) };
    KeysPage { filter, ..keys(rows) }
}

fn member_without_keys() -> KeysPage {
    KeysPage { layout: layout(NavEntry::Keys, false), all_owners: false, budget: None, ..keys(vec![]) }
}
