//! Random calls of the management API that name what there is in two organizations.

use serde_json::{Value, json};

use crate::support::{Random, Response};

/// Facts of an organization.
#[derive(Default)]
pub struct Known {
    pub name: String,
    pub org: String,
    pub tags: Vec<String>,
    pub users: Vec<String>,
    pub keys: Vec<String>,
    pub digests: Vec<String>,
    pub tokens: Vec<String>,
    pub cursors: Vec<String>,
    pub etags: Vec<String>,
}

/// One call, below `/v1`.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: String,
    pub path: String,
    pub fields: Vec<(String, String)>,
    pub body: String,
}

/// A call that was drawn.
pub struct Drawn {
    pub call: Call,
    /// The kind of change that it makes when it succeeds.
    pub change: Option<&'static str>,
    /// It has digests of secrets: of two keys with one secret, the second is refused.
    pub is_about_digests: bool,
}

/// Methods and paths, with the kind of change that each makes.
const ROUTES: &[(&str, &str, Option<&str>)] = &[
    ("GET", "/orgs", None),
    ("POST", "/orgs", Some("org.create")),
    ("GET", "/orgs/{org}", None),
    ("PATCH", "/orgs/{org}", Some("org.patch")),
    ("GET", "/orgs/{org}/users", None),
    ("POST", "/orgs/{org}/users", Some("user.create")),
    ("GET", "/orgs/{org}/users/{user}", None),
    ("PATCH", "/orgs/{org}/users/{user}", Some("user.patch")),
    ("DELETE", "/orgs/{org}/users/{user}", Some("user.remove")),
    ("GET", "/orgs/{org}/keys", None),
    ("GET", "/orgs/{org}/keys.csv", None),
    ("POST", "/orgs/{org}/keys", Some("key.create")),
    ("PUT", "/orgs/{org}/keys/by-digest/{digest}", Some("key.create")),
    ("GET", "/keys/{key}", None),
    ("PATCH", "/keys/{key}", Some("key.patch")),
    ("POST", "/keys/{key}/rotate", Some("key.rotate")),
    ("POST", "/keys/{key}/revoke", Some("key.revoke")),
    ("POST", "/keys/{key}/disable", Some("key.disable")),
    ("POST", "/keys/{key}/enable", Some("key.enable")),
    ("GET", "/keys/{key}/requests", None),
    ("GET", "/keys/{key}/explain", None),
    ("GET", "/audit", None),
    ("GET", "/tokens", None),
    ("POST", "/tokens", Some("token.create")),
    ("DELETE", "/tokens/{token}", Some("token.revoke")),
    ("GET", "/{key}/{user}", None),
];
const PAGE: &[&str] = &["cursor", "limit"];
const OF_ORG: &[&str] = &["cursor", "limit", "org"];
const OF_KEYS: &[&str] =
    &["cursor", "limit", "search", "name", "user", "status", "unused_for", "expires_within", "newest_first", "sort"];
const OF_USES: &[&str] = &["cursor", "limit", "action", "outcome", "refused"];
/// Things of an organization that calls name, at most.
const LATEST: usize = 8;
const FIELDS: &[&str] = &["If-Match", "If-None-Match", "Idempotency-Key", "X-Org-Id", "X-User-Id", "X-Forwarded-For"];

impl Known {
    pub fn new(name: &str, org: &str) -> Self {
        Self { name: name.to_owned(), org: org.to_owned(), ..Self::default() }
    }

    /// Ids and names, each of which is found in no other text.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let names = [&self.name, &self.org];
        let lists = [&self.users, &self.keys, &self.digests, &self.tokens, &self.cursors, &self.etags];
        names.into_iter().chain(lists.into_iter().flatten()).map(String::as_str)
    }

    pub fn emails(&self) -> impl Iterator<Item = &str> {
        self.users.iter().map(String::as_str).filter(|user| user.contains('@'))
    }

    /// Learns the id of something that a call has created. The latest are known, since earlier ones are mostly revoked
    /// or removed.
    pub fn learn(&mut self, change: &str, answer: &Response) {
        let list = match change {
            "user.create" => &mut self.users,
            "key.create" => &mut self.keys,
            "token.create" => &mut self.tokens,
            _ => return,
        };
        list.push(answer.json()["id"].as_str().unwrap().to_owned());
        if list.len() > LATEST {
            list.remove(0);
        }
    }

    fn of(&self, kind: &str, random: &mut Random) -> String {
        let list = match kind {
            "org" => return if random.below(2) == 0 { self.org.clone() } else { self.name.clone() },
            "user" => &self.users,
            "key" => &self.keys,
            "digest" => &self.digests,
            "token" => &self.tokens,
            "cursor" => &self.cursors,
            "etag" => &self.etags,
            _ => &self.tags,
        };
        list[random.index(list.len())].clone()
    }
}

