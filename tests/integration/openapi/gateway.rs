//! `docs/openapi-gateway.yaml`: what keygate adds to the answers of an API, as a team has it in its own document.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use control::management::{self, LimitUpdate};
use domain::refusal::Refusal;
use platform::settings::{Kind, Node, read_documents};
use serde_json::{Map, Value, json};

use super::Document;
use crate::support::gateway::OPERATOR;
use crate::support::updates::limit;
use crate::support::{Client, Gateway, Response, Upstream, free_address};

const RESPONSES: [(&str, &str); 5] = [
    ("401", "Unauthorized"),
    ("403", "Forbidden"),
    ("404", "NotFound"),
    ("429", "TooManyRequests"),
    ("503", "ServiceUnavailable"),
];

/// The components of the file.
fn components() -> Value {
    let mut document = None;
    read_documents(&fs::read_to_string("docs/openapi-gateway.yaml").unwrap(), |node| document = Some(json_of(&node)))
        .unwrap();
    document.unwrap()["components"].clone()
}

fn json_of(node: &Node) -> Value {
    match &node.kind {
        Kind::Empty => Value::Null,
        Kind::Scalar(text) => match text.expose() {
            "true" => json!(true),
            text => text.parse().map_or_else(|_| json!(text), |number: u64| json!(number)),
        },
        Kind::Sequence(items) => items.iter().map(json_of).collect(),
        Kind::Mapping(entries) => {
            let entries = entries.iter().map(|entry| (entry.key.clone(), json_of(&entry.value)));
            Value::Object(entries.collect::<Map<_, _>>())
        }
    }
}

#[test]
fn refusals_are_as_the_components_for_documents_of_apis_say() {
    let responses: Map<String, Value> = RESPONSES
        .map(|(status, name)| (status.to_owned(), json!({ "$ref": format!("#/components/responses/{name}") })))
        .into_iter()
        .collect();
    let paths = json!({ "/{path}": { "get": { "responses": responses } } });
    let text = json!({ "paths": paths, "components": components() }).to_string();
    let document = Document::new(text.as_bytes());
    let mut seen = BTreeSet::new();
    let mut check = |response: Response| {
        document.validate("GET", "/x", &response);
        seen.insert((response.status, response.code()));
    };
    const ROUTES: &str = "
routes:
  - { name: reads, path: /reads }
  - { name: writes, path: /writes, permission: 'queries:write' }
  - { name: costly, path: /costly, cost: 50 }
limits: { key: { requests: 100, per: 1h }, bad_keys: { requests: 2, per: 1h, burst: 2 } }
";
    let upstream = Upstream::start();
    let gateway = Gateway::with(&[upstream.address], ROUTES);
    let key = gateway.key_with(&[]);
    let few = LimitUpdate { requests: Some(3), per: None, burst: Some(3) };
    gateway.perform(async |to, now| management::update_key(to, OPERATOR, key.id, limit(Some(few)), now).await);
    let key = key.text;
    let get = |path: &str, key: &str| Client::connect(gateway.address).get(path, key);
    for path in ["/writes", "/nothing", "/reads%2F..", "/costly"] {
        check(get(path, &key));
    }
    let limited = (0..10).map(|_| get("/reads", &key)).find(|response| response.status != 200).unwrap();
    check(limited);
    check(get("/reads", ""));
    (0..4).for_each(|_| check(get("/reads", "sk_live_of_nobody")));
    let gateway = Gateway::with(&[free_address()], "");
    check(Client::connect(gateway.address).get("/reads", &gateway.key().text));
    let expected = [
        (401, "invalid_token"),
        (401, "unauthenticated"),
        (403, "cost_over_limit"),
        (403, "insufficient_scope"),
        (404, "ambiguous_path"),
        (404, "not_found"),
        (429, "rate_limited"),
        (429, "too_many_attempts"),
        (503, "upstream_unavailable"),
    ];
    assert_eq!(seen, expected.map(|(status, code)| (status, code.to_owned())).into());
}

#[test]
fn components_have_the_codes_of_all_refusals() {
    let mut of_table = BTreeMap::<String, BTreeSet<&str>>::new();
    for row in Refusal::ALL.iter().map(|refusal| refusal.row()) {
        for answer in [Some(&row.answer), row.session_answer.as_ref()].into_iter().flatten() {
            of_table.entry(answer.status.as_str().to_owned()).or_default().insert(answer.code);
        }
    }
    let components = components();
    for (status, name) in RESPONSES {
        let schema = &components["responses"][name]["content"]["application/problem+json"]["schema"]["allOf"][1];
        let codes = schema["properties"]["code"]["enum"].as_array().unwrap();
        let codes: BTreeSet<&str> = codes.iter().map(|code| code.as_str().unwrap()).collect();
        assert_eq!(
            (&schema["properties"]["status"]["const"], &codes),
            (&json!(status.parse::<u16>().unwrap()), &of_table[status])
        );
    }
}
