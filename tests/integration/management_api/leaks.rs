//! Reports of leaked keys and management tokens by other scanners, on both states.

use domain::management_token::{self, TokenScope};
use serde_json::{Value, json};

use super::fixture::Setup;
use crate::support::Client;

#[test]
fn scanner_reports_keys_of_its_organization_and_no_others() {
    for setup in Setup::both() {
        let [key, other] = [setup.gateway.key(), setup.gateway.key()];
        let status = |key: &str| Client::connect(setup.gateway.address).get("/x", key).status;
        let scanner = setup.program(Some(&key.org.to_string()), &[TokenScope::KeysLeak]);
        let report = |key: &str| scanner.post("/leaks", &json!({ "key": key, "source": "gitleaks", "url": "a b" }));
        for unknown in [other.text.as_str(), "key-of-another-system"] {
            assert_eq!(report(unknown).json(), json!({ "found": null }));
        }
        let found = report(&key.text).json();
        assert_eq!((&found["found"]["id"], &found["found"]["status"]), (&json!(key.id), &json!("disabled")));
        assert_eq!((status(&key.text), status(&other.text)), (401, 200));
        let [record] = &setup.gateway.changes("key.disable")[..] else { panic!("one record") };
        assert_eq!(record.path, "key.disable/leak/gitleaks/a%20b");
        assert_eq!(record.token_id.map(|id| id.to_string()).as_deref(), Some(&*scanner.id));

        let root = setup.program(None, &[TokenScope::KeysLeak]);
        assert_eq!(root.post("/leaks", &json!({ "key": other.text })).json()["found"]["status"], "disabled");
        let without = setup.program(None, &[TokenScope::KeysSet, TokenScope::KeysRevoke]);
        let refused = without.post("/leaks", &json!({ "key": key.text }));
        assert_eq!((refused.status, refused.code()), (403, "missing_scope".into()));
        let invalid: Value = root.post("/leaks", &json!({ "token": key.text })).json();
        assert_eq!(invalid["code"], "invalid_body");
    }
}

/// A text of the form of a token, with the id of one.
fn forge(id: &str) -> String {
    const BASE62: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let text = format!("kgm_{id}_{}", "x".repeat(43));
    let crc = crc32fast::hash(text.as_bytes()) as usize;
    let digit = |place| char::from(BASE62[crc / 62_usize.pow(place) % 62]);
    let forged = text + &(0..6).rev().map(digit).collect::<String>();
    assert_eq!(management_token::parse(forged.as_bytes()).unwrap().as_str(), id);
    forged
}

#[test]
fn scanner_ends_tokens_of_its_organization_and_no_others() {
    for setup in Setup::both() {
        let [own, other] = ["own", "other"].map(|name| setup.org(name));
        let scanner = setup.program(Some(&own), &[TokenScope::KeysLeak]);
        let program = |org: Option<&String>| setup.program(org.map(String::as_str), &[TokenScope::OrgsRead]);
        let [found, foreign, of_all] = [Some(&own), Some(&other), None].map(program);
        let report = |secret: &str| scanner.post("/leaks", &json!({ "key": secret, "source": "gitleaks", "url": "a" }));
        for outside in [&foreign, &of_all] {
            assert_eq!(report(&outside.secret).json(), json!({ "found": null }));
            assert_eq!(outside.get("/orgs").status, 200);
        }
        // The id is public: with another secret, and the right checksum, it is another text.
        assert_eq!(report(&forge(&found.id)).json(), json!({ "found": null }));
        assert_eq!(found.get("/orgs").status, 200);
        for _ in 0..2 {
            let answer = report(&found.secret).json();
            assert_eq!((&answer["found"], &answer["found_token"]["id"]), (&Value::Null, &json!(found.id)));
            assert_eq!(answer["found_token"]["status"], "revoked");
            assert_eq!(found.get("/orgs").status, 401);
        }
        let [record] = &setup.gateway.changes("token.revoke")[..] else { panic!("one record") };
        assert_eq!(record.path, format!("token.revoke/{}/leak/gitleaks/a", found.id));
        assert_eq!(record.token_id.map(|id| id.to_string()).as_deref(), Some(&*scanner.id));
        let root = setup.program(None, &[TokenScope::KeysLeak]);
        let answer = root.post("/leaks", &json!({ "key": of_all.secret })).json();
        assert_eq!((answer["found_token"]["status"].as_str(), of_all.get("/orgs").status), (Some("revoked"), 401));
    }
}
