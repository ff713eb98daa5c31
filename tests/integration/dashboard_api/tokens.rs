//! Management tokens of administrators: in the API, on the pages, and at the management API, where programs present
//! them.

use control::management::{self, OrgUpdate, TokenSettings, User};
use domain::clock::Micros;
use domain::identity::OrgId;
use serde_json::{Value, json};

use super::fixture::{JSON, SessionUser, Setup};
use crate::support::gateway::OPERATOR;
use crate::support::{Client, Response};

const MANAGEMENT: &str = "listen: [{ address: 127.0.0.1:0 }, { address: 127.0.0.1:0, serves: management }]\n";
const DAY: u64 = 24 * 3600 * 1_000_000;
/// Scopes that administrators may give.
const SCOPES: [&str; 11] = [
    "orgs:read",
    "users:read",
    "users:write",
    "keys:read",
    "keys:create",
    "keys:rotate",
    "keys:revoke",
    "keys:set",
    "usage:read",
    "audit:read",
    "tokens:manage",
];

/// A gateway with a management listener, and more blocks of configuration.
fn setup(more: &str) -> Setup {
    Setup::with("{ requests: 1000000, per: 1m }", &format!("{MANAGEMENT}{more}"))
}

/// A token and its id.
struct Token {
    text: String,
    id: String,
}

fn create(user: &SessionUser<'_>, scopes: &[&str]) -> Token {
    let made = user.post("/tokens", json!({ "name": "pipeline", "allow": scopes }));
    assert_eq!(made.status, 201, "{}", made.code());
    let made = made.json();
    let text = made["token"].as_str().unwrap().to_owned();
    Token { text, id: made["id"].as_str().unwrap().to_owned() }
}

/// Calls the management API with a token.
fn call(setup: &Setup, token: &Token, method: &str, path: &str, body: Option<Value>) -> Response {
    let bearer = format!("Bearer {}", token.text);
    let mut headers = vec![("Authorization", bearer.as_str())];
    headers.extend(body.as_ref().map(|_| JSON));
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    Client::connect(setup.gateway.addresses()[1]).request(method, path, "", &headers, body.as_bytes())
}

fn keys_path(org: OrgId) -> String {
    format!("/v1/orgs/{org}/keys")
}

fn answer(response: &Response) -> (u16, String) {
    (response.status, response.code())
}

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

fn status_of(user: &SessionUser<'_>, token: &Token) -> String {
    let listed = user.get("/tokens").json();
    let found = listed["items"].as_array().unwrap().iter().find(|found| found["id"] == token.id.as_str());
    found.unwrap()["status"].as_str().unwrap().to_owned()
}

#[test]
fn admin_makes_a_token_that_works_in_their_organization_until_it_is_revoked() {
    let setup = setup("");
    let (ada, bob, other) = (setup.admin(), setup.member(), setup.other_org("globex"));
    let eve = setup.user_of(other, "eve@example.com", &["org:admin"]);
    let wish = json!({ "name": "pipeline", "allow": ["keys:read"], "networks": ["127.0.0.0/8", "10.0.0.0/8"] });
    let made = ada.post("/tokens", wish).json();
    let token = &made;
    assert_eq!((&token["status"], &token["created_by"]["email"]), (&json!("active"), &json!("ada@example.com")));
    assert_eq!((&token["org"], &token["networks"][0]), (&json!(setup.org.to_string()), &json!("10.0.0.0/8")));
    let days = (time(&token["expires"]) - time(&token["created"])) / DAY;
    assert_eq!(days, 90);
    let token = Token { text: made["token"].as_str().unwrap().into(), id: token["id"].as_str().unwrap().into() };
    assert_eq!(call(&setup, &token, "GET", &keys_path(setup.org), None).status, 200);
    let rules = format!("/v1/orgs/{}/federation-rules", setup.org);
    assert_eq!(answer(&call(&setup, &token, "GET", &rules, None)), refused(403, "not_allowed"), "of the operator");
    assert_eq!(Client::connect(setup.address()).get("/", &token.text).status, 401, "it is no API key");

    let path = format!("/tokens/{}", token.id);
    for user in [&bob, &eve] {
        assert_eq!(answer(&user.send("DELETE", &path, None)), refused(404, "no_such_token"));
    }
    assert_eq!(eve.get("/tokens").json()["items"], json!([]));
    assert_eq!(answer(&bob.get("/tokens")), refused(403, "not_allowed"));
    let by_member = bob.post("/tokens", json!({ "name": "x", "allow": ["keys:read"] }));
    assert_eq!(answer(&by_member), refused(403, "not_allowed"));
    for nothing in ["/tokens/aB3dE6gH9j", "/tokens/x"] {
        assert_eq!(answer(&ada.send("DELETE", nothing, None)), refused(404, "no_such_token"));
    }
    assert_eq!(status_of(&ada, &token), "active");

    for _ in 0..2 {
        let revoked = ada.send("DELETE", &path, None);
        assert_eq!((revoked.status, &revoked.json()["status"]), (200, &json!("revoked")));
        assert_eq!(answer(&call(&setup, &token, "GET", &keys_path(setup.org), None)), refused(401, "invalid_token"));
    }
    let actions: Vec<String> = setup.changes().into_iter().map(|change| change.action).collect();
    assert_eq!(actions.iter().filter(|action| *action == "token.create").count(), 1, "{actions:?}");
    assert!(ada.page("/settings/audit").contains("Revoked a management token"));
}

