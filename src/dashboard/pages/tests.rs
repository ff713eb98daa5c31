//! Every page with samples on it, full, empty and wrong, and what holds for all of them.
//!
//! `KEYGATE_PAGES=DIR cargo test --lib dashboard::pages` writes them to a directory, to be looked at.

use std::fmt::Write as _;
use std::{env, fs};

use askama::Template;

use super::*;
use crate::clock::Micros;
use crate::secret::Secret;

const NOW: Micros = Micros(1_795_285_449_000_000);
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// What a template that does not escape would let out.
const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;";
const LONG: &str =
    "Ingest of the nightly warehouse snapshots for the whole of Europe, Middle East and Africa (region 4)";
const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0";

fn ago(seconds: u64) -> Timestamp {
    Timestamp::of(Micros(NOW.0 - seconds * 1_000_000), NOW)
}

fn coming(seconds: u64) -> Timestamp {
    Timestamp::of(Micros(NOW.0 + seconds * 1_000_000), NOW)
}

fn org(id: &str, name: &str, current: bool) -> OrgChoice {
    OrgChoice { id: id.into(), name: name.into(), current }
}

fn orgs() -> Vec<OrgChoice> {
    vec![
        org("org_1", "Acme Analytics", true),
        org("org_2", "Ångström & Söhne GmbH", false),
        org("org_3", "A very long name of an organization that sells very long names to others", false),
    ]
}

fn layout(section: NavEntry, admin: bool) -> Layout {
    let email = "ada.lovelace@acme.example".into();
    let orgs = if admin { orgs() } else { vec![org("org_1", "Acme Analytics", true)] };
    let person = Viewer { email, admin, org: "Acme Analytics".into(), orgs };
    Layout { base: "/settings".into(), person: Some(person), section, notice: None }
}

fn outside() -> Layout {
    Layout { base: "/settings".into(), person: None, section: NavEntry::Elsewhere, notice: None }
}

fn activity(seed: u64) -> ActivityChart {
    let hour = |hour: u64| {
        let noise = (hour * 2_654_435_761 + seed * 40_503) % 97;
        let busy = if (6..19).contains(&hour) { 3 } else { 1 };
        let refusals = if seed % 4 == 1 && hour % 5 == 2 { noise / 6 } else { 0 };
        HourCounts { start: Micros(NOW.0 - (23 - hour) * 3_600_000_000), requests: noise * busy * (seed % 5), refusals }
    };
    ActivityChart::of(&(0..24).map(hour).collect::<Vec<_>>())
}

fn last_use(seconds: u64, user_agent: Option<&str>) -> Option<LastUseCell> {
    let details = UseSource { ip: "203.0.113.87".into(), user_agent: user_agent.map(Into::into) };
    Some(LastUseCell { when: ago(seconds), details: Some(details) })
}

fn row(number: u64, name: &str, owner: &str, last_use: Option<LastUseCell>, state: KeyState) -> KeyRow {
    KeyRow {
        id: format!("aC3{:06}", number * 7919 % 1_000_000),
        name: name.into(),
        owner: owner.into(),
        own: owner.starts_with("ada"),
        created: ago(number * 3 * DAY + 5 * HOUR),
        state,
        activity: (number != 6).then(|| activity(if last_use.is_none() { 0 } else { number })),
        last_use,
    }
}

fn rows() -> Vec<KeyRow> {
    use KeyState::{Active, OrgSuspended, OwnerRemoved, Revoked};
    let (ada, grace) = ("ada.lovelace@acme.example", "grace@acme.example");
    let unrecorded = Some(LastUseCell { when: ago(2 * DAY), details: None });
    let v6 = UseSource { ip: "2001:db8:85a3:8d3:1319:8a2e:370:7348".into(), user_agent: Some(HOSTILE.into()) };
    vec![
        row(1, "Nightly report", ada, last_use(184, Some("python-requests/2.32.3")), Active),
        row(2, "CI pipeline", grace, last_use(9, Some("curl/8.5.0")), Active),
        row(3, "Laptop", ada, None, Active),
        row(4, LONG, "a.person.with.a.rather.long.name@subsidiary.department.acme.example", unrecorded, Active),
        row(5, "Отчёты · 集計 · نسخة", grace, last_use(26 * HOUR, Some(FIREFOX)), Revoked),
        row(6, "Old importer", "hopper@acme.example", last_use(400 * DAY, None), OwnerRemoved),
        row(7, HOSTILE, grace, Some(LastUseCell { when: ago(3 * HOUR), details: Some(v6) }), Active),
        row(9, "Partner feed", grace, last_use(40 * DAY, Some("Java-http-client/21.0.2")), OrgSuspended),
    ]
}

