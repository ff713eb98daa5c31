//! Lists of the API and of the pages: what a cursor is bound to, and the links of the pages.

use std::collections::BTreeSet;

use serde_json::Value;

use super::fixture::{SessionUser, Setup};

fn cursor(page: &Value) -> String {
    page["nextCursor"].as_str().unwrap().to_owned()
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
    assert_eq!(client.get("/y/z", &key).status, 200);
    drop(setup.gateway.records());
    for (action, count) in [("GET%20/y/z", 1), ("GET%20/x", 3), ("GET%20/", 0), (&"a".repeat(128), 0)] {
        let found = bob.get(&format!("/keys/{id}/requests?action={action}")).json();
        assert_eq!(found["items"].as_array().unwrap().len(), count, "{action}");
    }
    for wrong in [String::new(), "a".repeat(129)] {
        let refused = bob.get(&format!("/keys/{id}/requests?action={wrong}"));
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_parameter"), "{wrong:?}");
    }
    let page = bob.page(&format!("/settings/keys/{id}"));
    let href = page.split("href=\"").filter_map(|rest| rest.split('"').next()).find(|href| href.contains("action="));
    let href = href.and_then(|href| href.split('#').next()).expect("the routes of a key link to their requests");
    let filtered = bob.page(&href.replace("&#38;", "&"));
    let rows = filtered.split("id=\"requests\"").nth(1).unwrap();
    assert_eq!((rows.matches("GET /x</span>").count(), rows.matches("GET /y/z</span>").count()), (3, 0));
    let page = bob.get(&format!("/keys/{id}/requests?limit=2&outcome=completed")).json();
    let next = cursor(&page);
    for query in [
        format!("/keys/{id}/requests?"),
        format!("/keys/{id}/requests?outcome=revoked&"),
        format!("/keys/{id}/requests?outcome=completed&refused=false&"),
        format!("/keys/{id}/requests?outcome=completed&action=GET%20/x&"),
        format!("/keys/{other}/requests?outcome=completed&"),
    ] {
        let response = bob.get(&format!("{query}cursor={next}"));
        assert_eq!((response.status, response.code().as_str()), (400, "invalid_cursor"), "{query}");
    }
    let rest = bob.get(&format!("/keys/{id}/requests?outcome=completed&limit=100&cursor={next}")).json();
    assert_eq!((rest["items"].as_array().unwrap().len(), rest.get("nextCursor")), (2, None));
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
