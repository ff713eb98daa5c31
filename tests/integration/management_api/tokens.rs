//! Management tokens: what they are accepted for, and until when.

use control::management::{self, TokenSettings};
use domain::clock;
use domain::management_token::TokenScope;
use serde_json::{Value, json};

use super::fixture::{Program, Setup, settings};
use crate::support::gateway::OPERATOR;
use crate::support::{Client, eventually, mistyped};

#[test]
fn revoked_token_is_refused_from_the_next_call_on_at_every_gateway() {
    let setup = Setup::on_redis();
    let other = setup.another();
    let token = setup.root();
    let elsewhere = token.at(other.addresses()[1]);
    assert_eq!((token.get("/orgs").status, elsewhere.get("/orgs").status), (200, 200));
    setup.revoke(&token);
    for program in [token, elsewhere] {
        let refused = program.get("/orgs");
        assert_eq!((refused.status, refused.code().as_str()), (401, "invalid_token"));
        assert!(refused.header("www-authenticate").is_some());
    }
}

#[test]
fn tokens_survive_a_restart_and_expire() {
    let mut setup = Setup::embedded();
    let [kept, revoked] = [setup.root(), setup.root()];
    setup.revoke(&revoked);
    let soon = clock::now().after(std::time::Duration::from_secs(3600));
    let short = setup.program_with(&TokenSettings { expires: Some(soon), ..settings(None, &TokenScope::ALL) });
    setup.gateway.restart_with(str::to_owned);
    let address = setup.api();
    assert_eq!([kept.at(address).get("/orgs").status, short.at(address).get("/orgs").status], [200, 200]);
    assert_eq!(revoked.at(address).get("/orgs").status, 401);
    let too_long = clock::now().after(std::time::Duration::from_secs(367 * 24 * 3600));
    for invalid in [
        TokenSettings { expires: Some(too_long), ..settings(None, &TokenScope::ALL) },
        TokenSettings { expires: Some(clock::Micros(1)), ..settings(None, &TokenScope::ALL) },
        settings(None, &[]),
    ] {
        let refused = setup.gateway.refused(async |to, now| management::create_token(to, OPERATOR, invalid, now).await);
        assert_eq!(refused, "invalid_token_settings");
    }
}

/// The last use of a program's token, as a list by another program at this gateway has it.
fn last_use(viewer: &Program, program: &Program) -> Value {
    let listed = viewer.get("/tokens").json();
    let items = listed["items"].as_array().unwrap().clone();
    items.into_iter().find(|item| item["id"] == program.id.as_str()).unwrap()["last_use"].take()
}

#[test]
fn last_use_of_a_token_is_shown_at_every_gateway_and_after_a_restart() {
    for mut setup in Setup::both() {
        let [viewer, program] = [setup.program(None, &[TokenScope::TokensManage]), setup.root()];
        assert_eq!(last_use(&viewer, &program), Value::Null);
        // Refused calls are no uses; as in the audit, secrets and control characters do not stay.
        let forged = Program { secret: mistyped(&program.secret), ..program.clone() };
        assert_eq!((forged.get("/orgs").status, last_use(&viewer, &program)), (401, Value::Null));
        let agent = format!("probe {}{}", program.secret, "a".repeat(300));
        let read = |agent: &str| program.call("GET", "/orgs", &[("User-Agent", agent)], b"").status;
        assert_eq!(read(&agent), 200);
        let shown = last_use(&viewer, &program);
        let kept = shown["user_agent"].as_str().unwrap();
        assert!(kept.starts_with(&format!("probe kgm_{}_\u{2026}", program.id)) && kept.len() < 300, "{kept}");
        assert_eq!(shown["ip"], "127.0.0.1");
        if setup.redis.is_some() {
            let other = setup.another();
            let elsewhere = viewer.at(other.addresses()[1]);
            eventually("another gateway shows the use", || last_use(&elsewhere, &program) == shown);
        }
        eventually("a restarted gateway shows the use", || {
            setup.gateway.restart_with(str::to_owned);
            let shown = last_use(&viewer.at(setup.api()), &program);
            assert_eq!(program.at(setup.api()).call("GET", "/orgs", &[("User-Agent", "again")], b"").status, 200);
            shown["user_agent"] == kept || shown["user_agent"] == "again"
        });
    }
}

