//! The description of the API (OpenAPI 3.1): `docs/openapi.json`, with the operations that each mount has.

use std::sync::OnceLock;

use serde_json::{Value, json};

use super::call::Call;
use super::mount::Mount;
use super::response::Answer;
use crate::management::ManagementError;

/// The whole document. `x-callers` of an operation says whose it is.
const DOCUMENT: &str = include_str!("../../../../docs/openapi.json");

/// The whole document, for the operator.
pub(super) async fn show(_: &Call<'_>) -> Result<Answer, ManagementError> {
    Ok(Answer::json(document(Mount::Socket).to_owned()))
}

/// The document for the callers of a mount: their operations, and the path of the mount.
pub(crate) fn document(mount: Mount) -> &'static str {
    static NETWORK: OnceLock<String> = OnceLock::new();
    static BROWSER: OnceLock<String> = OnceLock::new();
    match mount {
        Mount::Socket => DOCUMENT,
        Mount::Network => NETWORK.get_or_init(|| part("program", "/v1")),
        Mount::Browser => BROWSER.get_or_init(|| part("person", "v1")),
    }
}

/// The part of the document for one caller, with this address of the API, which may be relative to the document's.
fn part(caller: &str, server: &str) -> String {
    let mut document: Value = serde_json::from_str(DOCUMENT).expect("a test has parsed it");
    if let Some(paths) = document["paths"].as_object_mut() {
        for item in paths.values_mut().filter_map(Value::as_object_mut) {
            item.retain(|name, operation| name == "parameters" || has_caller(operation, caller));
            for operation in item.values_mut().filter_map(Value::as_object_mut) {
                // One that needs no credential says so; the others need that of the document.
                let needs_one = |security: &Value| security.as_array().is_some_and(|list| !list.is_empty());
                if operation.get("security").is_some_and(needs_one) {
                    operation.remove("security");
                }
            }
        }
        paths.retain(|_, item| item.as_object().is_some_and(|item| item.keys().any(|name| name != "parameters")));
    }
    // The credential of the caller alone.
    let scheme = if caller == "program" { "token" } else { "session" };
    if let Some(schemes) = document["components"]["securitySchemes"].as_object_mut() {
        schemes.retain(|name, _| name == scheme);
    }
    document["security"] = json!([{ scheme: [] }]);
    document["servers"] = json!([{ "url": server }]);
    document.to_string()
}

fn has_caller(operation: &Value, caller: &str) -> bool {
    operation["x-callers"].as_array().is_some_and(|callers| callers.iter().any(|known| known == caller))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::routes::ROUTES;
    use super::*;

    /// Methods and paths of the table or the document, with the names of the callers and the parameters of the query.
    type Operations = BTreeMap<(String, String), (BTreeSet<String>, BTreeSet<String>)>;

    fn described() -> Operations {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let mut operations = Operations::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters") {
                let words = |list: &Value| {
                    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
                };
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let query = parameters.filter(|parameter| parameter["in"] == "query");
                let names = query.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect();
                let callers = words(&operation["x-callers"]);
                operations.insert((method.to_uppercase(), path.clone()), (callers, names));
            }
        }
        operations
    }

    #[test]
    fn routes_are_those_of_the_document() {
        let mut table: Operations = ROUTES
            .iter()
            .map(|route| {
                let callers = [Mount::Socket, Mount::Network, Mount::Browser]
                    .into_iter()
                    .filter(|mount| route.is_at(*mount))
                    .map(|mount| match mount {
                        Mount::Socket => "operator".to_owned(),
                        Mount::Network => "program".to_owned(),
                        Mount::Browser => "person".to_owned(),
                    })
                    .collect();
                let query = route.query.iter().map(|name| (*name).to_owned()).collect();
                ((route.method.to_owned(), format!("/{}", route.path)), (callers, query))
            })
            .collect();
        let anybody = ["operator", "program", "person"].map(str::to_owned).into();
        table.insert(("GET".into(), "/openapi.json".into()), (anybody, BTreeSet::new()));
        assert_eq!(described(), table);
    }

    #[test]
    fn each_mount_serves_the_operations_of_its_callers() {
        let has = |mount, path: &str| document(mount).contains(&format!("\"{path}\":{{"));
        assert!(has(Mount::Network, "/state") && !has(Mount::Browser, "/state"));
        assert!(has(Mount::Browser, "/session") && !has(Mount::Network, "/session"));
        assert!(!has(Mount::Network, "/state/accept") && DOCUMENT.contains("\"/state/accept\""));
    }
}
