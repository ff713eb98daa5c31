//! The life of an organization and a key by `curl` from another network, run twice with the same idempotency keys.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::add_listener;
use super::namespace::{ClientNetwork, SERVER};
use crate::authority::Authority;
use crate::support::{Setup, Upstream};

const PORT: u16 = 8443;
const SCOPES: &str =
    "orgs:read,orgs:write,users:read,users:write,keys:read,keys:create,keys:rotate,keys:revoke,keys:set";

/// A program on the machine of the client. The token and the certificate of the authority are files there.
struct Program<'a> {
    network: &'a ClientNetwork,
    dir: &'a Path,
}

/// An answer as curl prints it.
#[derive(Debug)]
struct Answer {
    status: u16,
    /// Header fields, in lower case.
    head: String,
    body: Value,
}

impl Answer {
    fn is_replayed(&self) -> bool {
        self.head.contains("idempotent-replayed: true")
    }

    fn etag(&self) -> String {
        let field = self.head.lines().find_map(|line| line.strip_prefix("ETag: ").or(line.strip_prefix("etag: ")));
        field.unwrap().trim().to_owned()
    }

    fn text(&self, member: &str) -> String {
        self.body[member].as_str().unwrap_or_else(|| panic!("no {member}: {self:?}")).to_owned()
    }
}

impl Program<'_> {
    fn call(&self, method: &str, path: &str, fields: &[&str], body: &Value) -> Answer {
        let mut curl = self.network.command("curl");
        curl.args(["--silent", "--show-error", "--include", "--max-time", "30", "--cacert", "ca.pem"]);
        curl.args(["--header", "@token.txt", "--request", method]).current_dir(self.dir);
        for field in fields {
            curl.args(["--header", field]);
        }
        if !body.is_null() {
            curl.args(["--header", "Content-Type: application/json", "--data-binary", &body.to_string()]);
        }
        let text = stdout(curl.arg(format!("https://{SERVER}:{PORT}/v1{path}")));
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        let body = if body.is_empty() { Value::Null } else { serde_json::from_str(body).unwrap() };
        Answer { status, head: head.to_owned(), body }
    }

    fn post(&self, path: &str, key: &str, body: &Value) -> Answer {
        self.call("POST", path, &[&format!("Idempotency-Key: {key}")], body)
    }
}

/// Keys that a program has made offline.
struct Offline {
    id: String,
    digest: String,
    rotated: String,
}

/// The steps of the program. `etag` is the tag that the key had before it was changed, and `offline` its secrets, once
/// they are known: the program has made a note of both. Returns them, and the calls with idempotency keys.
fn provision(program: &Program<'_>, setup: &Setup, noted: Option<(Offline, String)>) -> (Offline, String, Vec<Answer>) {
    let mut posted = Vec::new();
    let org = program.post("/orgs", "org", &json!({ "name": "acme" }));
    let path = format!("/orgs/{}", org.text("id"));
    posted.push(org);
    let tag = program.call("GET", &path, &[], &Value::Null).text("tag");
    let user = json!({ "email": "ada@acme.example", "permissions": ["queries:read", "queries:write"] });
    posted.push(program.post(&format!("{path}/users"), "user", &user));
    let (noted, known_tag) = noted.unzip();
    let offline = noted.unwrap_or_else(|| make_offline(setup, &tag));
    let key = json!({ "name": "deploy", "user": "ada@acme.example", "id": offline.id, "sha256": offline.digest });
    let created = program.post(&format!("{path}/keys"), "key", &key);
    let of_key = format!("/keys/{}", created.text("id"));
    let etag = known_tag.unwrap_or_else(|| created.etag());
    posted.push(created);
    let shown = program.call("GET", &of_key, &[], &Value::Null);
    assert_eq!((shown.status, shown.body["id"].as_str()), (200, Some(&*offline.id)), "{shown:?}");
    let policy = json!({ "policy": { "permissions": ["queries:read"], "concurrent": 3 } });
    posted.push(program.call("PATCH", &of_key, &[&format!("If-Match: {etag}")], &policy));
    posted.push(program.post(&format!("{of_key}/rotate"), "rotate", &json!({ "sha256": offline.rotated })));
    posted.push(program.post(&format!("{of_key}/revoke"), "revoke", &Value::Null));
    let shown = program.call("GET", &of_key, &[], &Value::Null);
    assert_eq!((shown.text("status").as_str(), &shown.body["policy"]["concurrent"]), ("revoked", &json!(3)));
    (offline, etag, posted)
}

