//! The API tested by schemathesis, and the examples of its document.

use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::{fs, io, thread};

use serde_json::{Value, json};

use super::fixture::Setup;
use crate::openapi::{CHECKS, Schemathesis};

const AUTH: &str = "[auth.openapi.token]\nbearer = \"${CREDENTIAL}\"\n";

#[test]
fn api_conforms_to_its_document() {
    // With the default limits, most calls would be refused.
    let limits = "limits: { management: { requests: 1000000, per: 1m }, sign_ins: { requests: 1000000, per: 1m } }\n";
    let setup = Setup::with(limits);
    let (org, root) = (setup.org("acme"), setup.root());
    let body = json!({ "name": "laptop", "user": "ada@acme.example" });
    let key = root.post(&format!("/orgs/{org}/keys"), &body).json()["id"].as_str().unwrap().to_owned();
    let run = |more: &str, options: &[&str]| {
        let api = Schemathesis {
            document: format!("http://{}/v1/openapi.json", root.address),
            url: format!("http://{}/v1", root.address),
            credential: &root.secret,
            config: &format!("{AUTH}{CHECKS}{more}"),
        };
        api.run(options);
    };
    run("", &["--exclude-operation-id", "revokeToken"]);
    // Apart from the others: schemathesis would find its own token in a list, and revoke it.
    let without_links = ["--phases", "examples,coverage,fuzzing"];
    run("", &[&["--include-operation-id", "revokeToken"][..], &without_links].concat());
    // On records that there are, and that stay.
    let records = format!(
        "[parameters]\n\"path.org\" = \"{org}\"\n\"path.key\" = \"{key}\"\n\"path.user\" = \"ada@acme.example\"\n"
    );
    let ends = ["revokeToken", "removeUser", "revokeKey"].map(|name| ["--exclude-operation-id", name]).concat();
    run(&records, &[&ends[..], &without_links].concat());
    assert_eq!(root.get(&format!("/keys/{key}")).status, 200, "the token is still valid");
    let orgs = root.get("/orgs").json()["items"].as_array().unwrap().len();
    let keys = root.get(&format!("/orgs/{org}/keys")).json()["items"].as_array().unwrap().len();
    assert!(orgs > 1 && keys > 1, "schemathesis created {orgs} organizations and {keys} keys");
}

/// Schemathesis has no URL for a Unix socket: a relay on loopback leads to it.
#[test]
fn api_of_the_operator_conforms_to_its_document() {
    let setup = Setup::embedded();
    let org = setup.org("acme");
    let relay = Relay::to(setup.gateway.dir.path().join("admin.sock"));
    let document = setup.gateway.dir.path().join("operator.json");
    fs::write(&document, of_operator(&fs::read("docs/openapi.json").unwrap()).to_string()).unwrap();
    let api = Schemathesis {
        document: document.to_str().unwrap().to_owned(),
        url: format!("http://{}/v1", relay.address),
        credential: "none",
        config: &format!("{CHECKS}\n[parameters]\n\"path.org\" = \"{org}\"\n"),
    };
    api.run(&["--phases", "examples,coverage,fuzzing"]);
    let keys = setup.root().get(&format!("/orgs/{org}/keys")).json()["items"].as_array().unwrap().len();
    assert!(keys > 1, "schemathesis created {keys} keys");
}

/// The operations of the operator, who needs no credential.
fn of_operator(document: &[u8]) -> Value {
    let mut document: Value = serde_json::from_slice(document).unwrap();
    document.as_object_mut().unwrap().remove("security");
    let is_of_operator = |operation: &Value| operation["x-callers"].as_array().unwrap().contains(&json!("operator"));
    for path in document["paths"].as_object_mut().unwrap().values_mut().map(|path| path.as_object_mut().unwrap()) {
        path.retain(|name, operation| name == "parameters" || is_of_operator(operation));
        for operation in path.values_mut().filter_map(Value::as_object_mut) {
            operation.remove("security");
        }
    }
    document
}

/// Leads connections to a Unix socket, for as long as the process lives.
struct Relay {
    address: SocketAddr,
}

impl Relay {
    fn to(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            // An error of either side ends both, as a client sees it.
            for client in listener.incoming().map_while(Result::ok) {
                let server = UnixStream::connect(&socket).unwrap();
                let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (mut from_server, mut to_client) = (server, client);
                thread::spawn(move || {
                    let _ = io::copy(&mut from_client, &mut to_server);
                    let _ = to_server.shutdown(Shutdown::Write);
                });
                thread::spawn(move || {
                    let _ = io::copy(&mut from_server, &mut to_client);
                    let _ = to_client.shutdown(Shutdown::Both);
                });
            }
        });
        Self { address }
    }
}

#[test]
fn examples_of_the_document_are_valid() {
    assert_eq!(Setup::embedded().document.wrong_examples(), BTreeMap::new());
}