fn keys(rows: Vec<KeyRow>, total: u64) -> KeysPage {
    let paging = Paging::of(1, total, 25, |page| link("/settings/keys", &[("page", &page.to_string())]));
    let layout = layout(NavEntry::Keys, true);
    let (filter, gateway) = (KeyFilter::default(), Some("gateway-1".into()));
    KeysPage { layout, all: true, suspended: false, rows, filter, found: total, total, paging, gateway }
}

fn many() -> KeysPage {
    let row = |number: u64| {
        row(
            number,
            &format!("Service {number}"),
            "grace@acme.example",
            last_use(number * 999, Some("curl/8.5.0")),
            KeyState::Active,
        )
    };
    let mut page = keys((26..51).map(row).collect(), 60);
    page.paging = Paging::of(2, 60, 25, |page| link("/settings/keys", &[("page", &page.to_string())]));
    page.layout.notice = Some(format!("The key {HOSTILE} is revoked."));
    page
}

fn searched(rows: Vec<KeyRow>) -> KeysPage {
    let filter = KeyFilter { text: HOSTILE.into(), state: Some(KeyState::Revoked) };
    KeysPage { found: rows.len() as u64, filter, ..keys(rows, 60) }
}

fn member_without_keys() -> KeysPage {
    KeysPage { layout: layout(NavEntry::Keys, false), all: false, ..keys(vec![], 0) }
}

fn create(owner: OwnerInput) -> CreatePage {
    CreatePage { layout: layout(NavEntry::Keys, true), name: String::new(), owner, name_error: None, owner_error: None }
}

fn owners() -> OwnerInput {
    let choice = |email: &str, selected| OwnerChoice { value: email.into(), label: email.into(), selected };
    OwnerInput::Select(vec![choice("ada.lovelace@acme.example", true), choice("grace@acme.example", false)])
}

fn create_wrong() -> CreatePage {
    CreatePage {
        name_error: Some("Give the key a name of 1 to 100 characters.".into()),
        owner_error: Some(format!("{HOSTILE} is not a user of this organization.")),
        ..create(OwnerInput::Text(HOSTILE.into()))
    }
}

/// As long as a key, and none.
fn no_key() -> String {
    format!("sk_live_{}_{}", "aC3007919", "x".repeat(49))
}

fn new_key(made: Issuance) -> NewKeyPage {
    let curl = format!("curl https://gateway.example/api/queries \\\n  -H 'Authorization: Bearer {}'", no_key());
    let (name, owner) = ("Nightly report".into(), "ada.lovelace@acme.example".into());
    let (api_key, curl) = (Secret::new(no_key()), Secret::new(curl));
    NewKeyPage { layout: layout(NavEntry::Keys, true), made, id: "aC3007919".into(), name, owner, api_key, curl }
}

fn uses() -> Vec<UseRow> {
    let entry = |(index, name): (usize, &str)| UseRow {
        when: ago(index as u64 * 47 + 12),
        action: if index % 4 == 3 { "GET /api/queries/0193f2".into() } else { "queries.list".into() },
        status: [Some(200), Some(429), Some(403), Some(502), None][index % 5],
        outcome: OutcomeText::named(name).expect("the samples name outcomes that there are"),
        ip: if index == 2 { "2001:db8:85a3:8d3:1319:8a2e:370:7348".into() } else { "203.0.113.87".into() },
        user_agent: [Some("python-requests/2.32.3"), Some(HOSTILE), None, Some(FIREFOX)][index % 4].map(Into::into),
    };
    let names = ["completed", "rate_limited", "forbidden", "upstream_error", "in_progress", "too_many_in_flight"];
    names.into_iter().chain(["aborted", "completed", "completed"]).enumerate().map(entry).collect()
}