fn time(value: &Value) -> u64 {
    value.as_str().unwrap().parse::<Micros>().unwrap().0
}

#[test]
fn admin_gives_a_token_no_more_than_their_own_rights() {
    let setup = setup("");
    let ada = setup.admin();
    for scope in ["orgs:write", "state:export"] {
        let refusal = ada.post("/tokens", json!({ "name": "x", "allow": ["keys:read", scope] }));
        let code = if scope == "orgs:write" { "token_exceeds" } else { "invalid_token_settings" };
        assert_eq!(refusal.code(), code, "{scope}");
    }
    let late = Micros(Micros::wall().0 + 367 * DAY).to_string();
    for (wish, code) in [
        (json!({ "name": "x", "allow": [] }), "invalid_token_settings"),
        (json!({ "name": "x", "allow": ["keys:read"], "expires": late }), "invalid_token_settings"),
        (json!({ "name": "x", "allow": ["keys:read"], "client_san": "" }), "invalid_token_settings"),
        (json!({ "name": "", "allow": ["keys:read"] }), "invalid_name"),
        (json!({ "name": "x", "allow": ["keys:*"] }), "invalid_body"),
        (json!({ "name": "x", "allow": ["keys:read"], "networks": ["10.0.0.1/8"] }), "invalid_body"),
        (json!({ "name": "x", "allow": ["keys:read"], "org": 1 }), "invalid_body"),
    ] {
        assert_eq!(answer(&ada.post("/tokens", wish.clone())), refused(400, code), "{wish}");
    }
    let elsewhere = json!({ "name": "x", "allow": ["keys:read"], "org": setup.other_org("globex").to_string() });
    assert_eq!(answer(&ada.post("/tokens", elsewhere)), refused(403, "not_allowed"));
    assert_eq!(ada.get("/tokens").json()["items"], json!([]));

    let token = create(&ada, &["tokens:manage", "keys:read"]);
    let wish = |scope: &str| json!({ "name": "x", "allow": [scope], "org": setup.org.to_string() });
    let exceeding = call(&setup, &token, "POST", "/v1/tokens", Some(wish("keys:create")));
    assert_eq!(answer(&exceeding), refused(403, "token_exceeds"));
    for _ in 1..100 {
        create(&ada, &["keys:read"]);
    }
    let one_more = ada.post("/tokens", json!({ "name": "x", "allow": ["keys:read"] }));
    assert_eq!(answer(&one_more), refused(409, "too_many_tokens"));
}

#[test]
fn expired_tokens_do_not_count_in_the_bound_of_an_organization() {
    let setup = setup("");
    let ada = setup.admin();
    for _ in 0..100 {
        let settings = TokenSettings {
            name: "old".into(),
            org: Some(setup.org.to_string()),
            allow: ["keys:read".parse().unwrap()].into(),
            expires: None,
            networks: Vec::new(),
            client_san: None,
        };
        let long_ago = Micros(Micros::wall().0 - 91 * DAY);
        setup.gateway.perform_at(long_ago, async |to, now| management::create_token(to, OPERATOR, settings, now).await);
    }
    let listed = ada.get("/tokens?limit=100").json();
    let statuses: Vec<&Value> = listed["items"].as_array().unwrap().iter().map(|token| &token["status"]).collect();
    assert_eq!(statuses, vec!["expired"; 100]);
    assert_eq!(listed["items"][0]["created_by"], json!({ "kind": "operator" }), "who runs the gateway is not told");
    create(&ada, &["keys:read"]);
    assert_eq!(ada.get("/tokens").json()["items"].as_array().unwrap().len(), 1, "the expired ones are removed");
}

