//! A peer that decides as keygate does, by the protocol of each proxy, from a few rules.
//!
//! The key is `good`, or `session` for a caller without a key; another one is a 401. A target below `/refused/NNN` is
//! refused with that status.

use std::io::Write as _;
use std::net::SocketAddr;

use super::program::Kind;
use crate::support::Upstream;
use crate::support::upstream::Received;

/// Fields that keygate sets for an admitted request, as the peer sets them.
pub const IDENTITY: [(&str, &str); 6] = [
    ("X-User-Id", "user-of-the-peer"),
    ("X-Org-Id", "org-of-the-peer"),
    ("X-Key-Id", "key-of-the-peer"),
    ("X-Permissions", "queries:read,queries:write"),
    ("X-Auth-Method", "api-key"),
    ("X-Request-Id", "019abd3c-5d52-7a1e-a3f0-2b1c5d7e9f01"),
];

/// The field that a caller without a key has not.
pub const ABSENT: &str = "X-Key-Id";

/// Request that a proxy has described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub method: String,
    pub target: String,
}

/// A running peer.
pub struct Decisions {
    kind: Kind,
    peer: Upstream,
}

impl Decisions {
    pub fn start(kind: Kind) -> Self {
        let peer = Upstream::answering(move |received, stream| {
            // A proxy that has gone away needs no answer.
            stream.write_all(answer(kind, received).as_bytes()).ok();
        });
        Self { kind, peer }
    }

    pub fn address(&self) -> SocketAddr {
        self.peer.address
    }

    /// Number of questions.
    pub fn count(&self) -> usize {
        self.peer.count()
    }

    /// The last question, as it was received.
    pub fn last(&self) -> Received {
        self.peer.last()
    }

    /// The request of the last question.
    ///
    /// # Panics
    /// When the question does not describe exactly one request.
    pub fn last_described(&self) -> Described {
        describe(self.kind, &self.last()).unwrap_or_else(|| panic!("no request: {:?}", self.last()))
    }
}

/// The request that a question describes; none when a fact is missing or doubled.
fn describe(kind: Kind, question: &Received) -> Option<Described> {
    let own_method = question.line.split(' ').next()?;
    let (method, target) = match kind {
        Kind::Nginx | Kind::DebianNginx => {
            let (method, rest) = question.path().strip_prefix("/v1/nginx/")?.split_once('/')?;
            (method, format!("/{rest}"))
        }
        Kind::Traefik | Kind::Caddy => {
            (only(question, "x-forwarded-method")?, only(question, "x-forwarded-uri")?.to_owned())
        }
        _ => (own_method, question.path().strip_prefix("/v1/envoy")?.to_owned()),
    };
    Some(Described { method: method.to_owned(), target })
}

/// The value of a field that is there exactly once.
fn only<'a>(question: &'a Received, name: &str) -> Option<&'a str> {
    let mut values = question.headers.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name));
    let first = values.next()?;
    values.next().is_none().then_some(first.1.as_str())
}

fn answer(kind: Kind, question: &Received) -> String {
    let Some(described) = describe(kind, question) else { return refusal(kind, 400) };
    if matches!(kind, Kind::Traefik | Kind::Caddy) && question.headers.iter().any(|(name, _)| is_look_alike(name)) {
        return refusal(kind, 400);
    }
    let answer = decide(kind, question, &described);
    // HTTP: a response to HEAD has no body.
    if question.line.starts_with("HEAD ") { answer[..answer.find("\r\n\r\n").unwrap() + 4].to_owned() } else { answer }
}

/// Returns whether some server could read this name as that of an identity field, which it is not.
fn is_look_alike(name: &str) -> bool {
    let folded = fold(name);
    folded != name.to_ascii_lowercase() && IDENTITY.iter().any(|(identity, _)| fold(identity) == folded)
}

/// A name as CGI and its heirs compare it.
pub fn fold(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' }).collect()
}

fn decide(kind: Kind, question: &Received, described: &Described) -> String {
    let refused = described.target.strip_prefix("/refused/").and_then(|rest| rest.get(..3)?.parse().ok());
    match (only(question, "authorization"), refused) {
        (_, Some(status)) => refusal(kind, status),
        (Some("Bearer good"), None) => admission(kind, &IDENTITY.map(|(name, _)| name)),
        (Some("Bearer session"), None) => {
            let names: Vec<&str> = IDENTITY.iter().map(|(name, _)| *name).filter(|name| *name != ABSENT).collect();
            admission(kind, &names)
        }
        _ => refusal(kind, 401),
    }
}

/// Admission with these of the identity fields.
fn admission(kind: Kind, set: &[&str]) -> String {
    let mut head = if kind.is_nginx() { "HTTP/1.1 204 No Content\r\n" } else { "HTTP/1.1 200 OK\r\n" }.to_owned();
    if !kind.is_nginx() {
        head += "Content-Length: 0\r\n";
    }
    for (name, value) in IDENTITY {
        let is_set = set.contains(&name);
        if is_set {
            head += &format!("{name}: {value}\r\n");
        } else if matches!(kind, Kind::Traefik | Kind::Caddy) {
            head += &format!("{name}:\r\n");
        }
    }
    if kind.is_envoy() {
        let absent = IDENTITY.map(|(name, _)| name).into_iter().filter(|name| !set.contains(name));
        let removed: Vec<String> = absent.chain(["authorization"]).map(str::to_ascii_lowercase).collect();
        head += &format!("x-envoy-auth-headers-to-remove: {}\r\n", removed.join(","));
    }
    head + "\r\n"
}

fn refusal(kind: Kind, status: u16) -> String {
    let body = format!("{{\"type\":\"about:blank\",\"status\":{status},\"code\":\"of_the_peer\"}}");
    let sent = if kind.is_nginx() && status != 401 { 403 } else { status };
    let mut head = format!("HTTP/1.1 {sent} Refused\r\nContent-Type: application/problem+json\r\n");
    head += &format!("Content-Length: {}\r\nX-Request-Id: {}\r\n", body.len(), IDENTITY[5].1);
    if sent != status || status == 403 {
        head += &format!("X-Keygate-Status: {status}\r\n");
    }
    if matches!(status, 401 | 403) {
        head += "WWW-Authenticate: Bearer realm=\"keygate\"\r\n";
    }
    if matches!(status, 429 | 503) {
        head += "Retry-After: 7\r\nRateLimit: \"key\";r=0;t=7\r\nRateLimit-Policy: \"key\";q=10;w=60\r\n";
    }
    head + "\r\n" + &body
}
