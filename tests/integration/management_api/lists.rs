//! Lists, as each caller reads them: pages of any size, `limit`, cursors and refused parameters.

use std::collections::BTreeSet;

use serde_json::json;

use super::caller::{Caller, sign_in};
use super::federation_rules::{rule, rules_of};
use super::fixture::Setup;
use crate::support::{Client, Response};

/// Parameters that every list refuses, each with its code.
const REFUSED: [(&str, &[&str], &str); 3] = [
    ("limit=", &["0", "-1", "1.5", "x", "", "%2B1"], "invalid_limit"),
    ("", &["offset=1", "page=2", "before=1-2", "limit=1&limit=2"], "invalid_parameter"),
    (
        "cursor=",
        &["", "x", "1-2", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"],
        "invalid_cursor",
    ),
];

/// Reads all pages of a list; returns the ids of its entries, or their names, in their order.
fn walk(caller: &mut Caller, path: &str, limit: usize) -> Vec<String> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let separator = if path.contains('?') { '&' } else { '?' };
        let response = caller.get(&format!("{path}{separator}limit={limit}{cursor}"));
        assert_eq!(response.status, 200, "{path}: {response:?}");
        let page = response.json();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= limit.min(100), "{path}");
        found.extend(items.iter().map(|item| item.get("id").unwrap_or(&item["name"]).as_str().unwrap().to_owned()));
        match page.get("nextCursor") {
            Some(next) => cursor = format!("&cursor={}", next.as_str().unwrap()),
            None => return found,
        }
    }
}

/// Asserts that a list is read in pages of any size, and refuses other parameters. Returns its entries.
fn assert_paged(caller: &mut Caller, path: &str) -> Vec<String> {
    let whole = walk(caller, path, 1000);
    assert_eq!(whole.iter().collect::<BTreeSet<_>>().len(), whole.len(), "{path}: {whole:?}");
    for limit in [1, 7, 20] {
        assert_eq!(walk(caller, path, limit), whole, "{} {path} {limit}", caller.kind);
    }
    assert_eq!(caller.get(path).json()["items"].as_array().unwrap().len(), whole.len().min(20), "{path}: the default");
    for limit in ["100", "101", "99999999999999999999"] {
        assert_eq!(caller.get(&format!("{path}?limit={limit}")).status, 200, "{path} {limit}");
    }
    for (parameter, values, code) in REFUSED {
        for value in values {
            let refused = caller.get(&format!("{path}?{parameter}{value}"));
            assert_eq!((refused.status, &*refused.code()), (400, code), "{} {path} {parameter}{value}", caller.kind);
        }
    }
    whole
}

#[test]
fn lists_are_read_a_page_at_a_time_by_each_caller() {
    let setup = Setup::embedded();
    let rules = rules_of(&setup, "acme");
    let (org, root) = (rules.split('/').nth(2).unwrap(), setup.root());
    let callers = Caller::all(&setup, org);
    let [keys, users] = ["keys", "users"].map(|list| format!("/orgs/{org}/{list}"));
    let id = |answer: Response| answer.json()["id"].as_str().unwrap().to_owned();
    let mut of_users =
        ["ada@acme.example", "ci", "grace@acme.example"].map(|user| id(root.get(&format!("{users}/{user}")))).to_vec();
    let grace = of_users[2].parse().unwrap();
    let mut of_keys = Vec::new();
    for number in 0..23 {
        of_users.push(id(root.post(&users, &json!({ "email": format!("u{number}@acme.example") }))));
        of_keys.push(id(root.post(&keys, &json!({ "name": format!("k{number}"), "user": "ada@acme.example" }))));
    }
    for name in ["a", "b", "c"] {
        assert_eq!(root.post(&rules, &rule(name)).status, 201);
        root.post("/orgs", &json!({ "name": format!("other {name}") }));
        root.post("/tokens", &json!({ "name": name, "org": org, "allow": ["keys:read"] }));
        sign_in(&setup, org.parse().unwrap(), grace);
    }
    for mut caller in callers {
        let kind = caller.kind;
        assert_eq!(assert_paged(&mut caller, &keys), of_keys, "{kind}");
        assert_eq!(assert_paged(&mut caller, &users), of_users, "{kind}");
        assert_eq!(assert_paged(&mut caller, &format!("/keys/{}/requests", of_keys[0])), [""; 0], "{kind}");
        assert!(assert_paged(&mut caller, "/tokens").len() >= 3, "{kind}");
        if kind != "user" {
            assert_eq!(assert_paged(&mut caller, &rules), ["a", "b", "c"], "{kind}");
            assert_eq!(assert_paged(&mut caller, "/orgs").len(), 4, "{kind}");
        }
        if kind != "program" {
            assert_eq!(assert_paged(&mut caller, "/sessions").len(), 4, "{kind}");
        }
    }
}

