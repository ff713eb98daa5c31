//! The commands and workflows of `docs/ci.md`, run as they would be pasted.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::World;
use crate::support::page::block;
use crate::support::{KEYGATE, Upstream};

/// Address of the gateway on the page, which is also the audience of the tokens.
const GATEWAY: &str = "https://gateway.example.com";

#[test]
fn workflows_of_the_page_get_a_key_and_use_it() {
    let world = World::embedded();
    world.create_service("deployer", &["queries:read"]);
    let mut commands = block("keygate federation create github --org a");
    for issuer in [
        "https://token.actions.githubusercontent.com",
        "https://gitlab.com",
        "https://kubernetes.default.svc.cluster.local",
    ] {
        assert!(commands.contains(issuer), "{issuer}");
        commands = commands.replace(issuer, &world.ci.issuer());
    }
    // The last ones remove the rules that the workflows need.
    let (create, remove) = commands.split_once("keygate federation list").unwrap();
    run(&world, create, &[]);

    let token = |subject: &str| {
        let mut claims = world.claims();
        claims["aud"] = json!(GATEWAY);
        claims["sub"] = json!(subject);
        world.sign(&claims)
    };
    let github = token("repo:acme/app:ref:refs/heads/main");
    let runner = Upstream::answering(move |request, stream| {
        assert!(request.headers.iter().any(|(_, value)| value == "Bearer of the job"), "{request:?}");
        assert!(
            request.line.ends_with("?api-version=2.0&audience=https://gateway.example.com HTTP/1.1"),
            "{request:?}"
        );
        let body = json!({"value": github}).to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    });
    let url = format!("http://{}/token?api-version=2.0", runner.address);
    let job = [("ACTIONS_ID_TOKEN_REQUEST_URL", &*url), ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "of the job")];
    let masked = run(&world, &script(&block("# .github/workflows/deploy.yml")), &job);
    assert!(masked.starts_with("::add-mask::sk_live_"), "{masked}");
    let gitlab = token("project_path:acme/app:ref_type:branch:ref:main");
    run(&world, &script(&block("# .gitlab-ci.yml")), &[("KEYGATE_TOKEN", &gitlab)]);
    let file = world.gateway.dir.path().join("token");
    std::fs::write(&file, token("system:serviceaccount:ci:report")).unwrap();
    let kubernetes = script(&block("# job.yaml")).replace("/var/run/keygate/token", file.to_str().unwrap());
    run(&world, &kubernetes, &[]);

    let used = world.upstream.received();
    assert!(used.len() == 3 && used.iter().all(|request| request.line == "GET /queries HTTP/1.1"), "{used:?}");
    let listed = run(&world, &format!("keygate federation list{remove}"), &[]);
    assert!(listed.contains("project_path:acme/app:ref_type:branch:ref:main"), "{listed}");
}

/// The script of a workflow: the lines of its last text block.
fn script(workflow: &str) -> String {
    let (_, text) = workflow.split_once("|\n").unwrap_or_else(|| panic!("no script: {workflow}"));
    let indent = text.len() - text.trim_start().len();
    let is_of_script = |line: &&str| line.len() > indent && line[..indent].trim().is_empty();
    text.lines().take_while(is_of_script).map(|line| format!("{}\n", &line[indent..])).collect()
}

/// Runs a script, at the gateway of the test, to its end without an error. Returns what it prints.
fn run(world: &World, script: &str, environment: &[(&str, &str)]) -> String {
    let script = script.replace(&format!("{GATEWAY}/"), &format!("http://{}/", world.gateway.address));
    let path = format!("{}:{}", Path::new(KEYGATE).parent().unwrap().display(), std::env::var("PATH").unwrap());
    let config = world.gateway.dir.path().join("keygate.yaml");
    let mut shell = Command::new("sh");
    shell.args(["-ec", &script]).env("PATH", path).env("KEYGATE_CONFIG", config).envs(environment.iter().copied());
    let output = shell.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{errors}");
    String::from_utf8(output.stdout).unwrap()
}