impl Call {
    /// Returns whether it sends this text.
    pub fn has(&self, text: &str) -> bool {
        let sent = |part: &str| part.contains(text) || part.contains(&encoded(text));
        sent(&self.path) || sent(&self.body) || self.fields.iter().any(|(_, value)| sent(value))
    }

    /// The same call with names of nothing in place of those of an organization, whose words these are.
    pub fn with_names_replaced(&self, known: &Known, words: [&str; 2], by: [&str; 2]) -> Self {
        let mut call = self.clone();
        let is_id = |text: &&str| !words.iter().any(|word| text.contains(word));
        let ids = known.texts().filter(is_id).map(|text| (text.to_owned(), unlike(text)));
        let words = words.into_iter().zip(by).map(|(word, by)| (word.to_owned(), by.to_owned()));
        let all: Vec<_> = ids.chain(words).collect();
        let encoded = all.iter().map(|(text, other)| (encoded(text), encoded(other)));
        for (text, other) in encoded.chain(all.clone()) {
            call.path = call.path.replace(&text, &other);
            call.body = call.body.replace(&text, &other);
            for (_, value) in &mut call.fields {
                *value = value.replace(&text, &other);
            }
        }
        call
    }
}

/// An id of the same form. The first characters stay: of keys they are the tag of the organization. Of an entity tag
/// the last ones stay, which not every character may be.
fn unlike(id: &str) -> String {
    if let Some(tag) = id.strip_prefix('"').and_then(|id| id.strip_suffix('"')) {
        let (changed, kept) = tag.split_at(tag.len() / 2);
        return format!("\"{}{kept}\"", unlike(changed));
    }
    let mut changed = 0;
    let characters: String = id
        .chars()
        .rev()
        .map(|character| match character {
            '0'..='8' if changed < 4 => {
                changed += 1;
                char::from(character as u8 + 1)
            }
            'a'..='e' | 'g'..='y' | 'A'..='Y' if changed < 4 => {
                changed += 1;
                char::from(character as u8 + 1)
            }
            other => other,
        })
        .collect();
    characters.chars().rev().collect()
}

impl Drawn {
    /// Draws a call: half of the names are of the other organization.
    pub fn new(random: &mut Random, own: &Known, other: &Known) -> Self {
        let (method, template, change) = ROUTES[random.index(ROUTES.len())];
        let mut draw = Draw { random, own, other, has_digest: false };
        let path: Vec<_> = template.split('/').skip(1).map(|segment| draw.segment(segment)).collect();
        let mut path = format!("/{}", path.join("/"));
        let mut method = method;
        // Now and then a path or a method that is not there.
        let mut change = change;
        if draw.one_in(12) {
            method = ["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"][draw.random.index(7)];
            change = ROUTES.iter().find(|route| (route.0, route.1) == (method, template)).and_then(|route| route.2);
        }
        if draw.one_in(25) {
            path.push_str(["/", "/..", "//", "/%2e%2e", "/requests/"][draw.random.index(5)]);
        }
        let is_list = ["orgs", "users", "keys", "keys.csv", "requests", "audit", "tokens"]
            .iter()
            .any(|list| template.ends_with(list));
        let parameters = if (method == "GET" && is_list) || draw.one_in(20) { draw.random.below(3) } else { 0 };
        let query: Vec<_> = (0..parameters).map(|_| draw.parameter(parameters_of(template))).collect();
        if template == "/audit" && !query.iter().any(|part| part.starts_with("org=")) && !draw.one_in(4) {
            path = format!("{path}?{}", [&[format!("org={}", draw.name("org"))], &query[..]].concat().join("&"));
        } else if !query.is_empty() {
            path = format!("{path}?{}", query.join("&"));
        }
        let fields = draw.fields();
        let body = if method == "GET" && !draw.one_in(30) { String::new() } else { draw.body(template) };
        let mut call = Call { method: method.to_owned(), path, fields, body };
        if !call.body.is_empty() && !draw.one_in(50) {
            call.fields.push(("Content-Type".into(), "application/json".into()));
        }
        Self { is_about_digests: draw.has_digest, call, change }
    }
}

/// Draws the parts of a call.
struct Draw<'a> {
    random: &'a mut Random,
    own: &'a Known,
    other: &'a Known,
    has_digest: bool,
}

