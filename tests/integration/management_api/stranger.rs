//! Random calls by programs of one organization that know every id of another: they learn nothing and change nothing.
//!
//! Each call names things of the other organization in its path, query, fields and body, and is made a second time
//! with names of the same form that nothing has. Both answers must say the same, and neither may have any text of the
//! other organization that the call itself did not have.

use std::collections::{BTreeMap, BTreeSet};

use domain::key::KeyDigest;
use domain::management_token::{TokenId, TokenScope};
use journal::audit::{Filter, Outcome, Reader};
use serde_json::{Value, json};

use super::calls_at_random::{Call, Drawn, Known};
use super::fixture::{JSON, Program, Setup};
use crate::support::{Client, Random, Response, eventually};

/// Calls of each test, of which every second one is the other's with other names.
const CALLS: usize = 10_000;
/// Calls with one token: fewer than it may make in a minute.
const CALLS_OF_TOKEN: usize = 500;
/// Organization that must stay unknown, the domain of its users, and names of the same form.
const OTHER: [&str; 2] = ["zephyrine", "heliograph"];
const NOBODY: [&str; 2] = ["zephyrona", "heliogruph"];

/// Kinds of changes that a program of one organization makes.
const KINDS: [&str; 12] = [
    "key.create",
    "key.disable",
    "key.enable",
    "key.patch",
    "key.revoke",
    "key.rotate",
    "org.patch",
    "token.create",
    "token.revoke",
    "user.create",
    "user.patch",
    "user.remove",
];
/// Its limits, which are those of nothing else.
const LIMITS: [u32; 2] = [48_611, 73_961];

/// All scopes that a token of one organization may have.
fn scopes() -> Vec<TokenScope> {
    TokenScope::ALL.into_iter().filter(|scope| *scope != TokenScope::StateExport).collect()
}

/// A program on a connection that it keeps.
struct Caller {
    program: Program,
    connection: Client,
}

impl Caller {
    fn new(program: Program) -> Self {
        Self { connection: Client::connect(program.address), program }
    }

    fn send(&mut self, call: &Call) -> Response {
        let fields: Vec<_> = call.fields.iter().map(|(name, value)| (&**name, &**value)).collect();
        let path = format!("/v1{}", call.path);
        let body = call.body.as_bytes();
        let answer = self.connection.request(&call.method, &path, &self.program.secret, &fields, body);
        if answer.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
            self.connection = Client::connect(self.program.address);
        }
        answer
    }
}

/// Fills an organization with these limits, and returns what there is to know of it.
fn populate(setup: &Setup, [name, domain]: [&str; 2], [of_org, of_keys]: [u32; 2]) -> Known {
    let org = setup.org(name);
    let root = setup.root();
    let mut known = Known::new(name, &org);
    let shown = root.get(&format!("/orgs/{org}"));
    known.tags.push(shown.json()["tag"].as_str().unwrap().to_owned());
    known.etags.push(shown.header("etag").unwrap().to_owned());
    root.patch(&format!("/orgs/{org}"), &json!({ "concurrent": of_org }));
    let text = |answer: &Response, member: &str| answer.json()[member].as_str().unwrap().to_owned();
    for number in 0..4 {
        let email = format!("quill-{number}@{domain}.example");
        let user =
            root.post(&format!("/orgs/{org}/users"), &json!({ "email": email, "permissions": ["queries:read"] }));
        known.users.extend([text(&user, "id"), email.clone()]);
        known.etags.push(user.header("etag").unwrap().to_owned());
        let path = format!("/orgs/{org}/keys");
        let digest = KeyDigest::of(format!("{name} {number}").as_bytes()).to_hex();
        let body = json!({ "name": format!("laptop of {email}"), "user": email, "policy": { "concurrent": of_keys } });
        let key = root.call("POST", &path, &[JSON, ("Idempotency-Key", "same")], body.to_string().as_bytes());
        if number == 0 {
            known.keys.push(text(&key, "id"));
            known.etags.push(key.header("etag").unwrap().to_owned());
        }
        let put = root.call("PUT", &format!("{path}/by-digest/{digest}"), &[JSON], body.to_string().as_bytes());
        known.keys.push(text(&put, "id"));
        known.digests.push(digest);
    }
    for list in ["users", "keys"] {
        let page = root.get(&format!("/orgs/{org}/{list}?limit=1")).json();
        known.cursors.push(page["nextCursor"].as_str().unwrap().to_owned());
    }
    let audit = root.get(&format!("/audit?org={org}&limit=1")).json();
    known.cursors.push(audit["nextCursor"].as_str().unwrap().to_owned());
    let token =
        root.post("/tokens", &json!({ "name": format!("robot of {name}"), "org": org, "allow": ["keys:read"] }));
    known.tokens.push(text(&token, "id"));
    known
}

