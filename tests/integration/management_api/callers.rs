//! One suite of operations for all callers of the API, on both states.

use domain::clock;
use domain::key::KeyDigest;
use serde_json::{Value, json};

use super::caller::{Caller, Way, ask};
use super::fixture::{Program, Setup};
use crate::support::{Client, Response};

#[test]
fn key_lives_by_the_calls_of_each_caller() {
    for setup in Setup::both() {
        let org = setup.org("acme");
        let keys = format!("/orgs/{org}/keys");
        let status = |key: &str| Client::connect(setup.gateway.address).get("/x", key).status;
        for mut caller in Caller::all(&setup, &org) {
            let kind = caller.kind;
            let body = json!({ "name": kind, "user": "ada@acme.example" }).to_string();
            let once = [("Idempotency-Key", "one")];
            let created = caller.call("POST", &keys, &once, &body);
            assert_eq!(created.status, 201, "{kind}: {created:?}");
            let record = created.json();
            let (id, secret) = (record["id"].as_str().unwrap(), record["key"].as_str().unwrap());
            let path = format!("/keys/{id}");
            assert_eq!(created.header("location"), Some(&*format!("{}{path}", caller.base())), "{kind}");
            assert_eq!(domain::key::parse(secret.as_bytes()).unwrap().as_str(), id, "{kind}");
            assert_eq!((&record["created_by"]["kind"], &record["rotated_by"]), (&json!(kind), &Value::Null), "{kind}");
            let [name, email, status_shown] =
                ["name", "email", "status"].map(|member| record[member].as_str().unwrap());
            assert_eq!([name, email, status_shown], [kind, "ada@acme.example", "active"]);
            let again = caller.call("POST", &keys, &once, &body);
            assert_eq!((again.status, again.header("idempotent-replayed")), (201, Some("true")), "{kind}");
            assert_eq!((&again.json()["id"], &again.json()["key"]), (&json!(id), &Value::Null), "{kind}");
            assert_eq!(caller.call("POST", &keys, &once, "{}").code(), "idempotency_key_reused", "{kind}");

            let shown = caller.get(&path);
            let tag = shown.header("etag").unwrap().to_owned();
            assert_eq!(shown.json().get("key"), None, "{kind}: the secret is shown once");
            assert_eq!(caller.call("GET", &path, &[("If-None-Match", &tag)], "").status, 304, "{kind}");
            let patch = json!({ "policy": { "concurrent": 3 } }).to_string();
            let other = format!("\"{}\"", "A".repeat(22));
            assert_eq!(caller.call("PATCH", &path, &[("If-Match", &other)], &patch).code(), "changed_meanwhile");
            let patched = caller.call("PATCH", &path, &[("If-Match", &tag)], &patch);
            assert_eq!((patched.status, &patched.json()["policy"]), (200, &json!({ "concurrent": 3 })), "{kind}");
            assert_eq!(caller.call("PATCH", &path, &[("If-Match", &tag)], &patch).status, 412, "{kind}");
            let renamed = caller.send("PATCH", &path, &json!({ "name": format!("{kind} renamed") })).json();
            assert_eq!(
                (&renamed["name"], &renamed["policy"]),
                (&json!(format!("{kind} renamed")), &json!({ "concurrent": 3 }))
            );
            assert_eq!(caller.send("PATCH", &path, &json!({ "name": " " })).code(), "invalid_name", "{kind}");

            let activity = |caller: &mut Caller| {
                drop(setup.gateway.records());
                let report = caller.get(&format!("/orgs/{org}/activity?keys={id}")).json();
                let hours = report["keys"][id]["hours"].as_array().unwrap().clone();
                let requests = hours.iter().map(|hour| hour["requests"].as_u64().unwrap()).sum::<u64>();
                (hours.len(), requests, report["keys"][id]["last"].is_object())
            };
            assert_eq!(activity(&mut caller), (24, 0, false), "{kind}");
            assert_eq!(status(secret), 200, "{kind}");
            assert_eq!(activity(&mut caller), (24, 1, true), "{kind}");
            let rotated = caller.act(&format!("{path}/rotate")).json();
            assert_eq!(rotated["rotated_by"]["kind"], kind);
            let secret = [secret, rotated["key"].as_str().unwrap()];
            assert_eq!(secret.map(status), [401, 200], "{kind}");
            // A program repeats the request whose response was lost.
            let after = |last: &Value| json!({ "overlap_seconds": 3600, "expected_rotated": last });
            for stale in [json!(null), json!("2026-11-20T21:08:00.000000Z")] {
                let again = caller.send("POST", &format!("{path}/rotate"), &after(&stale));
                assert_eq!((again.status, &*again.code()), (409, "rotated_meanwhile"), "{kind}");
                let (detail, at) = (again.json()["detail"].to_string(), rotated["rotated"].as_str().unwrap());
                assert!(detail.contains(at) && detail.contains("nothing was changed"), "{kind}: {detail}");
                assert!(kind != "user" || detail.contains("by grace@acme.example at"), "{detail}");
            }
            assert_eq!(secret.map(status), [401, 200], "{kind}: nothing was changed");
            let kept = caller.send("POST", &format!("{path}/rotate"), &after(&rotated["rotated"])).json();
            let secret = [secret[1], kept["key"].as_str().unwrap()];
            assert_eq!(secret.map(status), [200, 200], "{kind}: the old secret is valid for the overlap");
            let disabled = caller.act(&format!("{path}/disable")).json();
            assert_eq!(disabled["status"], "disabled");
            assert_eq!(
                caller.act(&format!("{path}/disable")).json()["policy"],
                disabled["policy"],
                "the first one stands"
            );
            assert_eq!(secret.map(status), [401, 401], "{kind}");
            assert_eq!(caller.act(&format!("{path}/enable")).json()["status"], "active");
            assert_eq!(caller.get(&format!("{path}/explain")).json()["standing"]["in_flight"], 0, "{kind}");

            drop(setup.gateway.records());
            let uses = caller.get(&format!("{path}/requests?outcome=completed&limit=3")).json();
            assert_eq!(
                (uses["items"].as_array().unwrap().len(), &uses["items"][0]["path"]),
                (3, &json!("/x")),
                "{kind}"
            );
            let rest = format!("{path}/requests?outcome=completed&cursor={}", uses["nextCursor"].as_str().unwrap());
            assert_eq!(caller.get(&rest).json()["items"].as_array().unwrap().len(), 2, "{kind}: of five");
            let refused = caller.get(&format!("{path}/requests?refused=true")).json()["items"].clone();
            let is_refused = |item: &Value| item["status"] == 401;
            assert!(refused[0].is_object() && refused.as_array().unwrap().iter().all(is_refused), "{kind}: {refused}");
            let revoked = caller.act(&format!("{path}/revoke")).json();
            assert_eq!((&revoked["status"], &revoked["revoked_by"]["kind"]), (&json!("revoked"), &json!(kind)));
            assert_eq!(
                caller.act(&format!("{path}/revoke")).json()["revoked"],
                revoked["revoked"],
                "the first one stands"
            );
            assert_eq!(secret.map(status), [401, 401], "{kind}");
            for change in ["rotate", "disable", "enable"] {
                let late = caller.act(&format!("{path}/{change}"));
                assert_eq!((late.status, &*late.code()), (409, "key_revoked"), "{kind} {change}");
            }
            let listed = caller.get(&format!("{keys}?status=revoked&search={kind}")).json();
            assert_eq!(listed["items"][0]["id"], id, "{kind}");
            let changes = caller.get(&format!("/orgs/{org}/changes?limit=1")).json();
            assert_eq!(changes["items"][0]["key_id"], id, "{kind}: {changes}");
            for text in [listed, changes, uses].map(|answer| answer.to_string()) {
                assert!(!text.contains(&secret[1][18..]), "{kind} is shown a secret");
            }
            assert_eq!(caller.get(&format!("{keys}?state=revoked")).code(), "invalid_parameter", "{kind}");
            assert_eq!(["/keys/aaaaaaaaa", "/keys/a"].map(|path| caller.get(path).code()), ["no_such_key"; 2]);
        }
    }
}