#[test]
fn call_succeeds_while_the_use_of_its_token_cannot_be_stored() {
    let setup = Setup::on_redis();
    let redis = setup.redis.as_ref().unwrap();
    let [viewer, program] = [setup.program(None, &[TokenScope::TokensManage]), setup.root()];
    redis.cli::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    for _ in 0..3 {
        assert_eq!(program.get("/orgs").status, 200);
    }
    assert_eq!(last_use(&viewer, &program)["ip"], "127.0.0.1", "this gateway knows it");
    assert_eq!(redis.cli::<u64>(&["EXISTS", "keygate:{tokens}:uses"]), 0, "nothing was stored");
    redis.cli::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
}

#[test]
fn token_is_no_api_key_and_an_api_key_no_token() {
    for setup in Setup::both() {
        let (token, key) = (setup.root(), setup.gateway.key());
        assert_eq!(Client::connect(setup.gateway.address).get("/x", &token.secret).status, 401);
        let program = Program { secret: key.text, ..token };
        assert_eq!(program.get("/orgs").code(), "invalid_token");
    }
}

#[test]
fn other_listeners_serve_no_management_and_this_one_nothing_else() {
    let setup = Setup::embedded();
    let (token, key) = (setup.root(), setup.gateway.key());
    let forwarded = token.at(setup.gateway.address).get("/orgs");
    assert_eq!(forwarded.status, 401, "a path of the upstream like any other, for which a key is needed");
    let path = Client::connect(setup.api()).get("/x", &key.text);
    assert_eq!((path.status, path.code().as_str()), (404, "not_found"));
}

#[test]
fn token_is_accepted_from_its_networks_alone() {
    let setup = Setup::embedded();
    let of = |network: &str| {
        let networks = vec![network.parse().unwrap()];
        setup.program_with(&TokenSettings { networks, ..settings(None, &TokenScope::ALL) })
    };
    assert_eq!(of("127.0.0.0/8").get("/orgs").status, 200);
    assert_eq!(of("192.0.2.0/24").get("/orgs").code(), "address_refused");
}

#[test]
fn wrong_tokens_are_bounded_by_address_and_a_right_one_still_works() {
    let setup = Setup::with("limits: { bad_keys: { requests: 10, per: 24h, burst: 10 } }\n");
    let token = setup.root();
    let wrong = Program { secret: mistyped(&token.secret), ..token.clone() };
    let codes: Vec<String> = (0..30).map(|_| wrong.get("/orgs").code()).collect();
    let (first, others) = codes.split_at(10);
    assert!(first.iter().all(|code| code == "invalid_token"), "{codes:?}");
    assert!(others.iter().all(|code| code == "too_many_attempts"), "{codes:?}");
    assert_eq!(token.get("/orgs").status, 200);
}

#[test]
fn calls_of_a_token_are_limited_as_configured() {
    let setup = Setup::with("limits: { management: { requests: 3, per: 1h } }\n");
    let (token, other) = (setup.root(), setup.root());
    let status = |program: &Program| program.get("/orgs").status;
    assert_eq!([(); 4].map(|()| status(&token)), [200, 200, 200, 429]);
    let limited = token.get("/orgs");
    assert_eq!(limited.code(), "rate_limited");
    assert!(limited.header("retry-after").is_some());
    assert_eq!(status(&other), 200, "another token has a bucket of its own");
    let loaded = || setup.gateway.metric("keygate_config_last_reload_success_timestamp_seconds");
    let reload = |from: &str, to: &str| {
        let before = loaded();
        setup.gateway.reconfigure(|config| config.replace(from, to));
        eventually("the configuration is loaded", || loaded() > before);
    };
    reload("per: 1h }", "per: 1h }, keys_per_user: 99");
    assert_eq!(status(&token), 429, "a reload of other values gives no calls back");
    reload("requests: 3", "requests: 5");
    assert_eq!([(); 6].map(|()| status(&token)), [200, 200, 200, 200, 200, 429]);
}

