//! Lists of the API: their one shape, `limit`, cursors and refused parameters.

use std::collections::BTreeSet;

use serde_json::Value;

use super::fixture::{SessionUser, Setup};

/// Reads all pages of a list; returns the ids of the entries in their order.
fn walk(user: &SessionUser<'_>, path: &str, limit: usize) -> Vec<String> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let response = user.get(&format!("{path}?limit={limit}{cursor}"));
        assert_eq!(response.status, 200, "{}", response.code());
        let page = response.json();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= limit.min(100));
        found.extend(items.iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        match page.get("nextCursor") {
            Some(next) => cursor = format!("&cursor={}", next.as_str().unwrap()),
            None => return found,
        }
    }
}

fn cursor(page: &Value) -> String {
    page["nextCursor"].as_str().unwrap().to_owned()
}

#[test]
fn every_list_is_paged() {
    let setup = Setup::with_limit("{ requests: 1000000, per: 1m }");
    let ada = setup.admin();
    let keys: Vec<String> = (0..23).map(|number| ada.key(&format!("key {number}")).1).collect();
    let mut users = vec![ada.user.to_string()];
    for number in 0..21 {
        users.push(setup.user(&format!("user{number}@example.com"), &[]).user.to_string());
    }
    for limit in [1, 7, 20, 100, 1000] {
        assert_eq!(walk(&ada, "/keys", limit), keys);
        assert_eq!(walk(&ada, "/users", limit), users);
        // A session of each user.
        let sessions = walk(&ada, "/sessions", limit);
        assert_eq!(sessions.iter().collect::<BTreeSet<_>>().len(), 22);
        assert_eq!(sessions.len(), 22);
    }
    for path in ["/keys", "/users", "/sessions"] {
        let page = ada.get(path).json();
        assert_eq!(page["items"].as_array().unwrap().len(), 20, "{path}: the default");
        assert_eq!(ada.get(&format!("{path}?limit=100")).json().get("nextCursor"), None, "{path}: the last page");
    }
}

#[test]
fn limits_and_parameters_follow_the_contract() {
    let setup = Setup::new();
    let ada = setup.admin();
    let (_, key) = ada.key("laptop");
    for path in ["/keys", "/users", "/sessions", &format!("/keys/{key}/requests")] {
        for limit in ["0", "-1", "1.5", "x", "", "%2B1"] {
            let refused = ada.get(&format!("{path}?limit={limit}"));
            assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_limit"), "{path} {limit}");
        }
        for limit in ["1", "100", "101", "99999999999999999999"] {
            assert_eq!(ada.get(&format!("{path}?limit={limit}")).status, 200, "{path} {limit}");
        }
        for query in ["offset=1", "page=2", "before=1-2", "limit=1&limit=2"] {
            let refused = ada.get(&format!("{path}?{query}"));
            assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_parameter"), "{path} {query}");
        }
        for cursor in ["", "x", "1-2", &"A".repeat(90)] {
            let refused = ada.get(&format!("{path}?cursor={cursor}"));
            assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_cursor"), "{path} {cursor}");
        }
    }
}

#[test]
fn cursors_are_bound_to_their_query() {
    let setup = Setup::new();
    let (ada, bob) = (setup.admin(), setup.member());
    let of_ada: Vec<String> = (0..3).map(|_| ada.key("of Ada").1).collect();
    let of_bob: Vec<String> = (0..3).map(|_| bob.key("of Bob").1).collect();
    let keys = cursor(&ada.get("/keys?limit=1").json());
    let own_keys = cursor(&bob.get("/keys?limit=1").json());
    let users = cursor(&ada.get("/users?limit=1").json());
    let refused = |user: &SessionUser<'_>, path: &str, cursor: &str| {
        let response = user.get(&format!("{path}cursor={cursor}"));
        assert_eq!((response.status, response.code().as_str()), (400, "invalid_cursor"), "{path}");
    };
    refused(&ada, "/keys?", &users);
    refused(&ada, "/users?", &keys);
    refused(&ada, "/sessions?", &keys);
    // The list of all keys, and that of a member's own.
    refused(&bob, "/keys?", &keys);
    refused(&ada, "/keys?", &own_keys);
    refused(&ada, &format!("/keys/{}/requests?", of_ada[0]), &keys);
    // Another organization.
    let other = setup.other_org("globex");
    let eve = setup.user_of(other, "eve@example.com", &["org:admin"]);
    eve.key("of Eve");
    eve.key("of Eve");
    refused(&eve, "/keys?", &keys);
    refused(&ada, "/keys?", &cursor(&eve.get("/keys?limit=1").json()));
    // With another limit, and by another administrator, it is the same query.
    let carol = setup.user("carol@example.com", &["org:admin"]);
    let rest = carol.get(&format!("/keys?limit=100&cursor={keys}")).json();
    assert_eq!(rest["items"].as_array().unwrap().len(), of_ada.len() + of_bob.len() - 1);
}

#[test]
fn cursors_of_uses_are_bound_to_key_and_filters() {
    let setup = Setup::new();
    let bob = setup.member();
    let ((key, id), (other_key, other)) = (bob.key("laptop"), bob.key("other"));
    let mut client = crate::support::Client::connect(setup.address());
    for key in [&key, &other_key].repeat(3) {
        assert_eq!(client.get("/x", key).status, 200);
    }
    drop(setup.gateway.records());
    let page = bob.get(&format!("/keys/{id}/requests?limit=2&outcome=completed")).json();
    let next = cursor(&page);
    for query in [
        format!("/keys/{id}/requests?"),
        format!("/keys/{id}/requests?outcome=revoked&"),
        format!("/keys/{id}/requests?outcome=completed&refused=false&"),
        format!("/keys/{other}/requests?outcome=completed&"),
    ] {
        let response = bob.get(&format!("{query}cursor={next}"));
        assert_eq!((response.status, response.code().as_str()), (400, "invalid_cursor"), "{query}");
    }
    let rest = bob.get(&format!("/keys/{id}/requests?outcome=completed&limit=100&cursor={next}")).json();
    assert_eq!((rest["items"].as_array().unwrap().len(), rest.get("nextCursor")), (1, None));
}

#[test]
fn pages_of_the_dashboard_follow_their_links() {
    let setup = Setup::new();
    let ada = setup.admin();
    let ids: BTreeSet<String> = (0..60).map(|number| ada.key(&format!("key {number}")).1).collect();
    for query in ["", "?q=key", "?state=active"] {
        let (mut found, mut path) = (Vec::new(), format!("/settings/keys{query}"));
        for expected in [25, 25, 10] {
            let page = ada.page(&path);
            let rows: Vec<String> = ids.iter().filter(|id| page.contains(&format!("/keys/{id}\""))).cloned().collect();
            assert_eq!(rows.len(), expected, "{path}");
            found.extend(rows);
            let next = page.split("rel=\"next\" href=\"").nth(1).map(|rest| rest.split('"').next().unwrap());
            assert_eq!(next.is_some(), expected == 25, "the last page has no next one");
            path = next.unwrap_or_default().replace("&#38;", "&");
        }
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), ids, "{query}");
    }
    assert!(ada.page("/settings/keys?q=nothing").contains("No key matches"));
    let others: Vec<_> = (0..60).map(|number| setup.user(&format!("user{number}@example.com"), &[])).collect();
    let first = ada.page("/settings/sessions");
    let next = first.split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap();
    let second = ada.page(next);
    let count = |page: &str| page.matches("/end\"").count();
    assert_eq!(count(&first) + count(&second), others.len() + 1);
    assert!(first.contains("This session") && !second.contains("This session"));
}
