//! The programs on the page of a new key: each makes a request with it.

use std::process::{Command, Output};

use tempfile::TempDir;

use super::fixture::Setup;
use crate::support::Client;

/// The origin of the configuration, and so of the examples.
const ORIGIN: &str = "http://127.0.0.1:8080";

/// The page of a new key of the member.
fn new_key_page(setup: &Setup) -> String {
    let member = setup.member();
    let fields = [("Sec-Fetch-Site", "same-origin"), ("Cookie", &*member.cookie)];
    let form = [&fields[..], &[("Content-Type", "application/x-www-form-urlencoded")]].concat();
    let mut client = Client::connect(setup.address());
    let created = client.request("POST", "/settings/keys/new", "", &form, b"name=example");
    assert_eq!(created.status, 303, "{created:?}");
    let sealed = created.header("set-cookie").unwrap().split(';').next().unwrap();
    let cookie = format!("{}; {sealed}", member.cookie);
    let page = client.request("GET", created.header("location").unwrap(), "", &[fields[0], ("Cookie", &*cookie)], b"");
    assert_eq!(page.status, 200, "{page:?}");
    String::from_utf8(page.body).unwrap()
}

/// The text of an element of code.
fn code(page: &str, id: &str) -> String {
    let (_, rest) = page.split_once(&format!("<code id=\"{id}\"")).unwrap();
    let (_, rest) = rest.split_once('>').unwrap();
    let escaped = [("&#34;", "\""), ("&#39;", "'"), ("&#60;", "<"), ("&#62;", ">"), ("&#38;", "&")];
    escaped.iter().fold(rest.split_once("</code>").unwrap().0.to_owned(), |text, (from, to)| text.replace(from, to))
}

fn run(program: &str, arguments: &[&str], environment: &str, dir: &TempDir) -> Output {
    let line = format!("{environment}\nexec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &line, program]).args(arguments).current_dir(dir.path());
    command.env("GOCACHE", dir.path().join("cache")).env("GO111MODULE", "off").output().unwrap()
}

#[test]
fn programs_of_the_new_keys_page_make_a_request_with_the_key() {
    let setup = Setup::new();
    let page = new_key_page(&setup);
    let key = code(&page, "api-key");
    let exports = code(&page, "exports");
    let dir = tempfile::tempdir().unwrap();
    for (id, file, program, arguments) in [
        ("curl", "try.sh", "sh", &[][..]),
        ("python", "try.py", "python3", &[]),
        ("javascript", "try.js", "node", &[]),
        ("go", "try.go", "go", &["run"]),
    ] {
        let text = code(&page, id);
        assert_eq!(text.contains(&key), id == "curl", "{text}");
        assert!(text.contains(ORIGIN), "{text}");
        let text = text.replace(ORIGIN, &format!("http://{}", setup.address()));
        std::fs::write(dir.path().join(file), text).unwrap();
        for (environment, status) in [(exports.as_str(), "200"), ("export KEYGATE_API_KEY=sk_live_none", "401")] {
            let output = run(program, &[arguments, &[file]].concat(), environment, &dir);
            let said =
                format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            let status = if id == "curl" { "200" } else { status };
            assert!(said.contains(status), "{id}: {said}");
        }
    }
}

#[test]
fn page_names_the_event_before_the_expiry_where_a_sink_is_told() {
    assert!(!new_key_page(&Setup::new()).contains("key.expiring"));
    for (records, names) in [("changes", true), ("all", true), ("refusals", false)] {
        let sink = format!("{{ name: told, records: {records}, files: {{ path: told }} }}");
        let setup = Setup::with("{}", &format!("audit: {{ path: audit, ship: [{sink}] }}\n"));
        assert_eq!(new_key_page(&setup).contains("key.expiring"), names, "{records}");
    }
}