/// All that a program of the operator sees of an organization.
fn observed(setup: &Setup, known: &Known) -> Vec<Value> {
    let (root, org) = (setup.root(), &known.org);
    let lists = ["users", "keys"].map(|list| format!("/orgs/{org}/{list}?limit=100"));
    let others =
        [format!("/orgs/{org}"), format!("/audit?org={org}&limit=100"), format!("/tokens?org={org}&limit=100")];
    let mut paths = [&lists[..], &others].concat();
    paths.extend(known.keys.iter().map(|key| format!("/keys/{key}")));
    paths.iter().map(|path| root.get(path).json()).collect()
}

/// Asserts that an answer has no text of the organization that the call did not have, and that was not told before.
fn assert_silent(known: &Known, told: &BTreeSet<String>, call: &Call, answer: &Response) {
    let head = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect::<String>();
    let said = head + &String::from_utf8_lossy(&answer.body);
    for text in known.texts() {
        assert!(!said.contains(text) || call.has(text) || told.contains(text), "{call:?}: {text} is in {said}");
    }
    let tag = format!("\"tag\":\"{}\"", known.tags[0]);
    assert!(!said.contains(&tag), "{call:?}: {said}");
    for number in LIMITS {
        assert!(!said.contains(&format!(":{number}")), "{call:?}: {said}");
    }
}

/// The status of an answer, and the code of an error.
fn result(answer: &Response) -> (u16, Option<String>) {
    let is_problem = answer.header("content-type") == Some("application/problem+json") && !answer.body.is_empty();
    (answer.status, is_problem.then(|| answer.code()))
}

/// Records of completed changes of a token, by the thing that they change and the verb.
fn recorded(setup: &Setup, token: &str) -> BTreeMap<String, usize> {
    let filter = Filter { token: Some(token.parse::<TokenId>().unwrap()), ..Filter::default() };
    let mut records = Vec::new();
    eventually("all changes have an outcome", || {
        let reader = Reader::open(&setup.gateway.dir.path().join("audit")).unwrap();
        records = reader.list(&filter, 100_000, None).unwrap().records;
        !records.iter().any(|record| record.outcome == Outcome::InProgress)
    });
    let mut counted = BTreeMap::new();
    for record in records {
        assert_eq!(record.token_id.map(|id| id.to_string()).as_deref(), Some(token));
        if record.outcome == Outcome::Completed {
            *counted.entry(kind_of_action(&record.action)).or_default() += 1;
        }
    }
    counted
}

/// The action without what patches name by the fields that they have.
fn kind_of_action(action: &str) -> String {
    let patches = ["org.", "user.", "key."].into_iter().find(|thing| action.starts_with(thing));
    let verbs = ["create", "remove", "rotate", "revoke", "disable", "enable"];
    match (patches, action.split_once('.')) {
        (Some(_), Some((_, verb))) if verbs.contains(&verb) => action.to_owned(),
        (Some(thing), _) => format!("{thing}patch"),
        _ => action.split('/').next().unwrap().to_owned(),
    }
}

