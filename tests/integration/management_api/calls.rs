//! Each resource is created, read, changed and ended over the network, on both states.

use domain::management_token::TokenScope;
use serde_json::json;

use super::fixture::Setup;
use crate::support::{Client, eventually, head};

#[test]
fn organization_is_created_listed_and_patched() {
    for setup in Setup::both() {
        let root = setup.root();
        let created = root.post("/orgs", &json!({ "name": "acme" }));
        assert_eq!(created.status, 201, "{created:?}");
        let org = created.json();
        let path = format!("/orgs/{}", org["id"].as_str().unwrap());
        assert_eq!(created.header("location"), Some(&*format!("/v1{path}")));
        assert_eq!(root.get(&path).json(), org);
        assert_eq!(root.get("/orgs/acme").json(), org, "by its name");
        assert_eq!(root.get("/orgs").json()["items"], json!([org]));
        assert_eq!(root.post("/orgs", &json!({ "name": "acme" })).status, 409);
        let key = setup.gateway.create_key("acme", setup.gateway.create_user("acme", "ada@acme.example", &[]).id, "k");
        let status = || Client::connect(setup.gateway.address).get("/x", &key.text).status;
        let patch = json!({ "suspended": true, "concurrent": 7, "policy": { "max_expiry": "90d" } });
        let patched = root.patch(&path, &patch).json();
        assert_eq!((&patched["suspended"], status()), (&json!(true), 403));
        assert_eq!([&patched["concurrent"], &patched["concurrent_in_force"]], [&json!(7); 2]);
        assert_eq!(patched["policy"]["max_expiry"], "90d");
        let back = root.patch(&path, &json!({ "suspended": false, "concurrent": null, "policy": null })).json();
        assert_eq!(back, org, "null is the configured value");
        // A gateway that reads of the suspension only now resets what it has admitted meanwhile.
        eventually("requests are admitted again", || {
            let mut client = Client::connect(setup.gateway.address);
            client.send(head("GET", "/x", &key.text, &[], 0));
            client.try_response_to("GET").is_ok_and(|response| response.status == 200)
        });
        assert_eq!(root.patch(&path, &json!({ "name": "other" })).code(), "invalid_body");
        assert_eq!(root.get("/orgs/none").code(), "no_such_org");
    }
}

#[test]
fn user_and_service_are_created_patched_and_removed() {
    for setup in Setup::both() {
        let (org, root) = (setup.org("acme"), setup.root());
        let users = format!("/orgs/{org}/users");
        let service = json!({
            "email": "nightly", "kind": "service", "responsible": "ada@acme.example", "permissions": ["queries:read"]
        });
        let created = root.post(&users, &service);
        assert_eq!(created.status, 201, "{created:?}");
        let path = format!("{users}/{}", created.json()["id"].as_str().unwrap());
        assert_eq!(root.get(&path).json(), created.json());
        assert_eq!(root.get(&format!("{users}/nightly")).json(), created.json(), "by its name");
        let patched = root.patch(&path, &json!({ "permissions": ["b", "a", "b"], "suspended": true })).json();
        assert_eq!(patched["permissions"], json!(["a", "b"]));
        assert!(patched["suspended"].is_string(), "{patched}");
        assert_eq!(root.patch(&path, &json!({ "suspended": false })).json().get("suspended"), None);
        assert_eq!(root.post(&users, &json!({ "email": "x", "kind": "service" })).code(), "invalid_body");
        assert!(root.delete(&path).json()["removed"].is_string());
        assert_eq!([root.get(&path).code(), root.delete(&path).code()], ["no_such_user"; 2], "for good");
        assert_eq!(root.get(&users).json()["items"].as_array().unwrap().len(), 2, "removed ones are listed");
    }
}

