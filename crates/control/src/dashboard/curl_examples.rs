//! Requests to try a new key with, for the curl command on its page.

use domain::identity::Permission;

/// Example requests: the API's origin, and paths there, in order of preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CurlExamples {
    /// Scheme, host and port.
    pub origin: String,
    /// Paths that are served for `GET`. Empty: the example is `/`.
    pub paths: Vec<CurlExample>,
}

/// A path that is served for `GET`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurlExample {
    /// Path.
    pub path: String,
    /// Permission that the route requires; `None`: none.
    pub permission: Option<Permission>,
}

impl CurlExamples {
    /// The URL of the first path that these permissions allow; when they allow none, of the first path.
    pub(super) fn url_for(&self, permissions: &[Permission]) -> String {
        let is_allowed = |example: &&CurlExample| {
            example.permission.as_ref().is_none_or(|permission| permissions.contains(permission))
        };
        let example = self.paths.iter().find(is_allowed).or(self.paths.first());
        format!("{}{}", self.origin, example.map_or("/", |example| &example.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_of_the_first_allowed_path() {
        let permission = |text: &str| text.parse::<Permission>().unwrap();
        let example = |path: &str, required: Option<&str>| CurlExample {
            path: path.into(),
            permission: required.map(permission),
        };
        let paths = vec![example("/a", Some("a")), example("/b", Some("b")), example("/c", None)];
        let examples = CurlExamples { origin: "https://api.example".into(), paths };
        assert_eq!(examples.url_for(&[permission("b")]), "https://api.example/b");
        assert_eq!(examples.url_for(&[]), "https://api.example/c");
        let none = CurlExamples { paths: Vec::new(), ..examples };
        assert_eq!(none.url_for(&[]), "https://api.example/");
    }
}
