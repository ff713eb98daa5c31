//! Validation of responses against the description of an API.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jsonschema::Validator;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::Response;

/// The OpenAPI document that a gateway serves.
pub struct Document {
    text: Value,
    /// Components whose schemas forbid members that are not described.
    closed: Value,
    /// Validators of schemas, by their text.
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

impl Document {
    pub fn new(text: &[u8]) -> Self {
        let text: Value = serde_json::from_slice(text).unwrap();
        let mut closed = text["components"].clone();
        closed["schemas"].as_object_mut().unwrap().values_mut().for_each(close);
        Self { text, closed, validators: Mutex::default() }
    }

    /// Fails unless the response to this request is described: status, header fields, media type, and every member of
    /// the body.
    pub fn validate(&self, method: &str, path: &str, response: &Response) {
        let what = format!("{method} {path}: {} {}", response.status, String::from_utf8_lossy(&response.body));
        let operation = self.operation(method, path.split('?').next().unwrap());
        let described = &operation["responses"][response.status.to_string()];
        assert!(described.is_object(), "the response is not documented: {what}");
        let described = self.resolved(described);
        for (name, field) in described["headers"].as_object().into_iter().flatten() {
            let required = self.resolved(field)["required"] == true;
            assert!(!required || response.header(&name.to_lowercase()).is_some(), "{name} is missing: {what}");
        }
        match described["content"].as_object() {
            None => assert!(response.body.is_empty() && response.header("content-type").is_none(), "{what}"),
            Some(content) => {
                let kind = response.header("content-type").unwrap();
                let schema = content.get(kind).unwrap_or_else(|| panic!("{kind} is not documented: {what}"));
                let lines = || Value::String(String::from_utf8(response.body.clone()).unwrap());
                let body = if kind.ends_with("json") && !kind.ends_with("ndjson") { response.json() } else { lines() };
                let errors = self.errors(&schema["schema"], &body);
                assert!(errors.is_empty(), "{errors:#?}: {what}");
            }
        }
    }

    fn operation(&self, method: &str, path: &str) -> &Value {
        let paths = self.text["paths"].as_object().unwrap();
        let found = paths.iter().find(|(template, _)| matches(template, path));
        let (_, item) = found.unwrap_or_else(|| panic!("{path} is not documented"));
        let operation = &item[method.to_lowercase()];
        assert!(operation.is_object(), "{method} {path} is not documented");
        operation
    }

    fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        let Some(reference) = value["$ref"].as_str() else { return value };
        self.text.pointer(reference.strip_prefix('#').unwrap()).unwrap()
    }

    fn errors(&self, schema: &Value, instance: &Value) -> Vec<String> {
        let validator = Arc::clone(
            self.validators.lock().entry(schema.to_string()).or_insert_with(|| Arc::new(self.validator(schema))),
        );
        validator.iter_errors(instance).map(|error| format!("{}: {error}", error.instance_path())).collect()
    }

    fn validator(&self, schema: &Value) -> Validator {
        let root = json!({ "allOf": [schema], "components": self.closed });
        let options = jsonschema::options().with_draft(jsonschema::Draft::Draft202012).should_validate_formats(true);
        options.build(&root).unwrap()
    }

    /// The errors in the document's examples, by the name of the schema.
    pub fn wrong_examples(&self) -> BTreeMap<String, Vec<String>> {
        let schemas = self.text["components"]["schemas"].as_object().unwrap();
        let examples = schemas.iter().flat_map(|(name, schema)| {
            schema["examples"].as_array().into_iter().flatten().map(move |example| (name, schema, example))
        });
        let judged = examples.map(|(name, schema, example)| (name.clone(), self.errors(schema, example)));
        judged.filter(|(_, errors)| !errors.is_empty()).collect()
    }
}

/// Forbids members that are not described. Clients must accept them, but these responses have none.
fn close(schema: &mut Value) {
    if schema["properties"].is_object() && schema["additionalProperties"].is_null() {
        schema["additionalProperties"] = json!(false);
    }
}

fn matches(template: &str, path: &str) -> bool {
    let (template, path) = (template.split('/'), path.split('/'));
    template.clone().count() == path.clone().count()
        && template.zip(path).all(|(own, found)| own == found || own.starts_with('{'))
}