#[test]
fn all_keys_are_one_csv_file_for_each_caller() {
    for setup in Setup::both() {
        let (org, root) = (setup.org("acme"), setup.root());
        let keys = format!("/orgs/{org}/keys");
        let policy = json!({ "permissions": ["queries:read"], "tags": { "team": "a;=b" } });
        let body = json!({ "name": "=HYPERLINK(\"//x\", 1)", "user": "ada@acme.example", "policy": policy });
        let made = root.post(&keys, &body).json();
        let text = |member: &str| made[member].as_str().unwrap();
        let more = (0..101).map(|number| setup.gateway.create_key(&org, "ada@acme.example", &format!("key {number}")));
        let ids: Vec<String> =
            std::iter::once(text("id").to_owned()).chain(more.map(|key| key.id.to_string())).collect();
        let (id, created) = (text("id"), text("created"));
        let first = format!(
            "{id},\"'=HYPERLINK(\"\"//x\"\", 1)\",ada@acme.example,active,{created},token:{},,,0,1000,1h,1000,\
             queries:read,,,team=a;'=b,,",
            made["created_by"]["token"].as_str().unwrap()
        );
        let mut callers = Caller::all(&setup, &org);
        for caller in &mut callers {
            let kind = caller.kind;
            let mut rows = |query: &str| {
                let file = caller.get(&format!("{keys}.csv{query}"));
                assert_eq!(file.status, 200, "{kind} {query}: {file:?}");
                let name = format!("attachment; filename=\"keys-{org}.csv\"");
                assert_eq!(file.header("content-disposition"), Some(&*name), "{kind}");
                let content = String::from_utf8(file.body).unwrap();
                assert!(content.ends_with("\r\n"), "{kind}: {content}");
                content.split_terminator("\r\n").map(str::to_owned).collect::<Vec<_>>()
            };
            let all = rows("");
            assert_eq!(all[1], first, "{kind}");
            assert_eq!(all[1..].iter().map(|row| &row[..9]).collect::<Vec<_>>(), ids, "{kind}: of two pages");
            let secrets = [text("key")[18..].to_owned(), KeyDigest::of(text("key").as_bytes()).to_hex()];
            assert!(!secrets.iter().any(|secret| all.concat().contains(secret)), "{kind} is shown a secret");
            assert_eq!(rows("?newest_first=true")[102], first, "{kind}");
            assert_eq!(rows(&format!("?search={id}&status=active"))[1..], [&*first], "{kind}");
            assert_eq!(rows("?status=revoked").len(), 1, "{kind}: the titles");
            assert_eq!(caller.get(&format!("{keys}.csv?limit=5")).code(), "invalid_parameter", "{kind}");
            assert_eq!(caller.get("/orgs/other/keys.csv").status, if kind == "user" { 403 } else { 404 }, "{kind}");
        }
        // A user who administers no more is shown the own keys: none.
        setup.gateway.permit_user_of(&org, "grace@acme.example", &[]);
        let own = callers[2].get(&format!("{keys}.csv"));
        assert_eq!((own.status, own.body.split(|byte| *byte == b'\n').count()), (200, 2), "{own:?}");
    }
}

