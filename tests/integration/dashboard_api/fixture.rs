//! A gateway with a dashboard, an organization, and users with web sessions.

use std::net::SocketAddr;

use domain::identity::{OrgId, UserId};
use journal::audit::{Filter, Outcome, Reader, Record, RecordKind};
use serde_json::Value;

use crate::openapi::Document;
use crate::support::{Client, Gateway, Response, Upstream, eventually};

pub const API: &str = "/settings/api/v1";
/// Header field of browsers for requests from a page of this origin.
pub const OWN: (&str, &str) = ("Sec-Fetch-Site", "same-origin");
pub const JSON: (&str, &str) = ("Content-Type", "application/json");
/// User agent of the users' browsers.
pub const AGENT: &str = "Browser/1.0";

pub struct Setup {
    pub gateway: Gateway,
    pub org: OrgId,
    pub document: Document,
    _upstream: Upstream,
}

/// A user with a web session.
pub struct SessionUser<'a> {
    setup: &'a Setup,
    pub user: UserId,
    /// The chosen organization.
    pub org: OrgId,
    /// Value of the `Cookie` field.
    pub cookie: String,
}

impl Setup {
    pub fn new() -> Self {
        Self::with_limit("{}")
    }

    /// With this limit of each person's requests.
    pub fn with_limit(limit: &str) -> Self {
        Self::with(limit, "")
    }

    /// A setup with this limit of a person, and more blocks of configuration.
    pub fn with(limit: &str, more: &str) -> Self {
        let upstream = Upstream::start();
        let session = format!("session: {{ origin: http://127.0.0.1:8080, limit: {limit} }}\n{more}");
        let gateway = Gateway::with(&[upstream.address], &session);
        let org = gateway.create_org("acme").id;
        let served = Client::connect(gateway.address).get("/settings/api/openapi.json", "");
        assert_eq!((served.status, served.header("content-type")), (200, Some("application/json")));
        Self { org, document: Document::new(&served.body), gateway, _upstream: upstream }
    }

    pub fn address(&self) -> SocketAddr {
        self.gateway.address
    }

    /// A new user of the organization, signed in.
    pub fn user(&self, email: &str, permissions: &[&str]) -> SessionUser<'_> {
        self.user_of(self.org, email, permissions)
    }

    /// Another organization.
    pub fn other_org(&self, name: &str) -> OrgId {
        self.gateway.create_org(name).id
    }

    /// A new user of an organization, signed in.
    pub fn user_of(&self, org: OrgId, email: &str, permissions: &[&str]) -> SessionUser<'_> {
        let user = self.gateway.create_user(org, email, permissions).id;
        SessionUser { setup: self, user, org, cookie: self.sign_in_to(org, user) }
    }

    pub fn admin(&self) -> SessionUser<'_> {
        self.user("ada@example.com", &["org:admin"])
    }

    pub fn member(&self) -> SessionUser<'_> {
        self.user("bob@example.com", &[])
    }

    /// Starts a session of a user; returns the value of its `Cookie` field.
    pub fn sign_in(&self, user: UserId) -> String {
        self.sign_in_to(self.org, user)
    }

    fn sign_in_to(&self, org: OrgId, user: UserId) -> String {
        let link = self.gateway.create_link(org, user);
        let path = link.as_str().strip_prefix("http://127.0.0.1:8080").unwrap();
        let taken = Client::connect(self.address()).request("POST", path, "", &[OWN], b"");
        assert_eq!(taken.status, 303, "{taken:?}");
        taken.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
    }

    /// Sends a request, and validates the response against the document.
    pub fn send_request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let response = Client::connect(self.address()).request(method, &format!("{API}{path}"), "", headers, body);
        if method != "HEAD" && response.status != 405 {
            self.document.validate(method, path, &response);
        }
        response
    }

    /// The audit records of changes, oldest first. Waits until all have an outcome.
    pub fn changes(&self) -> Vec<Record> {
        let mut records = Vec::new();
        eventually("all changes are recorded", || {
            let reader = Reader::open(&self.gateway.dir.path().join("audit")).unwrap();
            records = reader.list(&Filter::default(), 1000, None).unwrap().records;
            records.retain(|record| record.kind() == RecordKind::Change);
            !records.iter().any(|record| record.outcome == Outcome::InProgress)
        });
        records.reverse();
        records
    }
}

impl SessionUser<'_> {
    /// The same user, signed in once more.
    pub fn in_another_session(&self) -> Self {
        Self { setup: self.setup, user: self.user, org: self.org, cookie: self.setup.sign_in(self.user) }
    }

    /// The path of a list or a record of the chosen organization, which the paths of tests leave out.
    pub fn path(&self, path: &str) -> String {
        let (list, _) = path.split_once('?').unwrap_or((path, ""));
        match list {
            "/org" => format!("/orgs/{}{}", self.org, &path[4..]),
            "/keys" | "/users" | "/changes" | "/activity" => format!("/orgs/{}{path}", self.org),
            _ => path.to_owned(),
        }
    }

    pub fn get(&self, path: &str) -> Response {
        self.setup.send_request("GET", &self.path(path), &[("Cookie", &self.cookie)], b"")
    }

    /// The text of a page of the dashboard.
    pub fn page(&self, path: &str) -> String {
        let headers = [("Cookie", self.cookie.as_str())];
        let page = Client::connect(self.setup.address()).request("GET", path, "", &headers, b"");
        assert_eq!(page.status, 200, "{path}");
        String::from_utf8(page.body).unwrap()
    }

    /// Sends a request from a page of this origin.
    pub fn send(&self, method: &str, path: &str, body: Option<Value>) -> Response {
        let mut headers = vec![("Cookie", self.cookie.as_str()), OWN, ("User-Agent", AGENT)];
        headers.extend(body.as_ref().map(|_| JSON));
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        self.setup.send_request(method, &self.path(path), &headers, body.as_bytes())
    }

    pub fn post(&self, path: &str, body: Value) -> Response {
        self.send("POST", path, Some(body))
    }

    /// Creates a key of their own; returns the whole key and its id.
    pub fn key(&self, name: &str) -> (String, String) {
        let made = self.post("/keys", serde_json::json!({ "name": name }));
        assert_eq!(made.status, 201, "{}", made.code());
        let made = made.json();
        (made["key"].as_str().unwrap().to_owned(), made["id"].as_str().unwrap().to_owned())
    }
}