#[test]
fn keys_are_sorted_over_all_pages_for_each_caller() {
    for setup in Setup::both() {
        let (org, root) = (setup.org("acme"), setup.root());
        let keys = format!("/orgs/{org}/keys");
        // Names that differ by case, one twice, and one with the hyphen of cursors.
        let names = ["delta", "Alpha", "charlie-2", "alpha", "BRAVO", "charlie-10", "Überwachung – größer"];
        let mut made = Vec::new();
        for (number, name) in names.iter().chain(&["alpha"]).enumerate() {
            let expires = [None, Some("2098-01-01T00:00:00Z"), Some("2097-01-01T00:00:00Z")][number % 3];
            let body = json!({ "name": name, "user": "ada@acme.example", "policy": { "expires": expires } });
            let key = root.post(&keys, &body).json();
            made.push((key["id"].as_str().unwrap().to_owned(), key["key"].as_str().unwrap().to_owned()));
        }
        for used in [5, 2, 7] {
            assert_eq!(Client::connect(setup.gateway.address).get("/x", &made[used].1).status, 200);
        }
        let ids = |order: &[usize]| order.iter().map(|at| made[*at].0.clone()).collect::<Vec<_>>();
        let orders = [
            ("created", [0, 1, 2, 3, 4, 5, 6, 7]),
            ("name", [1, 3, 7, 4, 5, 2, 0, 6]),
            ("last_used", [0, 1, 3, 4, 6, 5, 2, 7]),
            ("expires", [2, 5, 1, 4, 7, 0, 3, 6]),
        ];
        for caller in &mut Caller::all(&setup, &org) {
            for (name, ascending) in &orders {
                let mut expected = ids(ascending);
                for sort in [format!("sort={name}"), format!("sort=-{name}")] {
                    for limit in [1, 3, 100] {
                        assert_eq!(walk(caller, &format!("{keys}?{sort}"), limit), expected, "{} {sort}", caller.kind);
                    }
                    let file = String::from_utf8(caller.get(&format!("{keys}.csv?{sort}")).body).unwrap();
                    let rows: Vec<_> = file.lines().skip(1).map(|row| row[..9].to_owned()).collect();
                    assert_eq!(rows, expected, "{} {sort}", caller.kind);
                    expected.reverse();
                }
            }
            assert_eq!(walk(caller, &format!("{keys}?sort=-name&search=alpha"), 2), ids(&[7, 3, 1]), "{}", caller.kind);
            for wrong in ["sort=", "sort=id", "sort=--name", "sort=name&newest_first=true"] {
                let refused = caller.get(&format!("{keys}?{wrong}"));
                assert_eq!((refused.status, &*refused.code()), (400, "invalid_parameter"), "{wrong}");
            }
            let cursor = caller.get(&format!("{keys}?sort=name&limit=1")).json()["nextCursor"].clone();
            let other = caller.get(&format!("{keys}?sort=-name&limit=1&cursor={}", cursor.as_str().unwrap()));
            assert_eq!(other.code(), "invalid_cursor", "a cursor is one of an order");
        }
    }
}
