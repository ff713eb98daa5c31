//! Gateways with a management listener, and programs with tokens.

use std::net::SocketAddr;
use std::sync::Arc;

use control::management::{self, NewToken, TokenSettings};
use domain::management_token::TokenScope;
use serde_json::{Value, json};

use crate::openapi::Document;
use crate::support::gateway::OPERATOR;
use crate::support::redis::Redis;
use crate::support::{Client, Gateway, Response, Upstream};

pub const JSON: (&str, &str) = ("Content-Type", "application/json");
const LISTEN: &str = "listen: [{ address: 127.0.0.1:0 }, { address: 127.0.0.1:0, serves: management }]\n\
                      session: { origin: http://127.0.0.1:8080, limit: { requests: 1000000, per: 1m } }\n";

/// A gateway with its upstream, and its Redis if it has one.
pub struct Setup {
    pub gateway: Gateway,
    pub redis: Option<Redis>,
    pub document: Arc<Document>,
    upstream: Upstream,
}

/// A program with a token.
#[derive(Clone)]
pub struct Program {
    pub address: SocketAddr,
    pub id: String,
    pub secret: String,
    pub document: Arc<Document>,
}

impl Setup {
    pub fn embedded() -> Self {
        Self::with("")
    }

    /// On the embedded state, with more blocks of configuration.
    pub fn with(more: &str) -> Self {
        let upstream = Upstream::start();
        let gateway = Gateway::with(&[upstream.address], &format!("{LISTEN}{more}"));
        Self { document: served_document(&gateway), gateway, redis: None, upstream }
    }

    pub fn on_redis() -> Self {
        let (redis, upstream) = (Redis::start(), Upstream::start());
        let gateway = over(&redis, &upstream);
        Self { document: served_document(&gateway), gateway, redis: Some(redis), upstream }
    }

    /// One of each.
    pub fn both() -> [Self; 2] {
        [Self::embedded(), Self::on_redis()]
    }

    /// Another gateway on the same Redis.
    pub fn another(&self) -> Gateway {
        over(self.redis.as_ref().unwrap(), &self.upstream)
    }

    /// The address of the management listener.
    pub fn api(&self) -> SocketAddr {
        self.gateway.addresses()[1]
    }

    /// A program of the operator, with these scopes; of all organizations unless one is named.
    pub fn program(&self, org: Option<&str>, allow: &[TokenScope]) -> Program {
        self.program_with(&settings(org, allow))
    }

    pub fn program_with(&self, settings: &TokenSettings) -> Program {
        let NewToken { secret, token } =
            self.gateway.perform(async |to, now| management::create_token(to, OPERATOR, settings.clone(), now).await);
        let document = Arc::clone(&self.document);
        Program { address: self.api(), id: token.id.to_string(), secret: secret.expose().to_owned(), document }
    }

    /// Revokes the token of a program.
    pub fn revoke(&self, program: &Program) {
        let id = program.id.parse().unwrap();
        self.gateway.perform(async |to, now| management::revoke_token(to, OPERATOR, id, false, now).await);
    }

    /// A program that may do everything.
    pub fn root(&self) -> Program {
        self.program(None, &TokenScope::ALL)
    }

    /// Creates an organization with a user, by a program that may do everything. Returns the id of the organization.
    pub fn org(&self, name: &str) -> String {
        let root = self.root();
        let org = root.post("/orgs", &json!({ "name": name })).json()["id"].as_str().unwrap().to_owned();
        let user = json!({ "email": format!("ada@{name}.example"), "permissions": ["queries:read", "queries:write"] });
        assert_eq!(root.post(&format!("/orgs/{org}/users"), &user).status, 201);
        org
    }
}

/// The document that a gateway serves, without a token.
fn served_document(gateway: &Gateway) -> Arc<Document> {
    let served = Client::connect(gateway.addresses()[1]).get("/v1/openapi.json", "");
    assert_eq!((served.status, served.header("content-type")), (200, Some("application/json")));
    Arc::new(Document::new(&served.body))
}

fn over(redis: &Redis, upstream: &Upstream) -> Gateway {
    let state = format!("state: {{ redis: {{ url: '{}', deadline: 2s }} }}\n", redis.url());
    Gateway::with(&[upstream.address], &format!("{LISTEN}{state}"))
}

pub fn settings(org: Option<&str>, allow: &[TokenScope]) -> TokenSettings {
    TokenSettings {
        name: "pipeline".into(),
        org: org.map(str::to_owned),
        allow: allow.iter().copied().collect(),
        expires: None,
        networks: Vec::new(),
        client_san: None,
    }
}

impl Program {
    /// The same program at another gateway.
    pub fn at(&self, address: SocketAddr) -> Self {
        Self { address, ..self.clone() }
    }

    /// Makes a call, and validates the response against the document.
    pub fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let response =
            Client::connect(self.address).request(method, &format!("/v1{path}"), &self.secret, headers, body);
        if method != "HEAD" && response.status != 405 {
            self.document.validate(method, path, &response);
        }
        response
    }

    pub fn get(&self, path: &str) -> Response {
        self.call("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Response {
        self.call("POST", path, &[JSON], body.to_string().as_bytes())
    }

    pub fn patch(&self, path: &str, body: &Value) -> Response {
        self.call("PATCH", path, &[JSON], body.to_string().as_bytes())
    }

    pub fn delete(&self, path: &str) -> Response {
        self.call("DELETE", path, &[], b"")
    }
}
