//! What a new key can be tried at, for the line that people paste.

use crate::identity::Permission;

/// The API's origin, and paths there that may be asked for by `GET`, in the order in which they are preferred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CurlExamples {
    /// Scheme, host and port.
    pub origin: String,
    /// The paths; none: any will do.
    pub paths: Vec<CurlExample>,
}

/// A path, and what one must be permitted to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurlExample {
    /// The path.
    pub path: String,
    /// What one must be permitted; none: nothing.
    pub permission: Option<Permission>,
}

impl CurlExamples {
    /// The address for somebody with these permissions: the first that they may ask for, else the first.
    pub(super) fn url_for(&self, permissions: &[Permission]) -> String {
        let may =
            |example: &&CurlExample| example.permission.as_ref().is_none_or(|needed| permissions.contains(needed));
        let example = self.paths.iter().find(may).or(self.paths.first());
        format!("{}{}", self.origin, example.map_or("/", |example| &example.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_may_be_asked_for_is_taken() {
        let permission = |text: &str| text.parse::<Permission>().unwrap();
        let example =
            |path: &str, needed: Option<&str>| CurlExample { path: path.into(), permission: needed.map(permission) };
        let paths = vec![example("/a", Some("a")), example("/b", Some("b")), example("/c", None)];
        let examples = CurlExamples { origin: "https://api.example".into(), paths };
        assert_eq!(examples.url_for(&[permission("b")]), "https://api.example/b");
        assert_eq!(examples.url_for(&[]), "https://api.example/c");
        let none = CurlExamples { paths: Vec::new(), ..examples };
        assert_eq!(none.url_for(&[]), "https://api.example/");
    }
}