#[test]
fn changes_are_filtered_and_saved_by_each_caller() {
    for setup in Setup::both() {
        let org = setup.org("acme");
        let begin = clock::now().to_string();
        let key = setup.gateway.create_key(&org, "ada@acme.example", "k");
        setup.gateway.disable(&key);
        (0..120).for_each(|_| drop(setup.gateway.rotate(&key, None)));
        let other = setup.gateway.create_key(&org, "ada@acme.example", "=other");
        let mut callers = Caller::all(&setup, &org);
        callers[2].act(&format!("/keys/{}/revoke", other.id));
        let list = format!("/orgs/{org}/changes");
        let grace_id = setup.root().get(&format!("/orgs/{org}/users/grace@acme.example")).json()["id"].clone();
        let grace_id = grace_id.as_str().unwrap().to_owned();
        drop(setup.gateway.changes("key.revoke"));
        for caller in &mut callers {
            let kind = caller.kind;
            let mut actions = |query: &str| {
                let items = caller.get(&format!("{list}?limit=100&{query}")).json()["items"].clone();
                let items = items.as_array().unwrap().iter().map(|item| item["action"].as_str().unwrap().to_owned());
                items.collect::<Vec<_>>()
            };
            assert_eq!(actions(&format!("key={}", other.id)), ["key.revoke", "key.create"], "{kind}");
            assert_eq!(actions("action=key.revoke"), ["key.revoke"], "{kind}");
            assert_eq!(actions("by=grace@acme.example&action=key.revoke"), ["key.revoke"], "{kind}");
            assert_eq!(actions(&format!("by={grace_id}&action=key.create")), Vec::<String>::new(), "{kind}");
            assert_eq!(actions("action=key.rotate").len(), 100, "{kind}: a page");
            assert_eq!(actions(&format!("since={begin}&action=org.create")), Vec::<String>::new(), "{kind}");
            assert_eq!(actions(&format!("until={begin}&action=org.create")), ["org.create"], "{kind}");
            assert_eq!(actions("outcome=client_error&action=key.disable"), Vec::<String>::new(), "{kind}");

            let rows = |answer: &Response| {
                let text = String::from_utf8(answer.body.clone()).unwrap();
                text.lines().map(str::to_owned).collect::<Vec<_>>()
            };
            let csv = caller.get(&format!("{list}.csv?key={}", key.id));
            let rows_of_key = rows(&csv);
            assert_eq!(rows_of_key.len(), 123, "{kind}: titles, a creation, a disabling, and rotations of two pages");
            assert!(rows_of_key[0].starts_with("time,action,by,user,key,") && rows_of_key[1].contains(",key.rotate,"));
            let lines = rows(&caller.get(&format!("{list}.ndjson?key={}&action=key.create", other.id)));
            let change: Value = serde_json::from_str(&lines[0]).unwrap();
            assert_eq!((lines.len(), &change["key_id"]), (1, &json!(other.id)), "{kind}");
            for wrong in ["action=key.make", "key=x", "since=yesterday", "limit=5"] {
                assert_eq!(caller.get(&format!("{list}.csv?{wrong}")).code(), "invalid_parameter", "{kind} {wrong}");
            }
            assert_eq!(caller.get(&format!("{list}?by=eve@acme.example")).code(), "no_such_user", "{kind}");
            // A cursor is of the list that it was given for.
            let next = caller.get(&format!("{list}?action=key.rotate&limit=1")).json()["nextCursor"].clone();
            let next = next.as_str().unwrap();
            assert_eq!(
                caller.get(&format!("{list}?action=key.create&cursor={next}")).code(),
                "invalid_cursor",
                "{kind}"
            );
        }
        let saved = setup.gateway.changes("audit.export");
        let paths: Vec<&str> = saved.iter().map(|record| record.path.as_str()).collect();
        let each = ["audit.export/ndjson/1", "audit.export/csv/122"];
        assert_eq!(paths, [each, each, each].concat(), "each is in the audit");
        // A user who administers no more has the own changes alone.
        setup.gateway.permit_user_of(&org, "grace@acme.example", &[]);
        let own = callers[2].get(&format!("{list}.csv?key={}", key.id));
        assert_eq!((own.status, own.body.split(|byte| *byte == b'\n').count()), (200, 2), "{own:?}");
    }
}

