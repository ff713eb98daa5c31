//! The API tested by schemathesis, and the examples of its document.

use std::collections::BTreeMap;

use serde_json::json;

use super::fixture::Setup;
use crate::openapi::{CHECKS, Schemathesis};

const AUTH: &str = "[auth.openapi.token]\nbearer = \"${CREDENTIAL}\"\n";

#[test]
fn api_conforms_to_its_document() {
    // With the default limits, most calls would be refused.
    let limits = "limits: { management: { requests: 1000000, per: 1m }, sign_ins: { requests: 1000000, per: 1m } }\n";
    let setup = Setup::with(limits);
    let (org, root) = (setup.org("acme"), setup.root());
    let body = json!({ "name": "laptop", "user": "ada@acme.example" });
    let key = root.post(&format!("/orgs/{org}/keys"), &body).json()["id"].as_str().unwrap().to_owned();
    let run = |more: &str, options: &[&str]| {
        let api = Schemathesis {
            document: format!("http://{}/v1/openapi.json", root.address),
            url: format!("http://{}/v1", root.address),
            credential: &root.secret,
            config: &format!("{AUTH}{CHECKS}{more}"),
        };
        api.run(options);
    };
    run("", &["--exclude-operation-id", "revokeToken"]);
    // Apart from the others: schemathesis would find its own token in a list, and revoke it.
    let without_links = ["--phases", "examples,coverage,fuzzing"];
    run("", &[&["--include-operation-id", "revokeToken"][..], &without_links].concat());
    // On records that there are, and that stay.
    let records = format!(
        "[parameters]\n\"path.org\" = \"{org}\"\n\"path.key\" = \"{key}\"\n\"path.user\" = \"ada@acme.example\"\n"
    );
    let ends = ["revokeToken", "removeUser", "revokeKey"].map(|name| ["--exclude-operation-id", name]).concat();
    run(&records, &[&ends[..], &without_links].concat());
    assert_eq!(root.get(&format!("/keys/{key}")).status, 200, "the token is still valid");
    let orgs = root.get("/orgs").json()["items"].as_array().unwrap().len();
    let keys = root.get(&format!("/orgs/{org}/keys")).json()["items"].as_array().unwrap().len();
    assert!(orgs > 1 && keys > 1, "schemathesis created {orgs} organizations and {keys} keys");
}

#[test]
fn examples_of_the_document_are_valid() {
    assert_eq!(Setup::embedded().document.wrong_examples(), BTreeMap::new());
}
