//! Merge patches (RFC 7396): their media type, what is absent, what is `null`, and members that are there twice.

use serde_json::{Value, json};

use super::fixture::{Program, Setup};

const MERGE_PATCH: (&str, &str) = ("Content-Type", "application/merge-patch+json");
const TYPES: &str = "application/merge-patch+json, application/json";

/// A key of a new organization, as a path.
fn key(setup: &Setup, root: &Program) -> (String, String) {
    let org = setup.org("acme");
    let created = root.post(&format!("/orgs/{org}/keys"), &json!({ "name": "k", "user": "ada@acme.example" })).json();
    (format!("/orgs/{org}"), format!("/keys/{}", created["id"].as_str().unwrap()))
}

#[test]
fn media_type_of_merge_patches_is_accepted_and_named() {
    let setup = Setup::embedded();
    let root = setup.root();
    let (org, key) = key(&setup, &root);
    let patches = [
        (&org, r#"{"concurrent":5}"#),
        (&format!("{org}/users/ada@acme.example"), r#"{"suspended":false}"#),
        (&key, r#"{"policy":{"concurrent":5}}"#),
    ];
    for (path, patch) in patches {
        for accepted in
            ["application/merge-patch+json", "Application/Merge-Patch+JSON; charset=utf-8", "application/json"]
        {
            let patched = root.call("PATCH", path, &[("Content-Type", accepted)], patch.as_bytes());
            assert_eq!((patched.status, patched.header("accept-patch")), (200, None), "{path} {accepted}: {patched:?}");
        }
        for other in ["application/json-patch+json", "text/plain", "application/merge-patch+json; charset=latin1"] {
            let refused = root.call("PATCH", path, &[("Content-Type", other)], patch.as_bytes());
            assert_eq!((refused.status, refused.header("accept-patch")), (415, Some(TYPES)), "{path} {other}");
        }
        for method in ["OPTIONS", "PUT"] {
            let refused = root.call(method, path, &[], b"");
            assert_eq!((refused.status, refused.header("accept-patch")), (405, Some(TYPES)), "{method} {path}");
        }
    }
    // Other methods have no patches.
    let post = root.call("POST", "/orgs", &[MERGE_PATCH], br#"{"name":"x"}"#);
    assert_eq!((post.status, post.header("accept-patch")), (415, None));
    assert_eq!(root.call("PUT", "/orgs", &[], b"").header("accept-patch"), None);
}

#[test]
fn absent_limits_stay_and_null_is_the_configured_value() {
    for setup in Setup::both() {
        let root = setup.root();
        let (_, key) = key(&setup, &root);
        let configured = root.get(&key).json()["limits"].clone();
        let patch = |limits: Value| {
            let patched = root.patch(&key, &json!({ "limits": limits })).json()["limits"].clone();
            (patched["requests"].clone(), patched["per"].clone(), patched["burst"].clone())
        };
        let limits = |requests: u64, per: &str, burst: u64| (json!(requests), json!(per), json!(burst));
        assert_eq!(patch(json!({ "requests": 100, "per": "1m", "burst": 5 })), limits(100, "1m", 5));
        assert_eq!(patch(json!({ "requests": 200 })), limits(200, "1m", 5), "the burst was not to grow");
        assert_eq!(patch(json!({ "per": "1h" })), limits(200, "1h", 5));
        assert_eq!(patch(json!({ "burst": null })), limits(200, "1h", 200));
        assert_eq!(patch(json!({ "burst": 7 })), limits(200, "1h", 7));
        assert_eq!(patch(json!({ "per": null })), (json!(200), configured["per"].clone(), json!(7)));
        let of_file = (configured["requests"].clone(), configured["per"].clone(), configured["burst"].clone());
        assert_eq!(patch(json!({ "requests": null, "burst": null })), of_file);
        assert_eq!(patch(Value::Null), of_file);
        assert_eq!(root.get(&key).json()["limits"]["own"], false);
    }
}

#[test]
fn members_that_are_there_twice_are_refused_wherever_they_are() {
    let setup = Setup::embedded();
    let root = setup.root();
    let (org, key) = key(&setup, &root);
    let of_org = root.get(&org).json();
    let of_key = root.get(&key).json();
    for (path, patch) in [
        (&key, r#"{"policy":{"concurrent":1,"concurrent":2}}"#),
        (&key, r#"{"policy":{"networks":["10.0.0.0/8"],"networks":null}}"#),
        (&key, r#"{"policy":{"tags":{"a":"1","a":null}}}"#),
        (&key, r#"{"policy":{"concurrent":1},"policy":{}}"#),
        (&key, r#"{"limits":{"requests":1,"requests":2}}"#),
        (&key, r#"{"limits":{"burst":1,"b\u0075rst":2}}"#),
        (&org, r#"{"policy":{"max_expiry":"1d","max_expiry":null}}"#),
        (&org, r#"{"concurrent":1,"concurrent":2}"#),
    ] {
        let refused = root.call("PATCH", path, &[MERGE_PATCH], patch.as_bytes());
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_body"), "{patch}: {refused:?}");
        assert!(refused.json()["detail"].as_str().unwrap().contains("uplicate field"), "{patch}");
    }
    assert_eq!((root.get(&org).json(), root.get(&key).json()), (of_org, of_key));
}
