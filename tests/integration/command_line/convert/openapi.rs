//! `keygate convert openapi`: operations of a document become routes, each of which its own requests reach.

use std::path::Path;

use http::{Method, Request};
use keygate::admission::{RouteSettings, Routes};
use serde_json::json;

use super::*;

/// Reads the routes of an output, in a configuration that `keygate check` accepts.
#[track_caller]
fn checked(routes: &str) -> Vec<RouteSettings> {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("keygate.yaml");
    let others = "listen: [{ address: 127.0.0.1:0 }]\nupstream: { endpoints: [http://127.0.0.1:9] }\n\
                  state: { embedded: { path: state } }\naudit: { path: audit }\nadmin: { socket: socket, address: \
                  127.0.0.1:0 }\n";
    std::fs::write(&config, format!("{others}{routes}")).unwrap();
    let check = convert(&format!("check --config {}", config.display()));
    assert!(check.code == 0 && !check.out.contains("never used"), "{check:?}");
    Config::load(Path::new(&config)).unwrap().routes
}

/// The operations of a document as large as those of public APIs, with the shapes that these have: method and path.
fn many_operations() -> Vec<(&'static str, String)> {
    let mut operations = Vec::new();
    for number in 0..152 {
        let group = format!("/repos/{{owner}}/group-{number}");
        // The parameter comes first, as in documents that are sorted by their letters.
        for (method, path) in [
            ("get", format!("{group}/{{item_id}}")),
            ("put", format!("{group}/{{item_id}}")),
            ("get", format!("{group}/latest")),
            ("get", format!("{group}/{{item.id}}/parts/{{part-id}}")),
            ("head", format!("{group}/{{item.id}}/parts/{{part-id}}")),
            ("get", format!("{group}/compare/{{base}}...{{head}}")),
            ("post", group.clone()),
            ("delete", format!("/{{kind}}/group-{number}")),
        ] {
            operations.push((method, path));
        }
    }
    let others = ["/", "/{kind}", "/repos/{owner}/{repo}", "/repos/mine/group-0", "/feeds/", "/user/keys/{id}/"];
    operations.extend(others.map(|path| ("get", path.to_owned())));
    operations
}

/// A document of these operations, each with a name that has its number.
fn document_of(operations: &[(&str, String)]) -> Value {
    let mut document = json!({
        "openapi": "3.0.3", "servers": [{ "url": "https://api.test" }], "components": { "schemas": {} }, "paths": {}
    });
    for (number, (method, path)) in operations.iter().enumerate() {
        document["paths"][path]["parameters"] = json!([]);
        document["paths"][path][method] = json!({
            "operationId": format!("group/{number}"),
            "tags": [format!("group-{}", number % 7)],
            "responses": { "200": { "content": { "application/json": { "schema": { "$ref": "#/x" } } } } },
        });
    }
    document
}

#[test]
fn routes_of_a_large_document_pass_the_check_and_are_reached() {
    let operations = many_operations();
    assert_eq!(operations.len(), 1222);
    let document = document_of(&operations);
    let json = convert_text("openapi", &document.to_string(), "--permission-from tags");
    assert!(json.code == 0 && json.err.ends_with("\nprinted 1222 routes\n"), "{}", json.err);
    let yaml = convert_text("openapi", &serde_yaml::to_string(&document).unwrap(), "--permission-from tags");
    assert_eq!(yaml.out, json.out);
    let routes = checked(&json.out);
    let router = Routes::new(&routes, &Metrics::new());
    for (number, (method, path)) in operations.iter().enumerate() {
        let segments = path.split('/').map(|segment| if segment.contains('{') { "v.1" } else { segment });
        let method: Method = method.to_ascii_uppercase().parse().unwrap();
        let request = Request::builder().method(method).uri(segments.collect::<Vec<_>>().join("/")).body(());
        let route = router.find(&request.unwrap().into_parts().0);
        assert_eq!(route.name, Some(format!("group.{number}")), "{path}");
        assert_eq!(route.permission.as_ref().map(ToString::to_string), Some(format!("group-{}", number % 7)));
    }
}

/// The lines of the output, without names.
fn lines(ended: &Ended) -> Vec<String> {
    let routes = ended.out.lines().skip(1).map(|line| line.trim_start_matches("  - "));
    let unnamed = |line| {
        let mut route: Value = serde_json::from_str(line).unwrap();
        route.as_object_mut().unwrap().remove("name").unwrap();
        let text = |name: &str| route[name].as_str().unwrap_or("-").to_owned();
        format!("{} {} {} {}", route["methods"][0].as_str().unwrap(), text("path"), text("permission"), text("access"))
    };
    routes.map(unnamed).collect()
}

const SCOPES: &str = "openapi: 3.1.0
servers:
- url: 'https://{host}/{version}/'
  variables: { host: { default: a.test }, version: { default: v1, enum: [v1, v2] } }
