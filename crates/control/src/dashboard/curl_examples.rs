//! Requests to try a new key with, for the curl command on its page.

use domain::identity::Permission;

/// Example requests: the API's origin, and paths there, in order of preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CurlExamples {
    /// Scheme, host and port.
    pub origin: String,
    /// Paths that are served for `GET`. Empty: the example is `/`.
    pub paths: Vec<CurlExample>,
    /// The path at which a request revokes the key that it presents; none where it is not served.
    pub self_revoke: Option<&'static str>,
}

/// A path that is served for `GET`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurlExample {
    /// Path.
    pub path: String,
    /// Permission that the route requires; `None`: none.
    pub permission: Option<Permission>,
    /// Field that carries the key; `None`: `Authorization`.
    pub key_field: Option<String>,
}

impl CurlExamples {
    /// The command, with this key, for the first path that these permissions allow; when they allow none, for the first
    /// path.
    pub(super) fn command_for(&self, permissions: &[Permission], api_key: &str) -> String {
        let is_allowed = |example: &&CurlExample| {
            example.permission.as_ref().is_none_or(|permission| permissions.contains(permission))
        };
        let example = self.paths.iter().find(is_allowed).or(self.paths.first());
        let path = example.map_or("/", |example| &example.path);
        let credential = match example.and_then(|example| example.key_field.as_ref()) {
            Some(field) => format!("{field}: {api_key}"),
            None => format!("Authorization: Bearer {api_key}"),
        };
        format!("curl -i -H '{credential}' '{}{path}'", self.origin)
    }

    /// The command that revokes the key in this variable of the environment.
    pub(super) fn revocation(&self, variable: &str) -> Option<String> {
        let path = self.self_revoke?;
        Some(format!("curl -X POST -H \"Authorization: Bearer ${variable}\" '{}{path}'", self.origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_for_the_first_allowed_path_and_has_the_key_in_its_field() {
        let permission = |text: &str| text.parse::<Permission>().unwrap();
        let example = |path: &str, required: Option<&str>| CurlExample {
            path: path.into(),
            permission: required.map(permission),
            key_field: (path == "/b").then(|| "X-API-Key".to_owned()),
        };
        let paths = vec![example("/a", Some("a")), example("/b", Some("b")), example("/c", None)];
        let examples = CurlExamples { origin: "https://api.example".into(), paths, self_revoke: None };
        let command = |examples: &CurlExamples, permissions: &[Permission]| examples.command_for(permissions, "KEY");
        assert_eq!(command(&examples, &[permission("b")]), "curl -i -H 'X-API-Key: KEY' 'https://api.example/b'");
        assert_eq!(command(&examples, &[]), "curl -i -H 'Authorization: Bearer KEY' 'https://api.example/c'");
        let none = CurlExamples { paths: Vec::new(), ..examples };
        assert_eq!(command(&none, &[]), "curl -i -H 'Authorization: Bearer KEY' 'https://api.example/'");
    }
}