#[test]
fn token_is_made_listed_and_revoked_by_each_caller() {
    let setup = Setup::embedded();
    let org = setup.org("acme");
    for mut caller in Caller::all(&setup, &org) {
        let kind = caller.kind;
        let settings = json!({ "name": kind, "org": org, "allow": ["keys:read"] });
        let made = caller.send("POST", "/tokens", &settings);
        assert_eq!(made.status, 201, "{kind}: {made:?}");
        let made = made.json();
        let path = format!("/tokens/{}", made["id"].as_str().unwrap());
        let program = Program { secret: made["token"].as_str().unwrap().into(), ..setup.root() };
        assert_eq!(program.get(&format!("/orgs/{org}/keys")).status, 200, "{kind}");
        let listed = caller.get(&format!("/tokens?org={org}")).json()["items"].clone();
        assert_eq!(listed.as_array().unwrap().iter().filter(|token| token["id"] == made["id"]).count(), 1, "{kind}");
        assert_eq!(caller.call("DELETE", &path, &[], "").json()["status"], "revoked", "{kind}");
        assert_eq!(program.get(&format!("/orgs/{org}/keys")).code(), "invalid_token", "{kind}");
    }
}

#[test]
fn person_who_lost_the_right_gets_no_answer_of_before() {
    let setup = Setup::embedded();
    let org = setup.org("acme");
    let [_, _, mut grace] = Caller::all(&setup, &org);
    let (keys, once) = (format!("/orgs/{org}/keys"), [("Idempotency-Key", "one")]);
    let body = json!({ "name": "k", "user": "ada@acme.example" }).to_string();
    let made = grace.call("POST", &keys, &once, &body);
    assert_eq!((made.status, grace.call("POST", &keys, &once, &body).status), (201, 201));
    let own = grace.send("POST", &keys, &json!({ "name": "own" })).json();
    let own = format!("/keys/{}/disable", own["id"].as_str().unwrap());
    setup.gateway.permit_user_of(&org, "grace@acme.example", &[]);
    assert_eq!(grace.call("POST", &keys, &once, &body).code(), "no_such_key");
    // Only the operator could enable it again.
    assert_eq!(grace.send("POST", &own, &json!({ "leaked": true })).code(), "not_allowed");
    assert_eq!(grace.send("POST", &own, &json!({ "leaked": false })).json()["status"], "disabled");
    let digest = json!({ "sha256": "5f16eee61eb1a9cf6a7d2fdc5e8c4a0f7e2b9d8c6a5b4e3f2d1c0b9a8f7e6d5c" });
    assert_eq!(grace.send("POST", &own.replace("disable", "rotate"), &digest).code(), "not_allowed");
}

