//! The files of `deploy/proxies` themselves.

use std::fs;

use serde::Deserialize as _;
use serde_json::Value;

use super::{IDENTITY, Kind, validate_envoy};

#[test]
fn envoy_accepts_its_files() {
    for kind in [Kind::EnvoyExtAuthz, Kind::EnvoyExtProc] {
        validate_envoy(kind).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

/// A field that a file does not name arrives as the client has sent it: where the proxy copies by names, and on a path
/// that is not asked for.
#[test]
fn files_name_every_identity_field() {
    let by_answer = ["envoy-ext-authz.yaml", "envoy-ext-proc.yaml", "gateway-api.yaml"].map(|file| (file, 5));
    let by_names = ["nginx.conf", "traefik-dynamic.yaml", "Caddyfile"].map(|file| (file, IDENTITY.len()));
    for (file, count) in by_names.into_iter().chain(by_answer) {
        let text = fs::read_to_string(format!("deploy/proxies/{file}")).unwrap().to_ascii_lowercase();
        for name in &IDENTITY[..count] {
            let name = name.to_ascii_lowercase();
            assert!(text.contains(&name), "{file} does not name {name}");
        }
    }
}

/// Envoy Gateway cannot be started without a cluster: its objects have the fields of its API, and no others.
#[test]
fn objects_of_envoy_gateway_have_the_fields_of_its_api() {
    let schemas: Value =
        serde_json::from_str(&fs::read_to_string("tests/proxies/gateway-api-schema.json").unwrap()).unwrap();
    let text = fs::read_to_string("deploy/proxies/gateway-api.yaml").unwrap();
    let mut kinds = Vec::new();
    for document in serde_yaml::Deserializer::from_str(&text) {
        let object = Value::deserialize(document).unwrap();
        let kind = object["kind"].as_str().unwrap().to_owned();
        assert_eq!(object["apiVersion"], "gateway.envoyproxy.io/v1alpha1");
        let validator = jsonschema::validator_for(&schemas["objects"][&kind]).unwrap();
        let errors: Vec<String> = validator.iter_errors(&object).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{kind}: {errors:?}");
        kinds.push(kind);
    }
    assert_eq!(kinds, ["ClientTrafficPolicy", "SecurityPolicy", "EnvoyExtensionPolicy"]);
}

/// No file admits what was not decided.
#[test]
fn no_file_is_open_when_no_decision_comes() {
    for (file, line, count) in [
        ("envoy-ext-authz.yaml", "failure_mode_allow: false", 1),
        ("envoy-ext-proc.yaml", "failure_mode_allow: false", 1),
        ("gateway-api.yaml", "failOpen: false", 2),
    ] {
        let text = fs::read_to_string(format!("deploy/proxies/{file}")).unwrap();
        assert_eq!(text.matches(line).count(), count, "{file}");
    }
}
