//! The three callers of the API: the operator on the admin socket, a program with a token, and a person with a web
//! session. Every response is as the document says.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use domain::identity::{OrgId, UserId};
use serde_json::Value;

use super::fixture::{JSON, Program, Setup};
use crate::openapi::Document;
use crate::support::client::head;
use crate::support::{Client, Response};

/// A caller, and the document that is served to it.
pub(super) struct Caller {
    /// Kind of the actor in the records of keys.
    pub(super) kind: &'static str,
    pub(super) way: Way,
    document: Arc<Document>,
}

/// The credential of a caller, and the mount to which it is presented.
pub(super) enum Way {
    Operator(PathBuf),
    Program(Program),
    /// The value of the cookie.
    Person(Client, String),
}

impl Caller {
    /// All three, in an organization with a user `ada` and an administrator `grace`.
    pub(super) fn all(setup: &Setup, org: &str) -> [Self; 3] {
        let org: OrgId = org.parse().unwrap();
        let grace = setup.gateway.create_user(org, "grace@acme.example", &["org:admin"]).id;
        let (mut client, cookie) = sign_in(setup, org, grace);
        let of_person = Document::new(&client.get("/settings/api/openapi.json", "").body);
        let of_operator = Document::new(&std::fs::read("docs/openapi.json").unwrap());
        let socket = setup.gateway.dir.path().join("admin.sock");
        let document = Arc::clone(&setup.document);
        [
            Self { kind: "operator", way: Way::Operator(socket), document: Arc::new(of_operator) },
            Self { kind: "program", way: Way::Program(setup.root()), document },
            Self { kind: "user", way: Way::Person(client, cookie), document: Arc::new(of_person) },
        ]
    }

    /// Path of the API.
    pub(super) fn base(&self) -> &'static str {
        if let Way::Person(..) = self.way { "/settings/api/v1" } else { "/v1" }
    }

    /// Makes a call, and validates the response against the document.
    pub(super) fn call(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let target = format!("{}{path}", self.base());
        let mut headers = headers.to_vec();
        if !body.is_empty() && !headers.iter().any(|(name, _)| *name == JSON.0) {
            headers.push(JSON);
        }
        let response = match &mut self.way {
            Way::Operator(socket) => ask(socket, method, &target, &headers, body),
            Way::Program(program) => return program.call(method, path, &headers, body.as_bytes()),
            Way::Person(client, cookie) => {
                headers.extend([("Cookie", &**cookie), ("Sec-Fetch-Site", "same-origin")]);
                client.request(method, &target, "", &headers, body.as_bytes())
            }
        };
        self.document.validate(method, path, &response);
        response
    }

    pub(super) fn get(&mut self, path: &str) -> Response {
        self.call("GET", path, &[], "")
    }

    pub(super) fn send(&mut self, method: &str, path: &str, body: &Value) -> Response {
        self.call(method, path, &[], &body.to_string())
    }

    /// `POST` without a body.
    pub(super) fn act(&mut self, path: &str) -> Response {
        self.call("POST", path, &[], "")
    }
}

/// Starts a session of a user; returns the value of its cookie.
pub(super) fn sign_in(setup: &Setup, org: OrgId, user: UserId) -> (Client, String) {
    let link = setup.gateway.create_link(org, user);
    let mut client = Client::connect(setup.gateway.address);
    let taken = client.request("POST", link.path(), "", &[("Sec-Fetch-Site", "same-origin")], b"");
    let cookie = taken.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    (client, cookie)
}

/// Sends a request over a Unix socket, and reads the response.
pub(super) fn ask(socket: &PathBuf, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Response {
    let mut stream = UnixStream::connect(socket).unwrap();
    let headers = [headers, &[("Connection", "close")]].concat();
    let request = [head(method, target, "", &headers, body.len()), body.to_owned()].concat();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let lines = String::from_utf8(answer[..end].to_vec()).unwrap();
    let (first, fields) = lines.split_once("\r\n").unwrap();
    let field = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_ascii_lowercase(), value.to_owned())
    };
    let headers = fields.split("\r\n").map(field).collect();
    Response { status: first[9..12].parse().unwrap(), headers, body: answer[end + 4..].to_vec() }
}
