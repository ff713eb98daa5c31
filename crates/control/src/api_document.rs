//! Operations and errors of an OpenAPI document, to be compared with the routes and the errors of the API.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Methods and paths, each with the parameters of its query.
pub(crate) type Operations = BTreeMap<(String, String), BTreeSet<String>>;

/// The operations of a document.
pub(crate) fn operations(document: &str) -> Operations {
    let document: Value = serde_json::from_str(document).unwrap();
    let mut operations = Operations::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters") {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let query = parameters.filter(|parameter| parameter["in"] == "query");
            let names = query.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect();
            operations.insert((method.to_uppercase(), path.clone()), names);
        }
    }
    operations
}

/// The statuses and codes of the problems in a document.
pub(crate) fn errors(document: &str) -> BTreeSet<(u16, String)> {
    let mut errors = BTreeSet::new();
    collect_errors(&serde_json::from_str(document).unwrap(), &mut errors);
    errors
}

/// Collects the statuses and codes that the schemas of a document allow.
fn collect_errors(value: &Value, into: &mut BTreeSet<(u16, String)>) {
    let properties = &value["properties"];
    if let (Some(status), Some(codes)) = (properties["status"]["const"].as_u64(), properties["code"]["enum"].as_array())
    {
        let status = u16::try_from(status).unwrap();
        into.extend(codes.iter().map(|code| (status, code.as_str().unwrap().to_owned())));
    }
    let members = value.as_object().into_iter().flat_map(|members| members.values());
    members.chain(value.as_array().into_iter().flatten()).for_each(|member| collect_errors(member, into));
}
