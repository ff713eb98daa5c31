//! Federation: tokens of a CI are exchanged for keys, over both states.

mod accepted;
mod limits;
mod page;
mod refused;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use control::management::{self, FederationRule, Key, NewFederationRule};
use domain::clock;
use serde_json::{Value, json};

use crate::oidc::hostile::Hostile;
use crate::support::gateway::{OPERATOR, parse_permissions};
use crate::support::redis::Redis;
use crate::support::{Client, Gateway, Response, Upstream};

const ORG: &str = "acme";
const ADA: &str = "ada@example.com";
/// `audience` of the exchanges of most tests.
const TARGET: &str = "acme/deploy";
/// `aud` of the tokens.
const AUDIENCE: &str = "https://api.example.com";
const SUBJECT: &str = "repo:acme/app:ref:refs/heads/main";
const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// Routes, each with a permission.
const ROUTES: &str = "routes:\n  - { name: reads, path: /reads, permission: 'queries:read' }\n  \
                      - { name: writes, path: /writes, permission: 'queries:write' }\n  \
                      - { name: queries, path: /queries, permission: 'queries:read' }\n";

/// A gateway, a CI, and a rule for its tokens.
struct World {
    ci: Hostile,
    gateway: Gateway,
    upstream: Upstream,
    /// Present where the state is on it.
    redis: Option<Redis>,
}

impl World {
    fn embedded() -> Self {
        Self::with(None, "")
    }

    /// With further blocks of configuration.
    fn with(redis: Option<Redis>, blocks: &str) -> Self {
        let ci = Hostile::start();
        // As those of CIs, which sign nobody in.
        ci.behave(|now| {
            now.metadata = Box::new(|metadata| {
                let issuer = metadata["issuer"].clone();
                let keys = metadata["jwks_uri"].clone();
                *metadata = json!({"issuer": issuer, "jwks_uri": keys});
            });
        });
        let upstream = Upstream::start();
        let gateway = start_gateway(&upstream, redis.as_ref(), blocks);
        let world = Self { ci, gateway, upstream, redis };
        world.gateway.create_org(ORG);
        world.gateway.create_user(ORG, ADA, &[]);
        world.create_service("ci", &["queries:read", "queries:write"]);
        world.create_rule(world.rule());
        world
    }

    /// Creates a service for which Ada is responsible.
    fn create_service(&self, name: &str, permissions: &[&str]) {
        let permissions = parse_permissions(permissions);
        self.gateway.perform(async |to, now| {
            management::create_service(to, OPERATOR, ORG, name, ADA, permissions.into(), now).await
        });
    }

    fn rule(&self) -> NewFederationRule {
        NewFederationRule {
            name: "deploy".into(),
            user: "ci".into(),
            issuer: self.ci.issuer(),
            audience: AUDIENCE.into(),
            audiences: Vec::new(),
            claims: [("sub".to_owned(), "repo:acme/*:ref:refs/heads/main".parse().unwrap())].into(),
            permissions: vec!["queries:read".parse().unwrap()],
            max: Some(Duration::from_secs(600)),
            tags: BTreeMap::new(),
        }
    }

    fn create_rule(&self, rule: NewFederationRule) -> FederationRule {
        self.gateway.perform(async |to, now| management::create_federation_rule(to, OPERATOR, ORG, rule, now).await)
    }

    /// Claims of a new token that is accepted.
    fn claims(&self) -> Value {
        let now = clock::now().0 / 1_000_000;
        json!({
            "iss": self.ci.issuer(), "aud": AUDIENCE, "sub": SUBJECT, "iat": now, "exp": now + 300,
            "jti": uuid::Uuid::new_v4().to_string(), "repository": "acme/app", "run_attempt": "1",
        })
    }

    /// A new token that is accepted.
    fn token(&self) -> String {
        self.sign(&self.claims())
    }

    fn sign(&self, claims: &Value) -> String {
        let mut token = String::new();
        self.ci.behave(|now| token = now.keys[0].signed(claims));
        token
    }

    fn exchange(&self, token: &str) -> Response {
        exchange(&self.gateway, TARGET, token, &[])
    }

    /// The keys of the organization, which are all those of rules.
    fn keys(&self) -> Vec<Key> {
        self.gateway.list_keys(ORG)
    }
}

/// A gateway that exchanges tokens.
fn start_gateway(upstream: &Upstream, redis: Option<&Redis>, blocks: &str) -> Gateway {
    let state = redis.map(|redis| format!("state: {{ redis: {{ url: '{}', deadline: 2s }} }}\n", redis.url()));
    let state = state.unwrap_or_default();
    Gateway::with(&[upstream.address], &format!("\nfederation: {{ path: /v1/token }}\n{ROUTES}{state}{blocks}"))
}

/// Sends an exchange with more parameters.
fn exchange(gateway: &Gateway, target: &str, token: &str, more: &[(&str, &str)]) -> Response {
    exchange_at(gateway.address, target, token, more)
}

/// The same, to a gateway at this address.
fn exchange_at(gateway: SocketAddr, target: &str, token: &str, more: &[(&str, &str)]) -> Response {
    let usual = [("grant_type", GRANT), ("subject_token_type", JWT), ("audience", target), ("subject_token", token)];
    let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(usual).extend_pairs(more).finish();
    send(gateway, &form)
}

fn send(gateway: SocketAddr, form: &str) -> Response {
    let kind = [("Content-Type", "application/x-www-form-urlencoded")];
    Client::connect(gateway).request("POST", "/v1/token", "", &kind, form.as_bytes())
}

/// The key of a response to an exchange that succeeded.
fn issued(response: &Response) -> String {
    assert_eq!(response.status, 200, "{}", String::from_utf8_lossy(&response.body));
    response.json()["access_token"].as_str().unwrap().to_owned()
}

/// Status, `error` and `code` of a refusal. Checks that it has all that a refusal has.
fn refusal(response: &Response) -> (u16, String, String) {
    let body = response.json();
    assert_eq!(response.header("content-type"), Some("application/json"), "{body}");
    assert_eq!(response.header("cache-control"), Some("no-store"), "{body}");
    assert_eq!(response.header("x-request-id"), body["request_id"].as_str(), "{body}");
    let text = |name: &str| body[name].as_str().unwrap_or_else(|| panic!("{name}: {body}")).to_owned();
    assert!(text("error_description").len() > 10, "{body}");
    (response.status, text("error"), text("code"))
}

fn grant(code: &str) -> (u16, String, String) {
    (400, "invalid_grant".into(), code.into())
}
