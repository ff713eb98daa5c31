//! Changes, sessions, signing in and out, and error pages.

use super::*;
use crate::dashboard::error_page::ErrorPage;

pub(super) fn pages() -> Vec<NamedPage> {
    render([
        ("sessions", &sessions(true)),
        ("sessions-member", &sessions(false)),
        ("audit", &audit(true)),
        ("audit-member", &audit(false)),
        ("audit-request", &audit_of_request()),
        ("audit-unreadable", &AuditPage { rows: None, source: None, ..audit(true) }),
        ("audit-empty", &AuditPage { rows: Some(Vec::new()), ..audit(false) }),
        ("sign-in", &sign_in(&["Acme SSO", HOSTILE])),
        ("sign-in-none", &sign_in(&[])),
        ("sign-in-by-email", &SignInPage { by_email: true, ..sign_in(&["Acme SSO"]) }),
        ("sign-in-unknown-email", &unknown_email()),
        ("leaving", &leaving()),
        ("link", &link_page()),
        ("signed-out", &SignedOutPage { layout: without_viewer() }),
        ("error-inside", &error(layout(NavEntry::Other, false), 409, HOSTILE, false)),
        ("error-outside", &error(without_viewer(), 403, "Your email address is not verified.", true)),
    ])
}

fn audit(all_users: bool) -> AuditPage {
    let change = |number: u64, action: &str, by: Option<&str>, outcome: &'static str| ChangeRow {
        time: ago(number * 7 * HOUR + 3 * MINUTE),
        action: action.into(),
        by: by.map(Into::into),
        subject: (number != 2).then(|| "ada.lovelace@acme.example".into()),
        key: (number == 0).then(|| "aC3007919".into()),
        ip: by.map(|_| "198.51.100.4".into()),
        outcome,
    };
    let rows = vec![
        change(0, "key.revoke", Some("ada.lovelace@acme.example"), "completed"),
        change(1, "user.permit", Some(HOSTILE), "client_error"),
        change(2, "org.resume", None, "completed"),
        change(3, HOSTILE, Some("usr_01a1feffdb47709388ac3de7bcee81c8"), "aborted"),
    ];
    let paging = Paging::new(None, Some("AaBb"), |cursor| link("/settings/audit", &[("cursor", cursor)]));
    let source = Some(RecordSource::Gateway { name: "gateway-1".into(), others: None });
    let search = all_users.then(RequestSearch::default);
    let csv = "/settings/api/v1/orgs/acme/changes.csv".to_owned();
    let filter = ChangeFields { by: HOSTILE.into(), csv, ..ChangeFields::default() };
    AuditPage { layout: layout(NavEntry::Audit, all_users), filter, search, rows: Some(rows), paging, source }
}

/// The page on which a request was sought whose refusal was folded into one of two records.
fn audit_of_request() -> AuditPage {
    let found = |key: Option<&str>, count| FoundRequest {
        key: key.map(Into::into),
        row: UseRow {
            time: ago(3 * MINUTE),
            action: "orders.list".into(),
            status: Some(429),
            outcome: OutcomeText::from_name("rate_limited").unwrap(),
            ip: "198.51.100.4 and 2 more".into(),
            user_agent: None,
            count,
        },
    };
    let search = RequestSearch {
        id: "01890a5d-ac96-774b-bcce-b302099a8057".into(),
        note: Some(HOSTILE.into()),
        found: vec![found(Some("aC3007919"), 21), found(None, 4000)],
    };
    AuditPage { search: Some(search), ..audit(true) }
}

fn sessions(all_users: bool) -> SessionsPage {
    let session = |number: u64, email: &str, user_agent: Option<&str>, provider: &str| SessionRow {
        id: format!("ses_{number}"),
        email: email.into(),
        current: number == 0,
        signed_in: ago(number * 5 * HOUR + 11 * MINUTE),
        last_seen: ago(number * 13 * MINUTE),
        ip: user_agent.map(|_| "198.51.100.4".into()),
        user_agent: user_agent.map(Into::into),
        provider: provider.into(),
    };
    let ada = "ada.lovelace@acme.example";
    let mut rows = vec![session(0, ada, Some(FIREFOX), "Acme SSO"), session(1, ada, Some(HOSTILE), "Sign-in link")];
    if all_users {
        rows.push(session(2, "grace@acme.example", None, HOSTILE));
    }
    let paging = Paging::default();
    SessionsPage { layout: layout(NavEntry::Sessions, all_users), all_users, rows, paging }
}

pub(crate) fn sign_in(labels: &[&str]) -> SignInPage {
    let provider = |label: &&str| ProviderChoice { name: "sso".into(), label: (*label).into() };
    let return_to = format!("/settings/keys?q={HOSTILE}");
    SignInPage {
        layout: without_viewer(),
        providers: labels.iter().map(provider).collect(),
        has_providers: !labels.is_empty(),
        by_email: false,
        email: String::new(),
        error: None,
        links: true,
        return_to,
    }
}

fn unknown_email() -> SignInPage {
    let error = Some("No sign-in is known for this address.");
    SignInPage { by_email: true, email: HOSTILE.into(), error, ..sign_in(&[]) }
}

fn leaving() -> LeavingPage {
    let url = "https://id.example/authorize?a=1&b=\"><script>2".into();
    LeavingPage { layout: without_viewer(), label: "Acme SSO".into(), url, signing_out: false }
}

fn link_page() -> LinkPage {
    LinkPage { layout: without_viewer(), email: "ada@acme.example".into(), org: HOSTILE.into(), expires: coming(300) }
}

fn error(layout: Layout, status: u16, description: &str, leads_to_sign_in: bool) -> ErrorPage {
    let title = "Not possible in the current state";
    let advice = "Check the current state.";
    let request_id = "0193f2aa-9c1e-7d2b-8a44-3f0d9a1b2c3d".into();
    ErrorPage { layout, status, title, description: description.into(), advice, leads_to_sign_in, request_id }
}