fn refusals() -> Vec<RefusedUse> {
    let refused = |entry: UseRow| entry.outcome.is_refused();
    let refusal = |entry: UseRow| {
        let UseRow { when, outcome, status, action, ip, .. } = entry;
        RefusedUse { when, outcome, status, action, ip }
    };
    uses().into_iter().filter(|entry| refused(entry.clone())).map(refusal).collect()
}

fn key() -> KeyPage {
    let sentence = "requests are admitted, to routes with these permissions: queries:read, queries:write".into();
    KeyPage {
        layout: layout(NavEntry::Keys, true),
        id: "aC3007919".into(),
        name: "Nightly report".into(),
        owner: "ada.lovelace@acme.example".into(),
        own: true,
        permissions: vec!["queries:read".into(), "queries:write".into()],
        state: KeyState::Active,
        created: ago(90 * DAY),
        imported: false,
        last_use: last_use(12, Some("python-requests/2.32.3")),
        uses_ever: 1_284_441,
        rotated: Some(ago(2 * HOUR)),
        previous_until: Some(coming(22 * HOUR)),
        revoked: None,
        limits: KeyLimits { requests: 1_000, per: "hour".into(), burst: 1_000, own: false, concurrent: 100 },
        standing: Some(LimitUsage {
            bucket: Gauge::of(873, 1_000),
            next: None,
            full: Some(coming(457)),
            in_flight: Gauge::of(3, 100),
        }),
        verdict: Verdict { admitted: true, sentence },
        activity: Some(activity(13)),
        refusals: refusals(),
        older_refusals: None,
        uses: Some(uses()),
        filter: UseFilter::ANY,
        newer: None,
        older: Some(link("/settings/keys/aC3007919", &[("before", "12-3456")])),
        gateway: Some("gateway-1".into()),
    }
}

fn key_empty() -> KeyPage {
    let standing = LimitUsage {
        bucket: Gauge::of(0, 10),
        next: Some(coming(7)),
        full: Some(coming(3_600)),
        in_flight: Gauge::of(100, 100),
    };
    let sentence = "requests are refused (429): the key's bucket is empty; the next token comes in 7 s".into();
    KeyPage {
        name: HOSTILE.into(),
        permissions: vec![],
        imported: true,
        last_use: None,
        uses_ever: 0,
        limits: KeyLimits { requests: 10, per: "hour".into(), burst: 10, own: true, concurrent: 100 },
        standing: Some(standing),
        verdict: Verdict { admitted: false, sentence },
        activity: Some(activity(0)),
        refusals: vec![],
        uses: Some(vec![]),
        older: None,
        ..key()
    }
}

fn key_revoked() -> KeyPage {
    KeyPage {
        name: LONG.into(),
        state: KeyState::Revoked,
        revoked: Some(ago(300)),
        standing: None,
        verdict: Verdict { admitted: false, sentence: "requests are refused (401): the key is revoked".into() },
        activity: None,
        refusals: vec![],
        uses: None,
        older: None,
        gateway: None,
        ..key()
    }
}

fn key_filtered() -> KeyPage {
    let filter = UseFilter { show: AdmissionFilter::Refused, outcome: OutcomeText::named("rate_limited") };
    KeyPage { filter, uses: Some(vec![]), newer: Some("/settings/keys/aC3007919".into()), older: None, ..key() }
}

/// What is wanted is rare: the newest of the records have none.
fn key_sought() -> KeyPage {
    let older = Some(link("/settings/keys/aC3007919", &[("show", "refused"), ("before", "12-3456")]));
    KeyPage { refusals: vec![], older_refusals: older.clone(), older, newer: None, ..key_filtered() }
}

fn revoke(name: &str, error: Option<&str>) -> RevokePage {
    let (id, owner) = ("aC3007919".into(), "ada.lovelace@acme.example".into());
    let (last_use, error) = (last_use(184, Some(FIREFOX)), error.map(Into::into));
    RevokePage { layout: layout(NavEntry::Keys, true), id, name: name.into(), owner, last_use, error }
}