#[test]
fn token_of_an_admin_does_nothing_that_is_the_operators_and_nothing_elsewhere() {
    let setup = setup("");
    let (ada, bob, other) = (setup.admin(), setup.member(), setup.other_org("globex"));
    let eve = setup.user_of(other, "eve@example.com", &[]);
    let ((_, key), (_, elsewhere)) = (ada.key("ada's"), eve.key("eve's"));
    let token = create(&ada, &SCOPES);
    let (org, bobs) = (setup.org.to_string(), format!("/v1/orgs/{}/users/{}", setup.org, bob.user));
    let new_user = json!({ "email": "new@example.com", "permissions": ["org:admin"] });
    for (method, path, body, code) in [
        ("POST", format!("/v1/orgs/{org}/users"), new_user, "not_allowed"),
        ("PATCH", bobs.clone(), json!({ "permissions": ["org:admin"] }), "not_allowed"),
        ("DELETE", bobs.clone(), Value::Null, "not_allowed"),
        ("PATCH", format!("/v1/keys/{key}"), json!({ "limits": { "requests": 9 } }), "not_allowed"),
        ("PATCH", format!("/v1/orgs/{org}"), json!({ "concurrent": 9 }), "missing_scope"),
        ("POST", "/v1/orgs".into(), json!({ "name": "x" }), "missing_scope"),
    ] {
        let body = Some(body).filter(|body| !body.is_null());
        assert_eq!(answer(&call(&setup, &token, method, &path, body)), refused(403, code), "{method} {path}");
    }
    let listed = call(&setup, &token, "GET", "/v1/orgs", None).json();
    assert_eq!((listed["items"].as_array().unwrap().len(), &listed["items"][0]["id"]), (1, &json!(org)));
    assert_eq!(ada.get("/users").json()["items"].as_array().unwrap().len(), 2);
    assert_eq!(ada.get(&format!("/keys/{key}")).json()["limits"]["own"], false);
    // Nothing is found elsewhere, as by any token of one organization.
    let revoked = call(&setup, &token, "POST", &format!("/v1/keys/{elsewhere}/revoke"), None);
    assert_eq!(answer(&revoked), refused(404, "no_such_key"));
    assert_eq!(answer(&call(&setup, &token, "GET", &keys_path(other), None)), refused(404, "no_such_org"));
    assert_eq!(eve.get(&format!("/keys/{elsewhere}")).json()["status"], "active");
    // The same token, for what administrators may.
    for suspended in [true, false] {
        assert_eq!(call(&setup, &token, "PATCH", &bobs, Some(json!({ "suspended": suspended }))).status, 200);
    }
    assert_eq!(call(&setup, &token, "POST", &format!("/v1/keys/{key}/revoke"), None).status, 200);
    assert_eq!(ada.get(&format!("/keys/{key}")).json()["status"], "revoked");
}

/// The plan has the bounds of the organization, and what the operator has disabled, as refusals.
#[test]
fn plan_of_an_admin_has_what_would_be_refused() {
    let setup = setup("");
    let ada = setup.admin();
    setup.gateway.perform(async |to, now| {
        let policy: OrgUpdate = serde_json::from_value(json!({ "policy": { "max_expiry": "30d" } })).unwrap();
        management::update_org(to, OPERATOR, "acme", policy, now).await
    });
    let ((_, late), (_, disabled)) = (ada.key("late"), ada.key("disabled"));
    let id = disabled.parse().unwrap();
    setup.gateway.perform(async |to, now| management::disable_key(to, OPERATOR, id, false, now).await);
    let token = create(&ada, &SCOPES);
    let apply = |query: &str, keys: Value| {
        let document = json!({ "organizations": [{ "name": "acme", "keys": keys }] });
        let answer = call(&setup, &token, "PUT", &format!("/v1/apply{query}"), Some(document));
        assert_eq!(answer.status, 200, "{}", answer.code());
        answer.json()
    };
    for (key, reason, code) in [
        (json!({ "id": late, "expires": "2199-01-01" }), "would expire after ", "invalid_policy"),
        (json!({ "id": disabled, "disabled": false }), "disabled by the operator", "disabled_by_operator"),
        (json!({ "id": late, "limits": { "requests": 9, "per": "1m" } }), "you may not do this", "not_allowed"),
    ] {
        let step = &apply("?dry_run=true", json!([key]))["steps"][0];
        assert_eq!(step["action"], "conflict", "{step}");
        assert!(step["reason"].as_str().unwrap().contains(reason), "{step}");
        let applied = apply("", json!([key]));
        assert_eq!((&applied["steps"], &applied["failed"]["code"]), (&json!([]), &json!(code)));
    }
    let tagged = json!([{ "id": late, "tags": { "team": "billing" } }]);
    let planned = apply("?dry_run=true", tagged.clone());
    assert_eq!(planned["steps"][0]["changes"][0], json!({ "field": "tags", "old": "none", "new": "team=billing" }));
    assert_eq!(apply("", tagged)["steps"], planned["steps"], "what an administrator may is applied");
}

