//! Commands while the gateway serves and its configuration file is broken.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::reload::ok;
use crate::support::process::{KEYGATE, Setup};

/// The results of every command of the admin socket at a gateway that serves.
fn run_commands(keygate: &dyn Fn(&[&str]) -> Output, key: &str, what: &str) {
    let succeed = |arguments: &[&str]| {
        let output = keygate(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{what}: {arguments:?}: {stderr}");
        (String::from_utf8(output.stdout).unwrap(), stderr)
    };
    let id = &key["sk_live_".len()..][..9];
    succeed(&["org", "list"]);
    succeed(&["org", "suspend", "acme"]);
    succeed(&["org", "resume", "acme"]);
    succeed(&["user", "list", "--org", "acme"]);
    succeed(&["key", "list", "--org", "acme"]);
    succeed(&["key", "show", id]);
    let new = succeed(&["key", "create", "--org", "acme", "--user", "ada@example.com", what]).0;
    let (revoked, _) = succeed(&["key", "revoke", &new["sk_live_".len()..][..9]]);
    assert!(revoked.contains("revoked"), "{revoked}");
    succeed(&["session", "list"]);
    succeed(&["state", "export"]);
    succeed(&["upstreams"]);
    succeed(&["audit", "ship", "status"]);
    let (explained, noted) = succeed(&["explain", id]);
    assert!(explained.contains("active"), "{explained}");
    assert!(noted.contains("the last decisions are not shown: the configuration has errors"), "{noted}");
    // The last reload failed, or the file is another one: it says so by its exit code.
    let status = keygate(&["config", "status"]);
    assert_eq!(status.status.code(), Some(1), "{what}: {}", String::from_utf8_lossy(&status.stderr));
}

#[test]
fn commands_work_while_the_gateway_serves_and_its_file_is_broken() {
    let upstream = ok();
    let (setup, key) = Setup::new(upstream.address, "").and_key();
    let gateway = setup.start();
    let before = setup.text();
    let file = setup.path().join("keygate.yaml");
    let socket = setup.path().join("admin.sock");

    setup.write(&format!("{before}htpp: {{ max_fields: 5 }}\n"));
    run_commands(&|arguments| setup.keygate(arguments), &key, "unknown key");
    assert!(setup.keygate(&["health"]).status.success(), "the gateway is ready, whatever becomes of its file");

    setup.write(&format!("{before}listen: [\n"));
    run_commands(&|arguments| setup.keygate(arguments), &key, "no YAML");
    let noted = String::from_utf8(setup.keygate(&["org", "list"]).stderr).unwrap();
    let fallback = format!("; using the admin socket {} (or --socket PATH)\n", socket.display());
    assert_eq!(noted.lines().count(), 1, "{noted}");
    assert!(noted.contains("keygate.yaml:") && noted.ends_with(&fallback), "{noted}");

    fs::remove_file(&file).unwrap();
    run_commands(&|arguments| setup.keygate(arguments), &key, "missing file");

    // With --socket, no file is needed at all.
    let elsewhere = tempfile::tempdir().unwrap();
    let by_socket = |arguments: &[&str]| {
        let mut command = Command::new(KEYGATE);
        command.current_dir(elsewhere.path()).args(arguments).arg("--socket").arg(&socket).output().unwrap()
    };
    run_commands(&by_socket, &key, "other directory");
    let upgraded = by_socket(&["upgrade", "--binary", "/nonexistent"]);
    assert_eq!(upgraded.status.code(), Some(1), "the gateway was asked: {}", String::from_utf8_lossy(&upgraded.stderr));
    assert!(String::from_utf8_lossy(&upgraded.stderr).contains("the running gateway goes on as before"));

    // Without a gateway, the errors of the file are the answer; a socket that was named is the gateway's alone.
    gateway.stop();
    setup.write("listen: [");
    assert_eq!(setup.keygate(&["org", "list"]).status.code(), Some(64));
    assert_eq!(setup.keygate(&["upstreams"]).status.code(), Some(64));
    setup.write(&before);
    assert_eq!(by_socket(&["org", "list"]).status.code(), Some(69));
    setup.ok(&["org", "list"]);
}

#[test]
fn configuration_file_is_found_by_the_environment_and_in_the_working_directory() {
    let setup = Setup::new("127.0.0.1:1".parse().unwrap(), "");
    let file = setup.path().join("keygate.yaml");
    let check = |variable: Option<&Path>, arguments: &[&str]| {
        let mut command = Command::new(KEYGATE);
        command.arg("check").args(arguments).current_dir(setup.path()).env_remove("KEYGATE_CONFIG");
        command.envs(variable.map(|file| ("KEYGATE_CONFIG", file)));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let by_variable = check(Some(&file), &[]);
    assert_eq!(by_variable.1, format!("{}: ok\n", file.display()), "{}", by_variable.2);

    let option_wins = check(Some(Path::new("/nonexistent")), &["--config", "keygate.yaml"]);
    assert_eq!(option_wins.1, "keygate.yaml: ok\n", "{}", option_wins.2);

    fs::create_dir(setup.path().join("config")).unwrap();
    fs::copy(&file, setup.path().join("config/keygate.yaml")).unwrap();
    let by_directory = check(None, &[]);
    assert_eq!(by_directory.1, "config/keygate.yaml: ok\n", "{}", by_directory.2);
}