fn rotate(error: Option<&str>) -> RotatePage {
    let (id, owner, name) = ("aC3007919".into(), "ada.lovelace@acme.example".into(), "Nightly report".into());
    let error = error.map(Into::into);
    RotatePage { layout: layout(NavEntry::Keys, true), id, name, owner, overlap: Overlap::Day, error }
}

fn sessions(all: bool) -> SessionsPage {
    let session = |number: u64, email: &str, user_agent: Option<&str>, provider: &str| SessionRow {
        id: format!("ses_{number}"),
        email: email.into(),
        current: number == 0,
        signed_in: ago(number * 5 * HOUR + 11 * MINUTE),
        seen: ago(number * 13 * MINUTE),
        ip: user_agent.map(|_| "198.51.100.4".into()),
        user_agent: user_agent.map(Into::into),
        provider: provider.into(),
    };
    let ada = "ada.lovelace@acme.example";
    let mut rows = vec![session(0, ada, Some(FIREFOX), "Acme SSO"), session(1, ada, Some(HOSTILE), "Sign-in link")];
    if all {
        rows.push(session(2, "grace@acme.example", None, HOSTILE));
    }
    let paging = Paging::of(1, 3, 25, |page| page.to_string());
    SessionsPage { layout: layout(NavEntry::Sessions, all), all, rows, paging }
}

fn sign_in(labels: &[&str]) -> SignInPage {
    let provider = |label: &&str| ProviderChoice { name: "sso".into(), label: (*label).into() };
    let return_to = format!("/settings/keys?q={HOSTILE}");
    SignInPage { layout: outside(), providers: labels.iter().map(provider).collect(), links: true, return_to }
}

fn leaving() -> LeavingPage {
    let url = "https://id.example/authorize?a=1&b=\"><script>2".into();
    LeavingPage { layout: outside(), label: "Acme SSO".into(), url, signing_out: false }
}

fn link_page() -> LinkPage {
    LinkPage { layout: outside(), email: "ada@acme.example".into(), org: HOSTILE.into(), expires: coming(300) }
}

fn messages() -> Vec<(String, String)> {
    let page = |name: &str, layout: Layout, status, happened: &str, back| {
        let (title, advice) = ("This is not possible any more".into(), "Look at how things are now.".into());
        let request_id = "0193f2aa-9c1e-7d2b-8a44-3f0d9a1b2c3d".into();
        let message = ErrorPage { layout, status, title, happened: happened.into(), advice, back, request_id };
        (format!("message-{name}"), message.render().unwrap())
    };
    vec![
        page("inside", layout(NavEntry::Elsewhere, false), 409, HOSTILE, NextStep::Keys),
        page("outside", outside(), 403, "Your email address is not verified.", NextStep::SignIn),
    ]
}

/// All pages, by name.
fn all() -> Vec<(String, String)> {
    let pages = [
        ("keys", keys(rows(), 8).render()),
        ("keys-many", many().render()),
        ("keys-found", searched(rows()[..2].to_vec()).render()),
        ("keys-not-found", searched(vec![]).render()),
        ("keys-empty", keys(vec![], 0).render()),
        ("keys-empty-member", member_without_keys().render()),
        ("keys-suspended", KeysPage { suspended: true, ..keys(rows()[7..].to_vec(), 1) }.render()),
        ("create", create(owners()).render()),
        ("create-member", create(OwnerInput::Fixed).render()),
        ("create-wrong", create_wrong().render()),
        ("new-key", new_key(Issuance::Created).render()),
        ("new-key-rotated", new_key(Issuance::Rotated(Some(coming(DAY)))).render()),
        ("new-key-replaced", new_key(Issuance::Rotated(None)).render()),
        ("key", key().render()),
        ("key-empty", key_empty().render()),
        ("key-revoked", key_revoked().render()),
        ("key-filtered", key_filtered().render()),
        ("key-sought", key_sought().render()),
        ("revoke", revoke("Nightly report", None).render()),
        ("revoke-wrong", revoke(HOSTILE, Some("That is not the key’s name.")).render()),
        ("rotate", rotate(None).render()),
        ("rotate-wrong", rotate(Some("Choose one of these.")).render()),
        ("sessions", sessions(true).render()),
        ("sessions-member", sessions(false).render()),
        ("sign-in", sign_in(&["Acme SSO", HOSTILE]).render()),
        ("sign-in-none", sign_in(&[]).render()),
        ("leaving", leaving().render()),
        ("link", link_page().render()),
        ("signed-out", SignedOutPage { layout: outside() }.render()),
    ];
    let pages = pages.into_iter().map(|(name, html)| (name.to_owned(), html.unwrap()));
    pages.chain(messages()).collect()
}