- url: /v2
security: [{ oauth: ['read:all'] }]
paths:
  /things:
    get: {}
    post: { security: [{ oauth: ['Write Things', 'read:all'] }] }
    put: { security: [{ key: [] }, { oauth: ['write things'] }] }
    delete: { security: [{ key: [] }] }
    additionalOperations: { COPY: {} }
  /health:
    servers: [{ url: https://b.test }]
    get: { security: [] }
  /shared: { $ref: '#/components/pathItems/shared' }
  /a b: { get: {} }
  x-extension: 7
components: &c { schemas: { a: *c } }
";

#[test]
fn scopes_are_permissions_and_only_an_operation_that_says_so_is_public() {
    let ended = convert_text("openapi", SCOPES, "--permission-from scopes");
    assert_eq!(ended.code, 4, "{ended:?}");
    let expected = [
        "GET /health - public",
        "DELETE /v1/things - -",
        "GET /v1/things read:all -",
        "POST /v1/things write-things-read:all -",
        "PUT /v1/things write-things -",
    ];
    assert_eq!(lines(&ended), expected);
    let findings = [
        ("servers[1]", "another server has another path"),
        ("paths./things.post.security[0].oauth[1]", "several scopes at once"),
        ("paths./things.post.security[0].oauth[0]", "becomes the permission write-things-read:all"),
        ("paths./things.put.security[0]", "left out: a route asks for one permission"),
        ("paths./things.put.security[1].oauth[0]", "becomes the permission write-things"),
        ("paths./things.delete", "left out: no permission is named here"),
        ("paths./things.additionalOperations", "left out: `additionalOperations` is no method"),
        ("paths./health.get", "the route is public"),
        ("paths./shared.$ref", "left out: is a reference"),
        ("paths./a b.get", "left out: no route has such a path"),
    ];
    assert_findings(&ended, &findings);
    checked(&ended.out);
    // Without the option no route has a permission, and none is missed.
    let plain = convert_text("openapi", SCOPES, "");
    assert!(!plain.out.contains("permission") && !plain.err.contains("no permission is named"), "{plain:?}");
}

#[test]
fn names_that_would_be_one_are_told_apart() {
    let text = "swagger: '2.0'
basePath: /api/
paths:
  /a: { get: { tags: [Big Pets], operationId: x }, post: { tags: [big/pets], operationId: x } }
  /{b}.json: { get: { tags: [big-pets, other] } }
  /{c}.xml: { get: { tags: [big-pets] } }
  /{d}: { get: { tags: ['Big Pets'] } }
  /{e}: { get: { security: [] } }
";
    let ended = convert_text("openapi", text, "--permission-from tags");
    assert_eq!(ended.code, 4, "{ended:?}");
    let expected = ["GET /api/a big-pets -", "POST /api/a big-pets-2 -", "GET /api/{b-.json} big-pets-3 -"];
    assert_eq!(lines(&ended), expected);
    let names = ["\"name\":\"x\"", "\"name\":\"x-2\"", "\"name\":\"get.api.b-.json\""];
    assert!(names.iter().all(|name| ended.out.contains(name)), "{}", ended.out);
    let findings = [
        ("paths./a.get.tags[0]", "becomes the permission big-pets"),
        ("paths./a.post.tags[0]", "becomes the permission big-pets-2"),
        ("paths./{b}.json.get.tags[0]", "becomes the permission big-pets-3"),
        ("paths./{b}.json.get.tags[1]", "left out: a route has one permission"),
        ("paths./{b}.json.get", "a parameter of a route is a whole segment: /api/{b-.json}"),
        ("paths./{c}.xml.get", "a parameter of a route is a whole segment: /api/{c-.xml}"),
        ("paths./{c}.xml.get", "has the route of the operation in line 5"),
        ("paths./{d}.get", "left out: makes the route of the operation in line 5, which asks something else"),
        ("paths./{e}.get", "the route is public"),
        ("paths./{e}.get", "left out: makes the route of the operation in line 5, which asks something else"),
    ];
    for (place, what) in findings {
        let is_there = |line: &str| line.contains(&format!(": {place}: ")) && line.contains(what);
        assert!(ended.err.lines().any(is_there), "{place}: {what}: {}", ended.err);
    }
    checked(&ended.out);
}

#[test]
fn file_that_is_no_document_is_an_error_with_its_place() {
    for (text, error) in [
        ("consumers: []\n", "1:1: paths: this is no OpenAPI document"),
        ("openapi: 3.0.0\n", "1:1: paths: this is no OpenAPI document"),
        ("openapi: 3.0.0\npaths: {\n", "3:1: syntax: is not YAML"),
        ("openapi: 3.0.0\npaths: { /a: { get: {}, get: {} } }\n", "2:25: syntax: is given twice"),
        ("openapi: 3.0.0\npaths: { /a: { get: { tags: x } } }\n", "2:29: paths./a.get.tags: is no list"),
    ] {
        let ended = convert_text("openapi", text, "--permission-from tags");
        assert_eq!((ended.code, &*ended.out), (2, ""), "{text:?} {ended:?}");
        assert!(ended.err.starts_with(&format!("file:{error}")), "{text:?} {ended:?}");
    }
    let none = convert_text("openapi", "openapi: 3.1.0\npaths: {}\nwebhooks: { a: { post: {} } }\n", "");
    assert_eq!((none.code, &*none.out), (0, "routes: []\n"), "{none:?}");
}
