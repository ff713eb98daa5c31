//! Gateways with identity providers and users, and checks of sessions, records and responses.

use control::management::{self, Session, User};
use domain::identity::{OrgId, UserId};
use domain::page::{PageLimit, PageQuery};
use journal::audit::{Filter, Outcome, Reader, Record, RecordKind};
use serde_json::{Value, json};

use super::ORIGIN;
use super::gateway_browser::{GatewayBrowser, SESSION, path_here, text};
use crate::oidc::certified_provider::Real;
use crate::oidc::hostile::{Hostile, SECRET};
use crate::support::gateway::OPERATOR;
use crate::support::{Gateway, Response, Upstream, eventually};

/// Email address of the user whom the hostile provider signs in.
pub const PERSON: &str = "person@example.com";

/// A user, and their organization.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    pub org: OrgId,
    pub user: UserId,
}

/// A gateway with these providers.
pub fn gateway(upstream: &Upstream, providers: &[String]) -> Gateway {
    Gateway::with(&[upstream.address], &session(providers, ""))
}

/// A gateway with one hostile provider, `corp`, and a person who is a member of `acme`.
pub struct Setup {
    pub provider: Hostile,
    pub gateway: Gateway,
    _upstream: Upstream,
}

pub fn setup() -> Setup {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let gateway = gateway(&upstream, &[hostile("corp", &provider, "")]);
    member(&gateway, "acme", PERSON, &[]);
    Setup { provider, gateway, _upstream: upstream }
}

/// The configuration's block `session` with these providers, and more.
pub fn session(providers: &[String], more: &str) -> String {
    let providers: String = providers.iter().map(|provider| format!("    - {provider}\n")).collect();
    let providers = if providers.is_empty() { String::new() } else { format!("  providers:\n{providers}") };
    // Tests look at pages as fast as they can.
    let limit = "  limit: { requests: 1000000, per: 1m }\n";
    format!("\nsession:\n  origin: {ORIGIN}\n{limit}{more}{providers}")
}

/// The configuration of a hostile provider. `people` is the claim mapping.
pub fn hostile(name: &str, provider: &Hostile, people: &str) -> String {
    configured(name, &provider.issuer(), "client 1", SECRET, people)
}

/// The configuration of the certified provider, under the name `real`.
pub fn certified(real: &Real, people: &str) -> String {
    let settings = real.settings();
    configured("real", &settings.issuer, &settings.client_id, settings.client_secret.unwrap().expose(), people)
}

fn configured(name: &str, issuer: &str, client: &str, secret: &str, people: &str) -> String {
    format!(
        "{{ name: {name}, label: 'The {name} one', issuer: '{issuer}', client_id: '{client}', \
         client_secret: '{secret}', scopes: [openid, email, profile, groups], people: {{ {people} }} }}"
    )
}

/// The certified provider, for a gateway at [`ORIGIN`].
pub fn real(accounts: Value) -> Real {
    let metadata = json!({
        "redirect_uris": [format!("{ORIGIN}/settings/callback/real")],
        "post_logout_redirect_uris": [format!("{ORIGIN}/settings/signed-out")],
    });
    Real::start_with(metadata, accounts, json!({}))
}

/// Creates an organization with one user.
pub fn member(gateway: &Gateway, org: &str, email: &str, permissions: &[&str]) -> Member {
    let org = gateway.create_org(org).id;
    Member { org, user: gateway.create_user(org, email, permissions).id }
}

/// The path of a new sign-in link of a user.
pub fn link_of(gateway: &Gateway, member: Member) -> String {
    path_here(&gateway.create_link(member.org, member.user))
}

/// The users of an organization.
pub fn users(gateway: &Gateway, org: OrgId) -> Vec<User> {
    let (org, page) = (org.to_string(), PageQuery::first(PageLimit::MAX));
    gateway.perform(async |to, now| management::list_users(to, OPERATOR, &org, &page, now).await).items
}

/// All sessions.
pub fn sessions(gateway: &Gateway) -> Vec<Session> {
    let page = PageQuery::first(PageLimit::MAX);
    gateway.perform(async |to, now| management::list_sessions(to, OPERATOR, None, false, &page, now).await).items
}

/// The audit records of changes, oldest first. Waits until all have an outcome.
pub fn changes(gateway: &Gateway) -> Vec<Record> {
    let mut records = Vec::new();
    eventually("all changes are recorded with their outcome", || {
        let reader = Reader::open(&gateway.dir.path().join("audit")).unwrap();
        records = reader.list(&Filter::default(), 100_000, None).unwrap().records;
        records.retain(|record| record.kind() == RecordKind::Change);
        records.reverse();
        !records.iter().any(|record| record.outcome == Outcome::InProgress)
    });
    records
}

/// Signs in a new visitor, which must succeed.
pub fn signed_in(gateway: &Gateway, provider: &str) -> GatewayBrowser {
    let mut visitor = GatewayBrowser::new(gateway);
    let answer = visitor.sign_in(provider);
    assert_eq!(answer.status, 303, "{}", text(&answer));
    visitor
}

/// Returns `true` if the pages accept the visitor's session.
pub fn is_signed_in(visitor: &mut GatewayBrowser) -> bool {
    let page = visitor.open("/settings/keys");
    match (page.status, page.header("location")) {
        (200, None) => true,
        (303, Some(location)) if location.starts_with("/settings/sign-in") => false,
        _ => panic!("neither: {} {}", page.status, text(&page)),
    }
}

/// Returns `true` if the API accepts the visitor's session.
pub fn is_admitted(visitor: &mut GatewayBrowser) -> bool {
    let answer = visitor.fetch("GET", "/x");
    match answer.status {
        200 => true,
        401 => {
            assert_eq!(answer.code(), "invalid_session");
            false
        }
        status => panic!("neither: {status} {}", text(&answer)),
    }
}

/// The session cookie that a response sets.
pub fn given(answer: &Response) -> Option<&str> {
    let fields = answer.headers.iter().filter(|(name, _)| name == "set-cookie");
    let mut value = fields.filter_map(|(_, field)| field.strip_prefix(&format!("{SESSION}="))?.split(';').next());
    value.rfind(|value| !value.is_empty())
}

/// Checks a refusal: this status, an error page with the request's id, and no session. Returns the request's id.
pub fn assert_refused(answer: &Response, status: u16) -> String {
    let page = text(answer);
    assert_eq!((answer.status, given(answer)), (status, None), "{page}");
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    let id = answer.header("x-request-id").expect("every response has a request id").to_owned();
    assert!(page.contains(&id) && page.contains("<h1>") && page.len() > 500, "{page}");
    for word in ["panicked", "src/", "stack", "Error(", "null"] {
        assert!(!page.contains(word), "{word}: {page}");
    }
    id
}