/// Whatever becomes of the person: the service goes on, and those who read of it are told.
#[test]
fn service_is_shown_with_its_responsible_person_wherever_it_is() {
    for setup in Setup::both() {
        let (org, root) = (setup.org("acme"), setup.root());
        let users = format!("/orgs/{org}/users");
        let ada = root.get(&format!("{users}/ada@acme.example")).json();
        assert_eq!((&ada["kind"], ada.get("responsible")), (&json!("person"), None));
        let service = json!({ "email": " Nightly Report", "kind": "service", "responsible": "ADA@acme.example" });
        let service = root.post(&users, &service).json();
        let (path, responsible) = (format!("{users}/{}", service["id"].as_str().unwrap()), &service["responsible"]);
        assert_eq!((&service["email"], &service["kind"]), (&json!("nightly report"), &json!("service")));
        assert_eq!((&responsible["id"], &responsible["status"]), (&ada["id"], &json!("active")));
        let key = root.post(&format!("/orgs/{org}/keys"), &json!({ "name": "k", "user": "Nightly Report" })).json();
        assert_eq!((&key["email"], &key["user_kind"]), (&json!("nightly report"), &json!("service")));
        root.patch(&format!("{users}/ada@acme.example"), &json!({ "suspended": true }));
        let of_key = format!("/keys/{}", key["id"].as_str().unwrap());
        let explained = root.get(&format!("{of_key}/explain")).json()["user"]["responsible"].clone();
        for responsible in
            [&root.get(&of_key).json()["responsible"], &explained, &root.get(&path).json()["responsible"]]
        {
            assert_eq!((&responsible["id"], &responsible["status"]), (&ada["id"], &json!("suspended")));
        }
        let used = Client::connect(setup.gateway.address).get("/x", key["key"].as_str().unwrap());
        assert_eq!(used.status, 200, "the service goes on");

        root.post(&users, &json!({ "email": "bob@acme.example" }));
        let reassigned = root.patch(&path, &json!({ "responsible": "BOB@acme.example" })).json();
        assert_eq!(
            (&root.get(&users).json()["items"][1], &reassigned["responsible"]["status"]),
            (&reassigned, &json!("active"))
        );
        root.delete(&format!("{users}/bob@acme.example"));
        for suspended in [true, false] {
            let responsible = root.patch(&path, &json!({ "suspended": suspended })).json()["responsible"].clone();
            assert_eq!(
                (&responsible["email"], &responsible["status"]),
                (&json!("bob@acme.example"), &json!("removed"))
            );
        }
    }
}

#[test]
fn key_is_imported_by_its_digest() {
    for setup in Setup::both() {
        let (org, root) = (setup.org("acme"), setup.root());
        let import = |sha256: &str| {
            let body = json!({ "name": "old", "user": "ada@acme.example", "sha256": sha256 });
            root.post(&format!("/orgs/{org}/keys/import"), &body)
        };
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(import(sha256).json()["imported"], true);
        assert_eq!(Client::connect(setup.gateway.address).get("/x", "abc").status, 200);
        assert_eq!([import(sha256).code(), import("abc").code()], ["taken", "invalid_digest"]);
    }
}

#[test]
fn limits_of_a_key_are_patched_with_its_policy() {
    for setup in Setup::both() {
        let (org, root) = (setup.org("acme"), setup.root());
        let body = json!({ "name": "k", "user": "ada@acme.example", "policy": { "permissions": ["queries:read"] } });
        let created = root.post(&format!("/orgs/{org}/keys"), &body).json();
        let path = format!("/keys/{}", created["id"].as_str().unwrap());
        let limits = json!({ "requests": 2, "per": "1m", "burst": null });
        let patch = json!({ "policy": { "permissions": null, "concurrent": 3 }, "limits": limits });
        let patched = root.patch(&path, &patch).json();
        let limits = json!({ "requests": 2, "per": "1m", "burst": 2, "own": true });
        assert_eq!((&patched["policy"], &patched["limits"]), (&json!({ "concurrent": 3 }), &limits));
        let mut client = Client::connect(setup.gateway.address);
        let statuses = [(); 3].map(|()| client.get("/x", created["key"].as_str().unwrap()).status);
        assert_eq!(statuses, [200, 200, 429]);
        let explained = root.get(&format!("{path}/explain")).json();
        let verdict = explained["verdict"].as_str().unwrap();
        let (_, seconds) = verdict.split_once("the rate limit is reached; the next request is admitted in ").unwrap();
        let seconds: u32 = seconds.trim_end_matches(" s").parse().unwrap();
        assert!((15..=30).contains(&seconds) && explained["standing"]["next_token"].is_string(), "{explained}");
        assert_eq!((&explained["standing"]["remaining"], &explained["standing"]["burst"]), (&json!(0), &json!(2)));
        assert_eq!(
            root.patch(&path, &json!({ "limits": { "requests": 10, "burst": null } })).json()["limits"]["burst"],
            10
        );
        assert_eq!(root.patch(&path, &json!({ "limits": { "requests": 0 } })).code(), "invalid_limits");
        assert_eq!(root.patch(&path, &json!({ "limits": null })).json()["limits"]["own"], false);
    }
}