fn make_offline(setup: &Setup, tag: &str) -> Offline {
    let words = |arguments: &[&str]| {
        let line = setup.ok(&[&["key", "generate"], arguments].concat());
        let [id, _, digest] = [0, 1, 2].map(|word| line.split(' ').nth(word).unwrap().to_owned());
        (id, digest)
    };
    let (id, digest) = words(&["--tag", tag]);
    let (_, rotated) = words(&["--id", &id]);
    Offline { id, digest, rotated }
}

/// The state, without the lines that say when it was written, and the changes by programs in the audit.
fn observed(setup: &Setup) -> (Vec<String>, Vec<String>) {
    let is_record = |line: &&str| !line.starts_with("{\"format\"") && !line.starts_with("{\"end\"");
    let state = setup.ok(&["state", "export"]).lines().filter(is_record).map(str::to_owned).collect();
    let is_made = |line: &&str| line.contains("\"auth_method\":\"token\"") && !line.contains("client_error");
    let changes = setup.ok(&["audit", "export"]).lines().filter(is_made).map(str::to_owned).collect();
    (state, changes)
}

fn stdout(command: &mut Command) -> String {
    let output = command.output().expect("nsenter (package util-linux) and curl are installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn program_in_another_network_runs_twice_and_changes_nothing_the_second_time() {
    let name = "management_api::network::program_in_another_network_runs_twice_and_changes_nothing_the_second_time";
    let Some(network) = ClientNetwork::link(name) else { return };
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "");
    let authority = Authority::new();
    authority.certify(&[SERVER]).write(setup.path(), "server");
    let client = tempfile::tempdir().unwrap();
    authority.write(&client.path().join("ca.pem"));
    let tls = "{ certificates: [{ chain: server.pem, key: server.key }] }";
    add_listener(&setup, &format!("address: '{SERVER}:{PORT}', tls: {tls}"));
    let gateway = setup.start();
    let token = setup.ok(&["token", "create", "pipeline", "--network", "198.18.0.2/32", "--allow", SCOPES]);
    std::fs::write(client.path().join("token.txt"), format!("Authorization: Bearer {token}\n")).unwrap();
    let program = Program { network: &network, dir: client.path() };

    let (offline, etag, first) = provision(&program, &setup, None);
    let statuses = |posted: &[Answer]| posted.iter().map(|answer| answer.status).collect::<Vec<_>>();
    assert_eq!(statuses(&first), [201, 201, 201, 200, 200, 200], "{first:#?}");
    let before = observed(&setup);
    let (_, _, second) = provision(&program, &setup, Some((offline, etag)));
    // The change of the key is one of the key as it was then.
    assert_eq!(statuses(&second), [201, 201, 201, 412, 200, 200], "{second:#?}");
    for (first, second) in first.iter().zip(&second).filter(|(_, second)| second.status != 412) {
        assert!(!first.is_replayed() && second.is_replayed(), "{first:?} {second:?}");
        assert_eq!(first.body["id"], second.body["id"]);
    }
    let after = observed(&setup);
    assert_eq!(after.0, before.0, "the state is the same");
    assert_eq!(after.1, before.1, "no change was recorded");
    let id = &token["kgm_".len()..][..10];
    let by_token = setup.ok(&["audit", "list", "--token", id, "--json"]);
    for action in ["org.create", "user.create", "key.create", "key.set", "key.rotate", "key.revoke"] {
        assert!(by_token.contains(action), "{action}: {by_token}");
    }
    gateway.stop();
}
