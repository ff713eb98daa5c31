//! A gateway as a separate process with its log at level trace, and a check that the log contains no secret of the
//! test.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::browser::Browser;
use crate::support::{eventually, free_address};

const KEYGATE: &str = env!("CARGO_BIN_EXE_keygate");
/// Admin of the organization.
pub const ADMIN: &str = "admin@demo.example";
/// Member of the organization.
pub const MEMBER: &str = "reader@demo.example";

/// A running gateway. Dropping it kills the process.
pub struct Gateway {
    child: Child,
    /// Scheme, host and port.
    pub origin: String,
    dir: tempfile::TempDir,
    /// Its output.
    pub lines: Vec<String>,
    keys: RefCell<BTreeSet<String>>,
}

/// The response that curl received.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub text: String,
}

impl Gateway {
    /// The demo: query-store as the upstream, and an organization with an admin and two members.
    pub fn demo() -> Self {
        // The demo looks for free ports before it binds them; another process may bind them in between.
        (0..10).find_map(|_| Self::try_demo()).expect("the demo starts")
    }

    fn try_demo() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(KEYGATE);
        command.args(["demo", "--listen", "127.0.0.1:0", "--dir"]).arg(dir.path());
        let mut child = logging(&mut command, &dir).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
            lines.push(line);
            if lines.last().is_some_and(|line| line.starts_with("Ctrl-C")) {
                break;
            }
        }
        let mut demo = Self { child, origin: String::new(), dir, lines, keys: RefCell::default() };
        if demo.lines.is_empty() {
            let log = demo.log();
            assert!(
                log.contains("ddress already in use") || log.contains("ddress in use"),
                "the demo does not start: {log}"
            );
            return None;
        }
        let origin = demo.lines.iter().find_map(|line| line.trim().strip_prefix("gateway"));
        demo.origin = origin.expect("the demo prints its address").trim().to_owned();
        Some(demo)
    }

    /// A gateway with this block `session`, and an organization as in the demo. Its upstream is unreachable.
    pub fn with_sessions(address: SocketAddr, block: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (admin, unreachable, origin) = (free_address(), free_address(), format!("http://{address}"));
        let text = format!(
            "listen: [{{ address: '{address}' }}]\n\
             admin: {{ socket: admin.sock, address: '{admin}' }}\n\
             upstream: {{ endpoints: ['http://{unreachable}'] }}\n\
             state: {{ embedded: {{ path: state.db }} }}\n\
             audit: {{ path: audit }}\n\
             timeouts: {{ lame_duck: 0s }}\n\
             session:\n  origin: '{origin}'\n{block}"
        );
        fs::write(dir.path().join("keygate.yaml"), text).unwrap();
        let mut command = Command::new(KEYGATE);
        command.args(["serve", "--config"]).arg(dir.path().join("keygate.yaml"));
        let child = logging(&mut command, &dir).stdout(Stdio::null()).spawn().unwrap();
        let gateway = Self { child, origin, dir, lines: Vec::new(), keys: RefCell::default() };
        eventually("the gateway is ready", || gateway.try_keygate(&["health"]).is_ok());
        gateway.keygate(&["org", "create", "demo"]);
        let admin = ["user", "create", "--org", "demo", ADMIN, "--permission", "org:admin"];
        gateway.keygate(&admin);
        gateway.keygate(&["user", "create", "--org", "demo", MEMBER]);
        gateway
    }

    /// The address of a page of the dashboard.
    pub fn page(&self, path: &str) -> String {
        format!("{}/settings{path}", self.origin)
    }

    /// The link that the demo printed.
    pub fn printed_link(&self) -> &str {
        let link = self.lines.iter().find(|line| line.contains("/settings/link/"));
        link.expect("the demo prints a link")
    }

    /// The demo's key whose owner may only read.
    pub fn demo_key(&self) -> String {
        let key = self.lines.iter().find_map(|line| line.trim().strip_prefix("may read "));
        let key = key.expect("the demo prints its keys").trim().to_owned();
        self.keys.borrow_mut().insert(key.clone());
        key
    }

    /// Creates a sign-in link for this user.
    pub fn link(&self, user: &str) -> String {
        self.keygate(&["session", "link", "--org", "demo", user])
    }

    /// Signs a user in.
    pub fn sign_in(&self, browser: &Browser, user: &str) {
        browser.go(&self.link(user));
        browser.click_link_or_submit("main button");
        assert_eq!(browser.heading(), "API Keys", "{user} is signed in");
    }

    /// Creates a key in the browser; returns the key and its id.
    pub fn make_key(&self, browser: &Browser, name: &str) -> (String, String) {
        browser.go(&self.page("/keys/new"));
        browser.fill("#name", name);
        browser.press("Create API Key");
        self.new_key(browser)
    }

    /// The key on the current page, and its id.
    pub fn new_key(&self, browser: &Browser) -> (String, String) {
        let key = browser.text("#api-key");
        self.keys.borrow_mut().insert(key.clone());
        let id = key.strip_prefix("sk_live_").and_then(|rest| rest.split('_').next());
        (key.clone(), id.expect("a key has an id").to_owned())
    }

    /// Creates a management token in the browser; returns its id.
    pub fn make_token(&self, browser: &Browser, name: &str) -> String {
        browser.go(&self.page("/tokens/new"));
        browser.fill("#name", name);
        browser.click("[name=scope][value='keys:read']");
        browser.press("Create token");
        self.new_token(browser)
    }

    /// The id of the management token on the current page.
    pub fn new_token(&self, browser: &Browser) -> String {
        let token = browser.text("#token");
        self.keys.borrow_mut().insert(token.clone());
        let id = token.strip_prefix("kgm_").and_then(|rest| rest.split('_').next());
        id.expect("a token has an id").to_owned()
    }

    /// Sends an API request with a key.
    pub fn list_with(&self, key: &str) -> Answer {
        paste(&format!("curl -s -i -H 'Authorization: Bearer {key}' '{}/api/queries?limit=2'", self.origin))
    }

    /// Runs a management command that must succeed, and returns its output.
    pub fn keygate(&self, arguments: &[&str]) -> String {
        self.try_keygate(arguments).unwrap_or_else(|told| panic!("{arguments:?}: {told}"))
    }

    fn try_keygate(&self, arguments: &[&str]) -> Result<String, String> {
        let config = self.dir.path().join("keygate.yaml");
        let output = Command::new(KEYGATE).args(arguments).arg("--config").arg(config).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap().trim_end().to_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// Stops the gateway, and checks that its log has no secret of the test or the browser.
    pub fn end(mut self, browser: &Browser) {
        let killed = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        assert!(self.child.wait().unwrap().success(), "the gateway exits with success");
        let (log, seen, keys) = (self.log(), browser.secrets(), self.keys.borrow());
        assert!(log.contains(" DEBUG ") && log.contains("user signed in"), "the log is not complete: {log}");
        assert!(!seen.is_empty(), "the browser had cookies");
        let secrets = seen.iter().chain(keys.iter());
        let told: Vec<&str> = secrets.filter_map(|secret| log.lines().find(|line| line.contains(secret))).collect();
        assert!(told.is_empty(), "the log contains secrets: {told:#?}");
    }

    fn log(&self) -> String {
        fs::read_to_string(log_file(&self.dir)).unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // The process may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Runs a curl command in a shell; returns the response.
pub fn paste(line: &str) -> Answer {
    let output = Command::new("sh").arg("-c").arg(line).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answer { status: status.unwrap_or_else(|| panic!("no status: {text} {:?}", output.stderr)), text }
}

fn logging<'a>(command: &'a mut Command, dir: &tempfile::TempDir) -> &'a mut Command {
    let log = File::create(log_file(dir)).unwrap();
    command.env("KEYGATE_LOG", "trace").stdin(Stdio::null()).stderr(log)
}

fn log_file(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("log")
}