/// Tokens of a suspended organization create nothing; those of all organizations do.
#[test]
fn token_of_a_suspended_organization_creates_nothing() {
    for setup in Setup::both() {
        let (org, root) = (setup.org("acme"), setup.root());
        let scopes = TokenScope::ALL.into_iter().filter(|scope| *scope != TokenScope::StateExport).collect::<Vec<_>>();
        let program = setup.program(Some("acme"), &scopes);
        assert_eq!(root.patch("/orgs/acme", &json!({ "suspended": true })).status, 200);
        let digest = "e6ca0a5d362fdab49bbf5e6e0a6f03e8f281d6476eef09cf9c1989804e9aea03";
        let key = json!({ "name": "k", "user": "ada@acme.example" });
        let import = json!({ "name": "k", "user": "ada@acme.example", "sha256": digest });
        let rule = json!({
            "name": "deploy", "user": "ada@acme.example", "issuer": "https://ci.example.com", "audience": "a",
            "claims": { "sub": "repo:acme/app:ref:refs/heads/main" }, "permissions": ["queries:read"],
        });
        for (path, body) in [
            (format!("/orgs/{org}/users"), json!({ "email": "bob@acme.example" })),
            (format!("/orgs/{org}/keys"), key.clone()),
            (format!("/orgs/{org}/keys/import"), import),
            (format!("/orgs/{org}/federation-rules"), rule),
            ("/tokens".to_owned(), json!({ "name": "t", "org": org, "allow": ["keys:read"] })),
        ] {
            let refused = program.post(&path, &body);
            assert_eq!((refused.status, refused.code().as_str()), (403, "org_suspended"), "{path}");
        }
        assert_eq!(root.post(&format!("/orgs/{org}/keys"), &key).status, 201);
        assert_eq!(program.patch("/orgs/acme", &json!({ "suspended": false })).status, 200);
        assert_eq!(program.post(&format!("/orgs/{org}/keys"), &key).status, 201);
    }
}

/// A cursor of the audit belongs to all filters of its list, and a member that is there twice means nothing.
#[test]
fn cursor_of_the_audit_belongs_to_all_its_filters() {
    let setup = Setup::embedded();
    let (org, root) = (setup.org("acme"), setup.root());
    for number in 0..3 {
        root.post(&format!("/orgs/{org}/users"), &json!({ "email": format!("u{number}@acme.example") }));
    }
    let other = setup.root();
    other.post(&format!("/orgs/{org}/users"), &json!({ "email": "u@acme.example" }));
    let first = format!("/audit?limit=1&token={}", root.id);
    let cursor = root.get(&first).json()["nextCursor"].as_str().unwrap().to_owned();
    assert_eq!(root.get(&format!("{first}&cursor={cursor}")).status, 200);
    let user = domain::identity::UserId::generate();
    for filter in [
        String::new(),
        format!("&token={}", other.id),
        format!("&token={}&org={org}", root.id),
        format!("&token={}&user={user}", root.id),
        format!("&token={}&subject={user}", root.id),
        format!("&token={}&kind=change", root.id),
        format!("&token={}&refused=false", root.id),
        format!("&token={}&outcome=completed", root.id),
        format!("&token={}&since=2020-01-01T00:00:00Z", root.id),
        format!("&token={}&until=2120-01-01T00:00:00Z", root.id),
    ] {
        let refused = root.get(&format!("/audit?limit=1&cursor={cursor}{filter}"));
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_cursor"), "{filter}");
    }
}

/// Each id that a client was sent is answered, and an organization hears of its own refusals only.
#[test]
fn id_of_a_folded_refusal_is_explained() {
    let setup = Setup::embedded();
    let root = setup.root();
    let (own, other) = (setup.gateway.key_with(&[]), setup.gateway.key_with(&[]));
    assert_eq!(root.post(&format!("/keys/{}/revoke", own.id), &json!({})).status, 200);
    let mut client = Client::connect(setup.gateway.address);
    let ids: Vec<String> =
        (0..40).map(|_| client.get("/", &own.text).json()["request_id"].as_str().unwrap().to_owned()).collect();
    let find = |query: String| root.get(&format!("/audit?id={}{query}", ids[39])).json();
    eventually("the record is written", || find(String::new())["missing"]["reason"] == "folded");
    let found = find(format!("&org={}", own.org));
    assert_eq!(found["items"], json!([]), "the record has another id");
    let record = &found["missing"]["records"][0];
    assert_eq!([&record["key_id"], &record["outcome"]], [&json!(own.id), &json!("revoked")], "{found}");
    assert_eq!(find(format!("&org={}", other.org))["missing"]["reason"], "unrecorded");
    assert_eq!(
        root.get(&format!("/audit?id={}&limit=1", uuid::Uuid::new_v4())).json()["missing"]["reason"],
        "no_request_id"
    );
    assert!(root.get("/audit?limit=1").json().get("missing").is_none());
}
