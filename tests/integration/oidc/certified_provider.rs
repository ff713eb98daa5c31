//! The certified provider (`tests/oidc-provider`), started for one test.
//!
//! ```ignore
//! let real = Real::start(&["http://127.0.0.1:8080/callback"], json!({"ada": {"email": "ada@example.com"}}));
//! let settings = real.settings();                          // of its one client
//! let back = Browser::new().sign_in(&begun.url, "ada");    // the address that the browser is sent back to
//! ```
//!
//! It ends with its handle, and when the test's process does, as its standard input ends then.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use control::oidc::Settings;
use domain::secret::Secret;
use serde_json::{Value, json};

const CLIENT_ID: &str = "keygate";
/// The address to which the browser is sent after the sign-out.
pub const SIGNED_OUT: &str = "http://127.0.0.1:1/signed-out";

/// A provider in a process of its own.
pub struct Real {
    child: Child,
    issuer: String,
    client: Value,
    accounts: tempfile::NamedTempFile,
}

/// The Node.js that the provider runs on: one of its own, where the system's was too old.
pub fn node() -> &'static str {
    const OWN: &str = "tests/oidc-provider/node_modules/node/bin/node";
    if Path::new(OWN).exists() { OWN } else { "node" }
}

impl Real {
    /// Starts it with one client, which has these redirect URIs, and with these accounts.
    pub fn start(redirect_uris: &[&str], accounts: Value) -> Self {
        Self::start_with(json!({"redirect_uris": redirect_uris}), accounts, json!({}))
    }

    /// The same, with this client metadata and these options of `provider.js`.
    pub fn start_with(metadata: Value, accounts: Value, options: Value) -> Self {
        let mut client = json!({
            "client_id": CLIENT_ID,
            "client_secret": uuid::Uuid::new_v4().to_string(),
            "post_logout_redirect_uris": [SIGNED_OUT],
        });
        client.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), accounts.to_string()).unwrap();
        let mut log = tempfile::tempfile().unwrap();
        let mut child = Command::new(node())
            .arg("tests/oidc-provider/provider.js")
            .env("CLIENTS", json!([client]).to_string())
            .env("ACCOUNTS", file.path())
            .env("OPTIONS", options.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("node does not start ({error}): `make setup` installs it"));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some(issuer) = line.trim_end().strip_prefix("listening ") else {
            let mut why = String::new();
            log.rewind().unwrap();
            log.read_to_string(&mut why).unwrap();
            panic!("the provider does not start; `make setup` installs what it needs: {why}");
        };
        Self { issuer: issuer.to_owned(), child, client, accounts: file }
    }

    /// The issuer, which is the address.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Replaces the accounts and their claims from now on.
    pub fn set_accounts(&self, accounts: &Value) {
        fs::write(self.accounts.path(), accounts.to_string()).unwrap();
    }

    /// Settings of its client.
    pub fn settings(&self) -> Settings {
        let secret = self.client["client_secret"].as_str().map(|secret| Secret::new(secret.to_owned()));
        Settings {
            name: "real".into(),
            label: "The real one".into(),
            issuer: self.issuer.clone(),
            client_id: CLIENT_ID.into(),
            audiences: Vec::new(),
            client_secret: secret,
            scopes: vec!["email".into(), "profile".into(), "groups".into()],
            claims: vec!["groups".into()],
            tls: platform::tls::ClientSettings::default(),
        }
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
