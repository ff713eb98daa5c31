//! Commands of `docs/coming-from.md`: the keys of another gateway are moved, and a client goes on with its key. And of
//! `docs/configuration.md`: the operations of a document become routes.

use std::fs;

use serde_json::json;

use crate::procedures::Office;
use crate::support::Shell;
use crate::support::page::{block, blocks};

/// An installation with the fields of the page.
fn office() -> Office {
    let office = Office::embedded();
    let is_of_page = |block: &crate::support::page::Block| block.page.ends_with("coming-from.md");
    let fields = blocks().into_iter().find(|block| is_of_page(block) && block.language == "yaml").unwrap();
    office.setup.write(&format!("{}\n{}", office.setup.text(), fields.text));
    office
}

/// Asserts that a request with curl, the last command of a block, was answered by the upstream.
#[track_caller]
fn assert_served(output: &str) {
    assert!(output.contains("HTTP/1.1 200 OK") && output.contains("{\"items\":["), "{output}");
}

#[test]
fn keys_of_kong_are_moved() {
    let office = office();
    let gateway = office.setup.start();
    let shell = Shell::of(&office.setup);
    fs::write(office.setup.path().join("of-kong.yaml"), block("_format_version: \"3.0\"")).unwrap();
    shell.program("deck", "[ \"$*\" = 'gateway dump --output-file kong.yaml' ] && exec cp of-kong.yaml kong.yaml");
    let output = shell.run(&block("deck gateway dump --output-file kong.yam"));
    assert!(output.contains("+ key acme/harry: user harry@consumer.invalid; limits 10 per 1m, burst 10"), "{output}");
    assert_served(&output);
    // Without its options, the permissions stay, and the groups are left.
    let (_, apply) =
        shell.try_run(&block("keygate convert kong kong.yaml --org acm").replace("> apply.yaml", "|| true"));
    assert!(apply.contains("consumers[0].acls[0].group: left out: "), "{apply}");
    gateway.stop();
}

#[test]
fn keys_of_apisix_are_moved() {
    let office = office();
    let gateway = office.setup.start();
    let admin = office.setup.path().join("apisix/admin");
    let shell =
        Shell::of(&office.setup).replace("http://127.0.0.1:9180", &format!("file://{}", office.setup.path().display()));
    fs::write(office.setup.path().join("apisix.yaml"), block("consumers:")).unwrap();
    let output = shell.run(&block("keygate convert apisix apisix.yaml --org"));
    assert!(output.contains("consumers[0].plugins.limit-count: left out: "), "two keys share the limit: {output}");
    assert_served(&output);

    // The same by the lists of the Admin API, where a file cannot have the name of a folder.
    fs::create_dir_all(admin.join("consumers/jack")).unwrap();
    let list = |path: &str, mut value: serde_json::Value, key: &str| {
        value["plugins"] = json!({ "key-auth": { "key": key } });
        json!({ "list": [{ "key": format!("/apisix/{path}"), "value": value }], "total": 1 }).to_string()
    };
    fs::write(admin.join("list"), list("consumers/jack", json!({ "username": "jack" }), "my-key")).unwrap();
    let credentials = list("consumers/jack/credentials/laptop", json!({}), "another-key");
    fs::write(admin.join("consumers/jack/credentials"), credentials).unwrap();
    let script = block("admin() { curl -sf -H \"X-API-KEY: $ADMIN").replace("admin consumers >", "admin list >");
    let output = shell.set("ADMIN_KEY", "x").run(&script);
    assert!(output.contains("converted 1 user with 2 keys"), "{output}");
    gateway.stop();
}

#[test]
fn keys_of_unkey_are_moved() {
    let office = office();
    let gateway = office.setup.start();
    fs::write(office.setup.path().join("unkey.json"), block("{\"keys\": [")).unwrap();
    let output =
        Shell::of(&office.setup).set("KEY", "sk_unkey_example").run(&block("keygate convert unkey unkey.json --org a"));
    assert!(
        output.contains("+ key acme/laptop: user user_1@consumer.invalid; limits 100 per 1m, burst 100"),
        "{output}"
    );
    assert_served(&output);
    gateway.stop();
}

#[test]
fn keys_of_secrets_are_moved() {
    let office = office();
    let text = office.setup.text().replace("headers: [apikey]", "headers: [apikey, x-api-key]");
    office.setup.write(&text);
    let gateway = office.setup.start();
    let objects = "{ kind: Secret, metadata: { name: keys }, stringData: { client1: supersecret-of-client1 } }\n---\n\
                   { kind: SecurityPolicy, metadata: { name: p }, spec: { apiKeyAuth: { credentialRefs: [{ name: keys \
                   }], extractFrom: [{ headers: [x-api-key] }] } } }\n";
    fs::write(office.setup.path().join("of-cluster.yaml"), objects).unwrap();
    let shell = Shell::of(&office.setup);
    shell.program("kubectl", "[ \"$1 $2 $3 $4\" = 'get -A -o yaml' ] && exec cat of-cluster.yaml");
    let output = shell.run(&block("kubectl get -A -o yaml secrets,kongconsu"));
    assert!(output.contains("spec.apiKeyAuth.extractFrom: left out: "), "{output}");
    assert_served(&output);
    gateway.stop();
}

#[test]
fn keys_of_agentgateway_are_moved() {
    let office = office();
    let gateway = office.setup.start();
    let config = "llm: { policies: { apiKey: { keys: [{ key: agw_sk_example_of_ada, metadata: { name: ada } }] } } }\n";
    fs::write(office.setup.path().join("config.yaml"), config).unwrap();
    let output = Shell::of(&office.setup).run(&block("keygate convert agentgateway config.yaml"));
    assert!(output.contains("+ key acme/ada: user ada@consumer.invalid"), "{output}");
    assert_served(&output);
    gateway.stop();
}

#[test]
fn operations_of_a_document_become_routes() {
    let office = Office::embedded();
    let document = "openapi: 3.1.0\npaths:\n  /api/queries:\n    get: { tags: ['queries:read'] }\n    post: { tags: \
                    [Writers] }\n";
    fs::write(office.setup.path().join("openapi.yaml"), document).unwrap();
    let output = Shell::of(&office.setup).run(&block("keygate convert openapi openapi.yaml --p"));
    assert!(output.contains("becomes the permission writers") && output.contains(": ok"), "{output}");
    let gateway = office.setup.start();
    let key = office.key_in("acme");
    let statuses = ["GET", "POST", "PUT"]
        .map(|method| office.setup.client().request(method, "/api/queries", &key, &[], b"").status);
    assert_eq!(statuses, [200, 403, 404], "the permission of the tag, another one, and no operation");
    gateway.stop();
}