#[test]
fn keys_of_a_token_count_in_the_bound_of_its_admin() {
    let setup = setup("limits: { key_creation: { requests: 1, per: 1h, burst: 3 } }\n");
    let (ada, grace) = (setup.admin(), setup.user("grace@example.com", &["org:admin"]));
    let [token, other] = [create(&ada, &["keys:create", "keys:read"]), create(&ada, &["keys:create"])];
    let of_bob = setup.member().user.to_string();
    let make = |token| call(&setup, token, "POST", &keys_path(setup.org), Some(json!({ "name": "x", "user": of_bob })));
    let made = make(&token);
    assert_eq!(made.status, 201, "{}", made.code());
    assert_eq!(make(&other).status, 201);
    ada.key("of the session");
    for token in [&token, &other] {
        assert_eq!(answer(&make(token)), refused(429, "key_creation_limited"));
    }
    assert_eq!(ada.post("/keys", json!({ "name": "x" })).code(), "key_creation_limited");
    assert_eq!(make(&create(&grace, &["keys:create"])).status, 201, "another admin has a bound of their own");

    let id = made.json()["id"].as_str().unwrap().to_owned();
    let created_by = &ada.get(&format!("/keys/{id}")).json()["created_by"];
    assert_eq!(*created_by, json!({ "kind": "program", "token": token.id }));
}

#[test]
fn token_is_refused_while_its_creator_is_no_admin() {
    let setup = setup("");
    let (ada, grace) = (setup.admin(), setup.user("grace@example.com", &["org:admin"]));
    let of_ada = create(&ada, &["tokens:manage", "keys:read"]);
    let wish = json!({ "name": "second", "allow": ["keys:read"], "org": setup.org.to_string() });
    let made = call(&setup, &of_ada, "POST", "/v1/tokens", Some(wish)).json();
    let of_token = Token { text: made["token"].as_str().unwrap().into(), id: made["id"].as_str().unwrap().into() };
    let (gateway, org, user) = (&setup.gateway, setup.org, ada.user);
    let check = |expected: &str, what: &str| {
        for token in [&of_ada, &of_token] {
            assert_eq!(status_of(&grace, token), expected, "{what}");
            let called = call(&setup, token, "GET", &keys_path(setup.org), None);
            if expected == "active" {
                assert_eq!(called.status, 200, "{what}");
            } else {
                assert_eq!(answer(&called), refused(401, "invalid_token"), "{what}");
            }
        }
        assert_eq!(grace.page("/settings/tokens").contains("Its creator is no longer an admin."), expected != "active");
    };
    check("active", "created");
    let changes: [(&str, &dyn Fn() -> User, &str); 5] = [
        ("suspended", &|| gateway.suspend_user_of(org, user), "creator_not_admin"),
        ("resumed", &|| gateway.resume_user_of(org, user), "active"),
        ("no admin", &|| gateway.permit_user_of(org, user, &["queries:read"]), "creator_not_admin"),
        ("admin", &|| gateway.permit_user_of(org, user, &["org:admin"]), "active"),
        ("removed", &|| gateway.remove_user_of(org, user), "creator_not_admin"),
    ];
    for (what, change, expected) in changes {
        change();
        check(expected, what);
    }
}

#[test]
fn revocation_of_a_token_is_counted_apart_from_other_requests() {
    let setup = Setup::with_limit("{ requests: 6, per: 1h, burst: 4 }");
    let ada = setup.admin();
    let token = create(&ada, &["keys:read"]);
    for _ in 0..3 {
        assert_eq!(ada.get("/tokens").status, 200);
    }
    assert_eq!(answer(&ada.get("/tokens")), refused(429, "rate_limited"));
    let path = format!("/tokens/{}", token.id);
    assert!(ada.page(&format!("/settings{path}/revoke")).contains("Revoke this token"), "the page that asks");
    assert_eq!(ada.send("DELETE", &path, None).json()["status"], "revoked");
}