#[test]
fn token_creates_none_that_exceeds_it() {
    for setup in Setup::both() {
        let org = setup.org("acme");
        let scopes = [TokenScope::TokensManage, TokenScope::KeysRead];
        let manager = setup.program(Some(&org), &scopes);
        let create = |body: serde_json::Value| manager.post("/tokens", &body);
        let narrower = create(json!({ "name": "n", "org": org, "allow": ["keys:read"], "expires": in_days(1) }));
        assert_eq!(narrower.status, 201, "{narrower:?}");
        let new = Program { secret: narrower.json()["token"].as_str().unwrap().into(), ..manager.clone() };
        assert_eq!(new.get(&format!("/orgs/{org}/keys")).status, 200);
        assert_eq!(new.get("/tokens").code(), "missing_scope");
        let wider = [
            json!({ "name": "n", "org": org, "allow": ["keys:read", "keys:create"], "expires": in_days(1) }),
            json!({ "name": "n", "org": org, "allow": ["keys:read"], "expires": in_days(365) }),
        ];
        for body in wider {
            assert_eq!(create(body.clone()).code(), "token_exceeds", "{body}");
        }
        assert_eq!(
            create(json!({ "name": "n", "allow": ["keys:read"], "expires": in_days(1) })).code(),
            "missing_scope"
        );
        let listed = manager.get("/tokens").json();
        let ids: Vec<_> = listed["items"].as_array().unwrap().iter().map(|token| token["id"].clone()).collect();
        assert_eq!(ids, [json!(manager.id), narrower.json()["id"].clone()], "those of the organization alone");
        let id = narrower.json()["id"].as_str().unwrap().to_owned();
        assert!(manager.delete(&format!("/tokens/{id}")).json()["revoked"].is_string());
        assert_eq!(new.get("/orgs").status, 401);
    }
}

fn in_days(days: u64) -> String {
    clock::now().after(std::time::Duration::from_secs(days * 24 * 3600)).to_string()
}

/// Descendants of a leaked token are named when it is revoked, and end with `with_descendants`; its tokens end anyway.
#[test]
fn revocation_names_and_ends_descendants() {
    for setup in Setup::both() {
        let (org, root) = (setup.org("acme"), setup.root());
        let service = json!({
            "email": "ci", "kind": "service", "responsible": "ada@acme.example", "permissions": ["queries:read"],
        });
        assert_eq!(root.post(&format!("/orgs/{org}/users"), &service).status, 201);
        let scopes = [TokenScope::KeysRead, TokenScope::KeysCreate, TokenScope::TokensManage];
        let leaked = setup.program(Some(&org), &scopes);
        let body = json!({ "name": "backdoor", "org": org, "allow": ["keys:read", "keys:create", "tokens:manage"] });
        let made = leaked.post("/tokens", &body).json();
        let id = made["id"].as_str().unwrap().to_owned();
        let child = Program { id: id.clone(), secret: made["token"].as_str().unwrap().into(), ..leaked.clone() };
        let rule = json!({
            "name": "backdoor", "user": "ci", "issuer": "https://ci.example.com", "audience": "https://api.example.com",
            "claims": { "sub": "repo:evil/*:**" }, "permissions": ["queries:read"],
        });
        assert_eq!(child.post(&format!("/orgs/{org}/federation-rules"), &rule).status, 201);
        let body = json!({ "name": "k", "user": "ada@acme.example" });
        let key = child.post(&format!("/orgs/{org}/keys"), &body).json()["id"].as_str().unwrap().to_owned();
        let kept = root.post(&format!("/orgs/{org}/keys"), &body).json()["id"].as_str().unwrap().to_owned();

        let path = format!("/tokens/{}", leaked.id);
        let own = leaked.delete(&format!("{path}?with_descendants=true"));
        assert_eq!(own.code(), "missing_scope", "no scope to revoke keys");
        let rules = ["acme/backdoor"];
        let named = |ended| json!({ "tokens": [id], "federation_rules": rules, "keys": [key], "ended": ended });
        assert_eq!(root.delete(&path).json()["descendants"], named(false));
        assert_eq!([leaked.get("/tokens").status, child.get("/tokens").status], [401, 401]);
        let status = |key: &str| root.get(&format!("/keys/{key}")).json()["status"].clone();
        assert_eq!((status(&key), status(&kept)), (json!("active"), json!("active")));

        assert_eq!(root.delete(&format!("{path}?with_descendants=true")).json()["descendants"], named(true));
        assert_eq!((status(&key), status(&kept)), (json!("revoked"), json!("active")));
        assert_eq!(root.get(&format!("/orgs/{org}/federation-rules/backdoor")).code(), "no_such_rule");
        let left = json!({ "tokens": [id], "federation_rules": [], "keys": [], "ended": false });
        assert_eq!(root.delete(&path).json()["descendants"], left);
    }
}