fn strangers_learn_and_change_nothing(setup: &Setup, seed: u64) {
    let (mut own, other) = (populate(setup, ["acme", "acme"], [100, 10]), populate(setup, OTHER, LIMITS));
    let callers = CALLS.div_ceil(CALLS_OF_TOKEN);
    let programs: Vec<_> = (0..callers).map(|_| setup.program(Some(&own.org), &scopes())).collect();
    let before = observed(setup, &other);
    let mut random = Random::new(seed);
    let mut results: BTreeMap<(u16, Option<String>), usize> = BTreeMap::new();
    let mut kinds = BTreeSet::new();
    // Addresses that a user of the own organization has, or had, from a call.
    let mut told = BTreeSet::new();
    // Addresses of users that a call, or its twin, has created.
    let mut created = BTreeSet::new();
    for program in programs {
        let token = program.id.clone();
        let mut caller = Caller::new(program);
        let mut made: BTreeMap<String, usize> = BTreeMap::new();
        for _ in 0..CALLS_OF_TOKEN / 2 {
            let Drawn { call, change, is_about_digests } = Drawn::new(&mut random, &own, &other);
            let twin = call.with_names_replaced(&other, OTHER, NOBODY);
            let emails: Vec<_> = other.emails().filter(|email| call.has(email)).collect();
            let [answer, of_nobody] = [&call, &twin].map(|call| {
                let answer = caller.send(call);
                assert_silent(&other, &told, call, &answer);
                *results.entry(result(&answer)).or_default() += 1;
                assert!(answer.status < 500 && answer.status != 401, "{call:?}: {answer:?}");
                let is_made = (200..300).contains(&answer.status) && answer.header("idempotent-replayed").is_none();
                // A key that was put before is shown.
                let is_shown =
                    ["GET", "HEAD"].contains(&&*call.method) || (call.method == "PUT" && answer.status == 200);
                if is_made
                    && !is_shown
                    && let Some(change) = change
                {
                    *made.entry(change.to_owned()).or_default() += 1;
                    if change == "user.create" {
                        created.extend(answer.json()["email"].as_str().map(str::to_owned));
                    }
                    own.learn(change, &answer);
                    told.extend(emails.iter().map(|email| String::from(*email)));
                }
                answer
            });
            // After a change, the other call is made in another state.
            let changed = |answer: &Response| call.method != "GET" && (200..300).contains(&answer.status);
            let has = |email: &String| call.has(email) || twin.has(email);
            let is_own = emails.iter().any(|email| told.contains(*email)) || created.iter().any(has);
            let is_replayed = of_nobody.header("idempotent-replayed").is_some();
            if !is_about_digests && !is_own && !changed(&answer) && !is_replayed {
                assert_eq!(result(&answer), result(&of_nobody), "{call:?}: {answer:?}\n{twin:?}: {of_nobody:?}");
            }
        }
        assert_eq!(recorded(setup, &token), made, "each change is recorded with its token");
        kinds.extend(made.into_keys());
    }
    assert!(results[&(200, None)] > CALLS / 10, "nearly all calls are refused: {results:?}");
    assert_eq!(kinds.iter().map(String::as_str).collect::<Vec<_>>(), KINDS, "no call has made the others: {results:?}");
    // The observation itself adds tokens of the operator, of no organization.
    assert_eq!(observed(setup, &other), before, "the other organization is as it was");
}

#[test]
fn random_calls_of_a_stranger_reveal_and_change_nothing_in_files() {
    strangers_learn_and_change_nothing(&Setup::embedded(), 1);
}

#[test]
fn random_calls_of_a_stranger_reveal_and_change_nothing_on_redis() {
    strangers_learn_and_change_nothing(&Setup::on_redis(), 2);
}

/// Answers to reads, without what differs each time.
fn answers(program: Program, calls: &[Call]) -> Vec<(u16, Value)> {
    let mut caller = Caller::new(program);
    let answer = |call| {
        let answer = caller.send(call);
        let mut body: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        // Other programs of the same organization are used meanwhile.
        body["items"].as_array_mut().into_iter().flatten().for_each(|item| drop(item["last_use"].take()));
        for member in ["nextCursor", "request_id"] {
            if let Some(object) = body.as_object_mut() {
                object.remove(member);
            }
        }
        (answer.status, body)
    };
    calls.iter().map(answer).collect()
}

#[test]
fn answers_to_a_stranger_do_not_depend_on_the_other_organization() {
    for setup in Setup::both() {
        let (own, other) = (populate(&setup, ["acme", "acme"], [100, 10]), populate(&setup, OTHER, LIMITS));
        let mut random = Random::new(3);
        let mut calls = Vec::new();
        while calls.len() < CALLS_OF_TOKEN {
            let Drawn { call, .. } = Drawn::new(&mut random, &own, &other);
            if call.method == "GET" {
                calls.push(call);
            }
        }
        // One for each run, since a token has calls for one in its bucket.
        let [first, second] = [(); 2].map(|()| setup.program(Some(&own.org), &scopes()));
        let before = answers(first, &calls);
        let root = setup.root();
        for number in 0..30 {
            let email = format!("more-{number}@{}.example", OTHER[1]);
            root.post(&format!("/orgs/{}/users", other.org), &json!({ "email": email }));
            root.post(&format!("/orgs/{}/keys", other.org), &json!({ "name": "more", "user": email }));
            setup.gateway.revoke_key(other.keys[0].parse().unwrap());
        }
        root.patch(&format!("/orgs/{}", other.org), &json!({ "suspended": true }));
        let again = answers(second, &calls);
        for ((call, before), again) in calls.iter().zip(&before).zip(&again) {
            assert_eq!(before, again, "{call:?}");
        }
    }
}