impl Draw<'_> {
    fn one_in(&mut self, bound: u64) -> bool {
        self.random.below(bound) == 0
    }

    /// A name of this kind: of the other organization, of the own one, or of neither.
    fn name(&mut self, kind: &str) -> String {
        self.has_digest |= kind == "digest";
        match self.random.below(20) {
            0..9 => self.other.of(kind, self.random),
            9..17 => self.own.of(kind, self.random),
            17 => unlike(&self.other.of(kind, self.random)),
            18 => {
                let kinds = ["org", "user", "key", "token", "cursor", "tag"];
                let kind = kinds[self.random.index(kinds.len())];
                self.other.of(kind, self.random)
            }
            _ => ["me", "all", "%00", "*", "a", "%F0%9F%94%91", "00000000-0000-0000-0000-000000000000"]
                [self.random.index(7)]
            .to_owned(),
        }
    }

    fn segment(&mut self, segment: &str) -> String {
        match segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}')) {
            Some(kind) => {
                let name = self.name(kind);
                if self.one_in(10) { encoded(&name) } else { name }
            }
            None => segment.to_owned(),
        }
    }

    fn parameter(&mut self, names: &[&str]) -> String {
        let name = names[self.random.index(names.len())];
        let value = match name {
            "cursor" if self.one_in(2) => return format!("limit={}", self.random.below(9) + 1),
            "cursor" => self.name("cursor"),
            "org" | "search" | "name" => self.name("org"),
            "user" => self.name("user"),
            "limit" => self.random.below(120).to_string(),
            "status" => ["active", "revoked", "disabled", "x"][self.random.index(4)].to_owned(),
            "unused_for" | "expires_within" => ["1d", "0s", "99999d"][self.random.index(3)].to_owned(),
            _ => ["true", "false", "completed"][self.random.index(3)].to_owned(),
        };
        format!("{name}={}", value.replace(' ', "+"))
    }

    fn fields(&mut self) -> Vec<(String, String)> {
        if !self.one_in(4) {
            return Vec::new();
        }
        let field = FIELDS[self.random.index(FIELDS.len())];
        let value = match field {
            "If-Match" | "If-None-Match" => self.name("etag"),
            // That of calls about the other organization.
            "Idempotency-Key" => "same".to_owned(),
            "X-Org-Id" => self.name("org"),
            "X-User-Id" => self.name("user"),
            _ => "192.0.2.7".to_owned(),
        };
        vec![(field.to_owned(), value)]
    }

    fn body(&mut self, template: &str) -> String {
        let number = self.random.below(1_000_000);
        let body = match template {
            "/orgs" => json!({ "name": self.name("org") }),
            "/orgs/{org}" => json!({ "suspended": self.one_in(2), "concurrent": number % 100 + 1 }),
            "/orgs/{org}/users" if self.one_in(2) => {
                json!({ "email": format!("new-{number}"), "kind": "service", "responsible": self.name("user") })
            }
            "/orgs/{org}/users" => json!({ "email": self.name("user"), "permissions": ["queries:read"] }),
            "/orgs/{org}/users/{user}" => {
                if self.one_in(3) {
                    json!({ "responsible": self.name("user") })
                } else {
                    json!({ "permissions": [], "suspended": self.one_in(2) })
                }
            }
            "/orgs/{org}/keys" if self.one_in(4) => {
                let [id, sha256] = [self.name("key"), self.name("digest")];
                json!({ "name": "k", "user": self.name("user"), "id": id, "sha256": sha256 })
            }
            "/orgs/{org}/keys" => json!({ "name": "k", "user": self.name("user") }),
            "/orgs/{org}/keys/by-digest/{digest}" => {
                let id = if self.one_in(3) { json!(self.name("key")) } else { Value::Null };
                json!({ "name": "k", "user": self.name("user"), "id": id })
            }
            "/keys/{key}" => json!({ "policy": { "concurrent": number % 50 + 1, "tags": { "a": "b" } } }),
            "/keys/{key}/rotate" if self.one_in(2) => json!({ "sha256": self.name("digest") }),
            "/keys/{key}/disable" => json!({ "leaked": self.one_in(4) }),
            "/tokens" => json!({ "name": "t", "org": self.name("org"), "allow": ["keys:read"] }),
            _ => return String::new(),
        };
        let mut text = body.to_string();
        if self.one_in(30) {
            text.truncate(text.len() / 2);
        }
        text
    }
}

/// Query parameters of a path.
fn parameters_of(template: &str) -> &'static [&'static str] {
    match template {
        "/orgs/{org}/keys" | "/orgs/{org}/keys.csv" => OF_KEYS,
        "/keys/{key}/requests" => OF_USES,
        "/audit" | "/tokens" => OF_ORG,
        _ => PAGE,
    }
}

/// The text with each character percent-encoded.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
