//! `kill -9` between the commit of a change and its answer: the call that is sent again gets the one key that there is.
//!
//! The delay of each kill follows from the kills before, so that most fall about where the change is committed: after
//! one that came too late for the answer to be lost it is shorter, after one before the commit it is longer. On Redis,
//! half of the kills come when the record of the call is seen there.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{JSON, Managed};
use crate::support::redis::Redis;
use crate::support::{Client, Random, Response, Running, client};

/// Kills of each test, unless `KEYGATE_RACES` says another number.
const KILLS: usize = 20;
/// Longer than any call takes.
const LONGEST: Duration = Duration::from_secs(5);
const SCOPES: &str = "orgs:write,users:write,keys:create,keys:read";

/// Kills by what they came after.
#[derive(Debug, Default)]
struct Kills {
    /// The answer.
    answered: usize,
    /// The commit, and before the answer.
    made: usize,
    /// Neither: the call that was sent again made the change.
    not_made: usize,
}

fn kills() -> usize {
    std::env::var("KEYGATE_RACES").map_or(KILLS, |races| races.parse().expect("KEYGATE_RACES is a number"))
}

/// The calls of a program that creates keys, each with an idempotency key of its own.
struct Calls<'a> {
    managed: &'a Managed,
    token: String,
    path: String,
}

impl<'a> Calls<'a> {
    /// Creates the organization and the user. The gateway must run.
    fn prepare(managed: &'a Managed) -> Self {
        let token = managed.token(SCOPES);
        let create = |path: &str, body: Value| assert_eq!(managed.call(&token, "POST", path, &[], &body).status, 201);
        create("/orgs", json!({ "name": "acme" }));
        create("/orgs/acme/users", json!({ "email": "ada@acme.example" }));
        Self { managed, token, path: "/orgs/acme/keys".into() }
    }

    fn body(number: usize) -> Value {
        json!({ "name": format!("key-{number}"), "user": "ada@acme.example" })
    }

    /// Sends a call, and kills the gateway when it is time. Returns the answer, if it was sent before.
    fn send_and_kill(
        &self,
        number: usize,
        gateway: &mut Running,
        is_time: impl Fn(Duration) -> bool,
    ) -> Option<Response> {
        let body = Self::body(number).to_string();
        let headers = [JSON, ("Idempotency-Key", &*format!("call-{number}"))];
        let head = client::head("POST", &format!("/v1{}", self.path), &self.token, &headers, body.len());
        let mut connection = Client::connect(self.managed.api);
        connection.send(head + &body);
        let sent = Instant::now();
        while !is_time(sent.elapsed()) {
            std::hint::spin_loop();
        }
        gateway.kill();
        connection.try_response_to("POST").ok()
    }

    /// Sends the call again, at a gateway.
    fn repeat(&self, number: usize, at: &Managed) -> Response {
        let key = format!("call-{number}");
        let answer = at.call(&self.token, "POST", &self.path, &[("Idempotency-Key", &key)], &Self::body(number));
        assert_eq!(answer.status, 201, "call {number}: {answer:?}");
        answer
    }

    /// The names of all keys, in order.
    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut path = format!("{}?limit=100", self.path);
        loop {
            let page = self.managed.call(&self.token, "GET", &path, &[], &Value::Null).json();
            names.extend(page["items"].as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap().to_owned()));
            let Some(cursor) = page["nextCursor"].as_str() else { return names };
            path = format!("{}?limit=100&cursor={cursor}", self.path);
        }
    }
}

fn id(answer: &Response) -> String {
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// Idempotency records.
fn records(redis: &Redis) -> usize {
    redis.cli::<Vec<String>>(&["KEYS", "*:idempotency:?*"]).len()
}

/// Kills the gateway in each round, and sends the call again at the other one first, if there is one, while the change
/// may still be under way, and at the restarted one.
fn kill_and_repeat(managed: &Managed, other: Option<(&Managed, &Redis)>) {
    let mut gateway = managed.setup.start();
    let calls = Calls::prepare(managed);
    let mut random = Random::new(34);
    let mut counted = Kills::default();
    let mut ids = BTreeSet::new();
    let mut delay = Duration::from_millis(4);
    for number in 0..kills() {
        let jitter = u32::try_from(90 + random.below(20)).unwrap();
        let answered = match other {
            // When the record of the call is there.
            Some((_, redis)) if number.is_multiple_of(2) => {
                let before = records(redis);
                calls.send_and_kill(number, &mut gateway, |elapsed| elapsed > LONGEST || records(redis) > before)
            }
            _ => calls.send_and_kill(number, &mut gateway, |elapsed| elapsed >= delay * jitter / 100),
        };
        let elsewhere = other.map(|(other, _)| calls.repeat(number, other));
        gateway = managed.setup.start();
        let here = calls.repeat(number, managed);
        let first = elsewhere.as_ref().unwrap_or(&here);
        let is_replayed = first.header("idempotent-replayed").is_some();
        match (&answered, is_replayed) {
            (Some(answer), true) => {
                assert_eq!((answer.status, id(answer)), (201, id(first)), "call {number}");
                counted.answered += 1;
                delay = delay * 7 / 8;
            }
            (Some(_), false) => panic!("call {number} was answered, and made again: {answered:?}, {first:?}"),
            (None, true) => counted.made += 1,
            (None, false) => {
                counted.not_made += 1;
                delay = delay * 9 / 8;
            }
        }
        // From now on it is that key.
        let again = calls.repeat(number, managed);
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!([id(&here), id(&again)], [id(first), id(first)], "call {number}");
        assert!(ids.insert(id(first)), "two calls have one key");
    }
    println!("{counted:?}");
    let names: Vec<_> = (0..kills()).map(|number| format!("key-{number}")).collect();
    let mut listed = calls.names();
    listed.sort_by_key(|name| name["key-".len()..].parse::<usize>().unwrap());
    assert_eq!(listed, names, "each call has made one key");
    assert!(counted.made > 0, "no kill came between commit and answer: {counted:?}");
    gateway.stop();
}

#[test]
fn killed_gateway_with_files_has_made_each_call_once() {
    kill_and_repeat(&Managed::embedded(), None);
}

#[test]
fn killed_gateway_on_redis_has_made_each_call_once_for_all_gateways() {
    let redis = Redis::start();
    let state = format!("{{ redis: {{ url: '{}', deadline: 2s }} }}", redis.url());
    let (managed, other) = (Managed::new(&state), Managed::new(&state));
    let running = other.setup.start();
    kill_and_repeat(&managed, Some((&other, &redis)));
    running.stop();
}
