//! Files of the access log, and changes of the configuration.

use std::os::unix::fs::PermissionsExt as _;

use keygate::config::Config;

use super::{FILE, lines, lines_of};
use crate::support::{Client, Gateway, Upstream, eventually};
use crate::tls::downstream::Encrypted;

#[test]
fn new_file_may_be_read_by_its_group() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&[upstream.address], FILE);
    let mode = gateway.dir.path().join("access.log").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn reload_changes_file_and_requests_and_refuses_a_file_that_cannot_be_opened() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&[upstream.address], FILE);
    let (key, dir) = (gateway.key().text, gateway.dir.path());
    let get = |path: &str| assert_eq!(Client::connect(gateway.address).get(path, &key).status, 200);
    get("/first");
    lines(&gateway, 1);
    gateway.reconfigure(|text| text.replace("file: access.log", "file: missing/other.log"));
    eventually("the reload is refused", || gateway.metric("keygate_config_last_reload_successful") as u64 == 0);
    get("/second");
    lines(&gateway, 2);
    gateway.reconfigure(|text| text.replace("file: missing/other.log", "file: other.log"));
    eventually("requests are logged to the other file", || {
        get("/third");
        dir.join("other.log").metadata().is_ok_and(|file| file.len() > 0)
    });
    let before = lines_of(&dir.join("access.log")).len();
    gateway.reconfigure(|text| text.replace("file: other.log", "file: other.log, requests: unaudited"));
    let mut number = 0;
    eventually("audited requests have no line", || {
        number += 1;
        let (audited, refused) = (format!("/audited/{number}"), format!("/refused/{number}"));
        get(&audited);
        assert_eq!(Client::connect(gateway.address).get(&refused, "").status, 401);
        let logged = |path: &str| lines_of(&dir.join("other.log")).iter().any(|line| line["url.path"] == *path);
        eventually("the refusal is logged", || logged(&refused));
        !logged(&audited)
    });
    gateway.reconfigure(|text| text.replace("file: other.log, requests: unaudited", "file: access.log"));
    eventually("requests are logged to the first file again", || {
        get("/fifth");
        lines_of(&dir.join("access.log")).len() > before
    });
}

#[test]
fn last_lines_are_written_when_the_gateway_stops() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::with(&[upstream.address], FILE);
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    for _ in 0..100 {
        assert_eq!(client.get("/", &key).status, 200);
    }
    gateway.restart_with(|text| text.replace(FILE, ""));
    assert_eq!(lines_of(&gateway.dir.path().join("access.log")).len(), 100);
}

#[test]
fn encrypted_requests_have_their_tls_version() {
    let encrypted = Encrypted::start();
    let key = encrypted.gateway.key().text;
    encrypted.gateway.reconfigure(|text| format!("{text}{FILE}"));
    let path = encrypted.gateway.dir.path().join("access.log");
    eventually("requests are logged", || {
        assert_eq!(encrypted.connect().get("/", &key).unwrap().status, 200);
        path.metadata().is_ok_and(|file| file.len() > 0)
    });
    let line = lines_of(&path).remove(0);
    assert_eq!((&line["tls.version"], &line["tls.version_protocol"]), (&"1.3".into(), &"tls".into()));
}

#[test]
fn wrong_settings_are_errors_with_their_places() {
    let error = |access_log: &str| {
        let text = format!(
            "{{listen: [address: '127.0.0.1:0'], admin: {{socket: a.sock}}, state: {{embedded: {{path: s.db}}}}, \
             audit: {{path: audit}}, upstream: {{endpoints: ['http://127.0.0.1:1']}}, \
             telemetry: {{access_log: {access_log}}}}}"
        );
        Config::parse(std::path::Path::new("x.yaml"), &text).map(|config| config.access_log).map_err(|e| e.to_string())
    };
    for good in ["{file: a.log}", "{stdout: true, requests: unaudited}"] {
        assert!(error(good).unwrap().is_some(), "{good}");
    }
    for (bad, part) in [
        ("{}", "telemetry.access_log.file"),
        ("{stdout: false}", "is missing"),
        ("{file: a, stdout: true}", "one of several"),
        ("{file: a, requests: some}", "requests"),
    ] {
        let error = error(bad).unwrap_err();
        assert!(error.contains(part), "{bad}: {error}");
    }
}
