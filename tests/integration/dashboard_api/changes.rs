//! The changes of an organization, as its administrators and members see them.

use serde_json::{Value, json};

use super::fixture::{AGENT, SessionUser, Setup};
use crate::support::{Client, eventually};

/// Action, user who made it, user who is acted on, and address, of all changes that a user sees.
fn listed(user: &SessionUser<'_>) -> Vec<[Value; 4]> {
    let (mut changes, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = user.get(&format!("/changes?limit=3{cursor}")).json();
        let items = page["items"].as_array().unwrap().iter();
        changes.extend(items.map(|change| {
            [&change["action"], &change["by"]["email"], &change["subject"]["email"], &change["ip"]].map(Clone::clone)
        }));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return changes,
        }
    }
}

#[test]
fn admins_see_changes_of_their_organization_and_members_those_of_their_own() {
    let setup = Setup::new();
    let (ada, bob) = (setup.admin(), setup.member());
    let (_, id) = bob.key("laptop");
    ada.send("POST", &format!("/keys/{id}/rotate"), None);
    setup.gateway.revoke_key(id.parse().unwrap());
    let other = setup.other_org("other");
    setup.user_of(other, "eve@example.com", &["org:admin"]);
    setup.changes();

    let ip = json!("127.0.0.1");
    let [ada_email, bob_email] = ["ada@example.com", "bob@example.com"].map(|email| json!(email));
    let change = |action: &str, by: &Value, subject: &Value, ip: &Value| {
        [json!(action), by.clone(), subject.clone(), ip.clone()]
    };
    // Newest first. The address of the administrator is not the member's business.
    let of_bob = |shown_ip: &Value| {
        vec![
            change("key.revoke", &Value::Null, &bob_email, &Value::Null),
            change("key.rotate", &ada_email, &bob_email, shown_ip),
            change("key.create", &bob_email, &bob_email, &ip),
            change("session.start", &bob_email, &bob_email, &ip),
            change("session.link", &Value::Null, &bob_email, &Value::Null),
            change("user.create", &Value::Null, &bob_email, &Value::Null),
        ]
    };
    assert_eq!(listed(&bob), of_bob(&Value::Null));
    let mut all = of_bob(&ip);
    all.extend([
        change("session.start", &ada_email, &ada_email, &ip),
        change("session.link", &Value::Null, &ada_email, &Value::Null),
        change("user.create", &Value::Null, &ada_email, &Value::Null),
        change("org.create", &Value::Null, &Value::Null, &Value::Null),
    ]);
    assert_eq!(listed(&ada), all);
    let first = ada.get("/changes?limit=1").json()["items"][0].clone();
    assert_eq!((&first["key_id"], &first["by"], &first["outcome"]), (&json!(id), &Value::Null, &json!("completed")));
    assert!(!first.to_string().contains("unix:"), "the organization is not told who the operator is: {first}");
    let rotated = ada.get("/changes?limit=2").json()["items"][1].clone();
    assert_eq!((&rotated["by"]["id"], &rotated["user_agent"]), (&json!(ada.user.to_string()), &json!(AGENT)));

    // A cursor is bound to what its user may see.
    let next = ada.get("/changes?limit=1").json()["nextCursor"].as_str().unwrap().to_owned();
    assert_eq!(bob.get(&format!("/changes?cursor={next}")).status, 400);

    let page = bob.page("/settings/audit");
    for text in ["Revoked a key", "The operator", "Rotated a key", "<wbr>@example.com", &id] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let created = "class=\"action\">Created the organization";
    assert!(!page.contains("unix:") && !page.contains(created), "{page}");
    assert!(ada.page("/settings/audit").contains(created));
}

#[test]
fn administrator_finds_a_request_by_its_id() {
    let setup = Setup::new();
    let (ada, bob) = (setup.admin(), setup.member());
    let (secret, key) = bob.key("loop");
    assert_eq!(bob.post(&format!("/keys/{key}/revoke"), json!({})).status, 200);
    let mut client = Client::connect(setup.address());
    let ids: Vec<String> =
        (0..40).map(|_| client.get("/", &secret).json()["request_id"].as_str().unwrap().to_owned()).collect();
    let path = |id: &str| format!("/settings/audit?id={id}");
    eventually("the record is written", || ada.page(&path(&ids[39])).contains("were folded, from"));
    for id in [&ids[0], &ids[39]] {
        let page = ada.page(&path(id));
        for text in ["Requests found", &format!("/settings/keys/{key}"), "Key revoked", id] {
            assert!(page.contains(text), "{id}, {text}: {page}");
        }
        let page = bob.page(&path(id));
        assert!(!page.contains("Requests found") && !page.contains("Find request"), "members search on a key's page");
    }
    assert!(ada.page(&path("%3Cb%3E")).contains("This is not the ID of a request."));
    let stranger = setup.other_org("globex");
    let page = setup.user_of(stranger, "eve@globex.example", &["org:admin"]).page(&path(&ids[39]));
    assert!(!page.contains(&key), "another organization: {page}");
}

#[test]
fn page_filters_changes_and_links_to_all_that_match() {
    let setup = Setup::new();
    let (ada, bob) = (setup.admin(), setup.member());
    let (_, id) = bob.key("laptop");
    ada.send("POST", &format!("/keys/{id}/revoke"), None);
    let shown = |query: &str| {
        let page = ada.page(&format!("/settings/audit?{query}"));
        let rows = page.split("<tbody").last().unwrap();
        ["Created a key", "Revoked a key", "Created the organization"].map(|action| rows.contains(action))
    };
    assert_eq!(shown(""), [true, true, true]);
    assert_eq!(shown("action=key.create"), [true, false, false]);
    assert_eq!(shown(&format!("key={id}")), [true, true, false]);
    assert_eq!(shown("by=bob%40example.com&action=&key=&from=&to="), [true, false, false]);
    assert_eq!(shown("from=2020-01-01&to=2099-01-01&by=ada%40example.com")[1..], [true, false]);
    let page = ada.page("/settings/audit?action=key.create&to=2020-01-01");
    assert!(page.contains("No change matches.") && page.contains("value=\"2020-01-01\""), "{page}");
    let link = "/changes.csv?action=key.create&#38;until=2020-01-02T00%3A00%3A00.000000Z";
    assert!(page.contains(link), "{page}");
    for (wrong, error) in [
        ("key=x", "A key ID is the nine characters"),
        ("from=soon", "Enter days as YYYY-MM-DD."),
        ("action=key.make", "Choose one of these changes."),
        ("by=eve%40example.com", "This organization has no user with this address or ID."),
    ] {
        let fields = [("Cookie", ada.cookie.as_str())];
        let path = format!("/settings/audit?{wrong}");
        let answer = Client::connect(setup.address()).request("GET", &path, "", &fields, b"");
        let page = String::from_utf8(answer.body).unwrap();
        assert!(answer.status == 422 && page.contains(error), "{wrong}: {} {page}", answer.status);
    }
}
