//! Requests to try a new key with, on its page: a curl command, and programs in other languages.

use super::pages::ExampleProgram;
use crate::management::GoodPractice;
use domain::identity::Permission;

/// Example requests: the API's origin, and paths there, in order of preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestExamples {
    /// Scheme, host and port.
    pub origin: String,
    /// Paths that are served for `GET`. Empty: the example is `/`.
    pub paths: Vec<RequestExample>,
    /// The path at which a request revokes the key that it presents; none where it is not served.
    pub self_revoke: Option<&'static str>,
    /// True when a sink is told of changes, and so of keys that expire soon.
    pub has_events: bool,
}

/// A request to try a key with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExampleRequest {
    url: String,
    /// Field that carries the key; `None`: `Authorization`.
    key_field: Option<String>,
}

const PYTHON: &str = r#"import os
import urllib.request

key = os.environ["<VARIABLE>"]
request = urllib.request.Request(<URL>, headers={<FIELD>: "<SCHEME>" + key})
with urllib.request.urlopen(request) as response:
    print(response.status, response.read().decode())"#;
const JAVASCRIPT: &str = r#"const key = process.env.<VARIABLE>;
fetch(<URL>, { headers: { <FIELD>: "<SCHEME>" + key } })
  .then(async (response) => console.log(response.status, await response.text()));"#;
const GO: &str = r#"package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	request, err := http.NewRequest("GET", <URL>, nil)
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set(<FIELD>, "<SCHEME>"+os.Getenv("<VARIABLE>"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(response.StatusCode, string(body))
}"#;

/// A path that is served for `GET`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestExample {
    /// Path.
    pub path: String,
    /// Permission that the route requires; `None`: none.
    pub permission: Option<Permission>,
    /// Field that carries the key; `None`: `Authorization`.
    pub key_field: Option<String>,
}

impl RequestExamples {
    /// The requests to the first path that these permissions allow; when they allow none, to the first path.
    pub(super) fn request_for(&self, permissions: &[Permission]) -> ExampleRequest {
        let is_allowed = |example: &&RequestExample| {
            example.permission.as_ref().is_none_or(|permission| permissions.contains(permission))
        };
        let example = self.paths.iter().find(is_allowed).or(self.paths.first());
        let path = example.map_or("/", |example| &example.path);
        let key_field = example.and_then(|example| example.key_field.clone());
        ExampleRequest { url: format!("{}{path}", self.origin), key_field }
    }

    /// The command that revokes the key in this variable of the environment.
    pub(super) fn revocation(&self, variable: &str) -> Option<String> {
        let path = self.self_revoke?;
        Some(format!("curl -X POST -H \"Authorization: Bearer ${variable}\" '{}{path}'", self.origin))
    }
}

impl ExampleRequest {
    /// The command for a shell, with this key.
    pub(super) fn curl(&self, api_key: &str) -> String {
        let (field, scheme) = self.credential();
        format!("curl -i -H '{field}: {scheme}{api_key}' '{}'", self.url)
    }

    /// Programs that read the key from [`GoodPractice::VARIABLE`], with the standard library of their language only.
    pub(super) fn programs(&self) -> [ExampleProgram; 3] {
        let (field, scheme) = self.credential();
        // Strings of JSON are strings of these languages, too.
        let (url, field) = (quoted(&self.url), quoted(field));
        let fill = |template: &str| {
            let filled = template.replace("<VARIABLE>", GoodPractice::VARIABLE).replace("<SCHEME>", scheme);
            filled.replace("<FIELD>", &field).replace("<URL>", &url)
        };
        [
            ExampleProgram { id: "python", language: "Python", text: fill(PYTHON) },
            ExampleProgram { id: "javascript", language: "JavaScript", text: fill(JAVASCRIPT) },
            ExampleProgram { id: "go", language: "Go", text: fill(GO) },
        ]
    }

    /// The field of the key, and what is before the key in it.
    fn credential(&self) -> (&str, &'static str) {
        self.key_field.as_ref().map_or(("Authorization", "Bearer "), |field| (field, ""))
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_for_the_first_allowed_path_and_has_the_key_in_its_field() {
        let permission = |text: &str| text.parse::<Permission>().unwrap();
        let example = |path: &str, required: Option<&str>| RequestExample {
            path: path.into(),
            permission: required.map(permission),
            key_field: (path == "/b").then(|| "X-API-Key".to_owned()),
        };
        let paths = vec![example("/a", Some("a")), example("/b", Some("b")), example("/c", None)];
        let examples =
            RequestExamples { origin: "https://api.example".into(), paths, self_revoke: None, has_events: false };
        let command =
            |examples: &RequestExamples, permissions: &[Permission]| examples.request_for(permissions).curl("KEY");
        assert_eq!(command(&examples, &[permission("b")]), "curl -i -H 'X-API-Key: KEY' 'https://api.example/b'");
        assert_eq!(command(&examples, &[]), "curl -i -H 'Authorization: Bearer KEY' 'https://api.example/c'");
        let go = |permissions: &[Permission]| examples.request_for(permissions).programs()[2].text.clone();
        assert!(go(&[permission("b")]).contains("Set(\"X-API-Key\", \"\"+os.Getenv(\"KEYGATE_API_KEY\"))"));
        assert!(go(&[]).contains("Set(\"Authorization\", \"Bearer \"+os.Getenv(\"KEYGATE_API_KEY\"))"));
        let none = RequestExamples { paths: Vec::new(), ..examples };
        assert_eq!(command(&none, &[]), "curl -i -H 'Authorization: Bearer KEY' 'https://api.example/'");
    }
}
