//! `keygate demo`: the commands that it prints work when they are pasted.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use parking_lot::Mutex;

use crate::support::page::block;
use crate::support::{Client, KEYGATE, Upstream, free_address};

/// Held while a demo starts: two that look for a free port of `/metrics` at once find the same one.
static START: Mutex<()> = Mutex::new(());

struct Demo {
    child: Child,
    lines: Vec<String>,
}

impl Demo {
    /// Starts the demo as the README says, and reads its output.
    fn start(listen: SocketAddr, dir: &Path) -> Self {
        Self::start_with(listen, dir, &arguments(&block("cargo run -- demo")))
    }

    /// The same, with these arguments.
    fn start_with(listen: SocketAddr, dir: &Path, options: &[String]) -> Self {
        let _starting = START.lock();
        let mut command = Command::new(KEYGATE);
        command.args(options).arg("--listen").arg(listen.to_string()).arg("--dir").arg(dir);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let last = line.starts_with("Ctrl-C");
            lines.push(line);
            if last {
                break;
            }
        }
        Self { child, lines }
    }

    /// The rest of the line that begins with a name.
    fn named(&self, name: &str) -> &str {
        let line = self.lines.iter().find_map(|line| line.trim_start().strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name:?} in {:#?}", self.lines)).trim()
    }

    /// Runs the line after a heading in a shell; returns its output.
    fn paste(&self, heading: &str) -> String {
        let at = self.lines.iter().position(|line| line.starts_with(heading)).unwrap();
        let output = Command::new("sh").arg("-c").arg(&self.lines[at + 1]).output().unwrap();
        assert!(output.status.success(), "{heading}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn stop(mut self) {
        assert!(Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // Killing fails when the demo has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn demo_output_can_be_pasted_and_works() {
    let outer = tempfile::tempdir().unwrap();
    // A name that needs quoting in a shell.
    let dir = outer.path().join("ada's demo");
    let listen = free_address();
    let demo = Demo::start(listen, &dir);
    let go_on = demo.named("configuration, state and audit; to continue later:");
    assert_eq!(go_on, format!("{KEYGATE} demo --dir '{}' --listen {listen}", quoted(&dir)));

    let before = std::fs::read(dir.join("keygate.yaml")).unwrap();
    let second = Command::new(KEYGATE).args(["demo", "--listen", "127.0.0.1:0", "--dir"]).arg(&dir).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8(second.stderr).unwrap().contains("another demo is running in"));
    assert_eq!(std::fs::read(dir.join("keygate.yaml")).unwrap(), before, "the running demo's configuration stays");
    let page = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let first = page(&demo.paste("The first page:"));
    let next = page(&demo.paste("The next page"));
    assert_eq!((first["items"].as_array().unwrap().len(), next["items"].as_array().unwrap().len()), (2, 2));
    assert_ne!(first["items"][1]["id"], next["items"][0]["id"]);
    assert!(demo.paste("A request that is refused").contains("insufficient_scope"));
    assert!(demo.paste("Metrics:").contains("keygate_requests_total{code=\"403\",route=\"queries.create\"} 1"));
    assert!(demo.paste("Audit records:").contains("queries.create"));

    let reader = demo.named("may read ").to_owned();
    for limit in ["1", "7", "20", "100", "1000"] {
        let ids = ids(listen, &reader, limit);
        assert_eq!(ids.len(), 250, "limit {limit}");
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 250, "limit {limit}");
    }
    assert!(demo.paste("Create a query").starts_with("HTTP/1.1 201"));
    demo.stop();

    let again = Demo::start(listen, &dir);
    assert_eq!(again.named("may read "), reader, "the keys are printed again");
    assert_eq!(ids(listen, &reader, "100").len(), 251, "the stored queries are there again");
    again.stop();
}

/// A demo in front of one's own server: one key, one command, and nothing of query-store.
#[test]
fn demo_in_front_of_another_server_prints_a_key_and_a_command_that_works() {
    let outer = tempfile::tempdir().unwrap();
    let upstream = Upstream::start();
    let listen = free_address();
    let dir = outer.path().join("demo");
    let url = format!("http://{}/", upstream.address);
    let command = block("cargo run -- demo --upstream http://127.");
    assert!(command.contains("http://127.0.0.1:3000"), "{command}");
    let arguments = arguments(&command.replace("http://127.0.0.1:3000", &url));
    let demo = Demo::start_with(listen, &dir, &arguments);
    assert!(demo.lines[0].ends_with(&format!("in front of http://{}", upstream.address)), "{:#?}", demo.lines);
    assert_eq!(demo.lines.iter().filter(|line| line.starts_with("curl ")).count(), 1, "{:#?}", demo.lines);
    assert!(demo.paste("A request through the gateway").starts_with("HTTP/1.1 200"));
    let received = upstream.last();
    assert!(received.header("x-user-id").is_some() && received.header("authorization").is_none(), "{received:?}");
    assert!(!dir.join("queries.db").exists());
    let key = demo.lines.iter().find(|line| line.trim().starts_with("sk_live_")).unwrap().clone();
    demo.stop();

    let again = Demo::start_with(listen, &dir, &arguments);
    assert!(again.lines.contains(&key), "the key is printed again");
    again.stop();
    let queries = Demo::start(listen, &dir);
    assert!(queries.paste("The first page:").contains("nextCursor"), "the directory also serves the usual demo");
    queries.stop();
}

#[test]
fn failed_demo_removes_its_temporary_directory() {
    let temporary = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let mut command = Command::new(KEYGATE);
    command.args(["demo", "--listen", &listen]).env("TMPDIR", temporary.path());
    let _starting = START.lock();
    let ended = command.output().unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.contains("choose another address with --listen"), "{told}");
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "the temporary directory is removed");
}

/// The arguments of the program in a command of `cargo run`.
fn arguments(command: &str) -> Vec<String> {
    command.split_once(" -- ").unwrap().1.split_whitespace().map(str::to_owned).collect()
}

/// Escapes a path for single quotes in a shell.
fn quoted(path: &Path) -> String {
    path.to_str().unwrap().replace('\'', r"'\''")
}

/// Fetches the ids of all queries, page by page.
fn ids(listen: SocketAddr, key: &str, limit: &str) -> Vec<String> {
    let mut client = Client::connect(listen);
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let response = client.get(&format!("/api/queries?limit={limit}{cursor}"), key);
        assert_eq!(response.status, 200, "{response:?}");
        let page = response.json();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= limit.parse::<usize>().unwrap().min(100));
        ids.extend(items.iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        match page.get("nextCursor") {
            Some(next) => cursor = format!("&cursor={}", next.as_str().unwrap()),
            None => return ids,
        }
    }
}
