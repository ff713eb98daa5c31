//! Reports of leaked keys by other scanners, on both states.

use domain::management_token::TokenScope;
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