#[test]
fn pages_can_be_written_down() {
    let Some(directory) = env::var_os("KEYGATE_PAGES") else { return };
    for (name, html) in all() {
        let mut file = std::path::PathBuf::from(&directory);
        file.push(format!("{name}.html"));
        fs::write(file, html).unwrap();
    }
}

#[test]
fn what_others_wrote_is_text() {
    let pages = all();
    let told: String = pages.iter().fold(String::new(), |mut told, (_, html)| {
        write!(told, "{html}").expect("a string takes all");
        told
    });
    assert!(told.contains("&#60;script&#62;alert(1)"), "the samples have nothing hostile to escape");
    for (name, html) in pages {
        assert_eq!(html.matches("<script").count(), 1, "{name}: a script that is not ours");
        assert!(!html.contains("<img src=x"), "{name}: an element made of a value");
        assert!(!html.contains("\"'>"), "{name}: an attribute left by a value");
    }
}

#[test]
fn no_page_needs_more_than_a_strict_policy() {
    for (name, html) in all() {
        let lower = html.to_lowercase();
        for forbidden in ["<style", " style=", "javascript:", "<iframe", "<object", "<base", "action=\"http"] {
            assert!(!lower.contains(forbidden), "{name} has {forbidden}");
        }
        let tags = lower.split('<').filter_map(|rest| rest.split_once('>')).map(|(tag, _)| tag);
        for tag in tags {
            let handler = tag.split_whitespace().any(|word| word.starts_with("on") && word.contains("=\""));
            assert!(!handler, "{name}: a handler in <{tag}>");
        }
    }
}

#[test]
fn every_page_can_be_found_one_s_way_in() {
    for (name, html) in all() {
        assert_eq!(html.matches("<h1").count(), 1, "{name} has one heading of its own");
        assert_eq!(html.matches("<main").count(), 1, "{name}");
        assert!(html.contains("href=\"#main\""), "{name}: a way past the navigation");
        assert!(!html.contains("<title> "), "{name} has a title");
        let mut ids: Vec<&str> = html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count, "{name} has an id twice");
    }
}

#[test]
fn whose_records_they_are_is_said_where_they_are_shown() {
    let pages = [keys(rows(), 8).render(), key().render()].map(Result::unwrap);
    for page in pages {
        assert!(page.contains("recorded by the gateway <span class=\"mono\">gateway-1</span>"), "{page}");
    }
    assert!(!key_revoked().render().unwrap().contains("by the gateway <span"), "there are none");
}

#[test]
fn what_was_not_found_so_far_is_not_said_to_be_nowhere() {
    let sought = key_sought().render().unwrap();
    assert_eq!(sought.matches("Nothing found so far").count(), 2, "among the uses, and among the refusals");
    assert!(!sought.contains("No use matches") && !sought.contains("No refused request is on record"));
    let href = "/settings/keys/aC3007919?show=refused&#38;before=12-3456";
    assert_eq!(sought.matches(href).count(), 3, "both lead there, and so does what is below the table");
    assert!(key_filtered().render().unwrap().contains("No use matches"));
}

#[test]
fn a_new_key_is_on_its_page_and_in_no_debug() {
    let page = new_key(Issuance::Created);
    assert!(page.render().unwrap().contains(&no_key()));
    assert!(!format!("{page:?}").contains(&no_key()));
}

#[test]
fn people_who_may_not_are_not_offered() {
    let revoked = key_revoked().render().unwrap();
    assert!(!revoked.contains("/rotate\"") && !revoked.contains("/revoke\""), "a revoked key stays revoked");
    let outside = sign_in(&["Acme SSO"]).render().unwrap();
    assert!(!outside.contains("/sessions") && !outside.contains("sign-out"), "nobody is signed in");
}