#[test]
fn rows_of_some_callers_do_not_exist_for_others() {
    let setup = Setup::embedded();
    let org = setup.org("acme");
    let plan = json!({ "plan": null });
    let key = setup.root().post(&format!("/orgs/{org}/keys"), &json!({ "name": "k", "user": "ada@acme.example" }));
    let path = format!("/keys/{}", key.json()["id"].as_str().unwrap());
    for mut caller in Caller::all(&setup, &org) {
        let kind = caller.kind;
        let status = if kind == "user" { 403 } else { 200 };
        assert_eq!(caller.send("PATCH", &path, &plan).status, status, "{kind}: plans are the operator's");
        let mut send = |method: &str, path: &str| match &mut caller.way {
            Way::Operator(socket) => ask(socket, method, &format!("/v1{path}"), &[], ""),
            Way::Program(program) => {
                Client::connect(program.address).request(method, &format!("/v1{path}"), &program.secret, &[], b"")
            }
            Way::Person(client, cookie) => {
                let headers = [("Cookie", &**cookie), ("Sec-Fetch-Site", "same-origin")];
                client.request(method, &format!("/settings/api/v1{path}"), "", &headers, b"")
            }
        };
        let found = |answer: Response| answer.status != 404;
        assert_eq!(found(send("GET", "/session")), kind == "user", "{kind}");
        assert_eq!(found(send("GET", "/state")), kind != "user", "{kind}");
        assert_eq!(found(send("GET", "/orgs")), kind != "user", "{kind}");
        assert_eq!(found(send("GET", "/sessions")), kind != "program", "{kind}");
    }
}

#[test]
fn user_is_suspended_and_resumed_by_each_caller() {
    for setup in Setup::both() {
        let org = setup.org("acme");
        for mut caller in Caller::all(&setup, &org) {
            let kind = caller.kind;
            let body = json!({ "name": kind, "user": "ada@acme.example" });
            let made = caller.send("POST", &format!("/orgs/{org}/keys"), &body).json();
            let (key, of_key) = (made["key"].as_str().unwrap(), format!("/keys/{}", made["id"].as_str().unwrap()));
            let status = || Client::connect(setup.gateway.address).get("/x", key).status;
            let ada = format!("/orgs/{org}/users/ADA@acme.example");
            let suspended = caller.send("PATCH", &ada, &json!({ "suspended": true })).json();
            assert!(suspended["suspended"].is_string() && suspended["removed"].is_null(), "{kind}: {suspended}");
            assert_eq!(
                (status(), caller.get(&of_key).json()["status"].as_str()),
                (401, Some("user_suspended")),
                "{kind}"
            );
            let verdict = caller.get(&format!("{of_key}/explain")).json()["verdict"].clone();
            assert_eq!(verdict, "requests are refused (401): the key's user is suspended", "{kind}");
            // The second one is no error, and the first time stands.
            let again = caller.send("PATCH", &ada, &json!({ "suspended": true })).json();
            assert_eq!(again["suspended"], suspended["suspended"], "{kind}");
            let resumed = caller.send("PATCH", &ada, &json!({ "suspended": false })).json();
            assert!(resumed["suspended"].is_null(), "{kind}: {resumed}");
            assert_eq!(status(), 200, "{kind}");
            let nobody = format!("/orgs/{org}/users/nobody@acme.example");
            assert_eq!(caller.send("PATCH", &nobody, &json!({ "suspended": true })).code(), "no_such_user", "{kind}");
        }
    }
}
