//! What a new key can be tried at, for the line that people paste.

use crate::identity::Permission;

/// The API's origin, and paths there that may be asked for by `GET`, in the order in which they are preferred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// Scheme, host and port.
    pub origin: String,
    /// The paths; none: any will do.
    pub paths: Vec<Sample>,
}

/// A path, and what one must be permitted to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The path.
    pub path: String,
    /// What one must be permitted; none: nothing.
    pub permission: Option<Permission>,
}

impl Samples {
    /// The address for somebody with these permissions: the first that they may ask for, else the first.
    pub(super) fn for_one(&self, permissions: &[Permission]) -> String {
        let may = |sample: &&Sample| sample.permission.as_ref().is_none_or(|needed| permissions.contains(needed));
        let sample = self.paths.iter().find(may).or(self.paths.first());
        format!("{}{}", self.origin, sample.map_or("/", |sample| &sample.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_may_be_asked_for_is_taken() {
        let permission = |text: &str| text.parse::<Permission>().unwrap();
        let sample =
            |path: &str, needed: Option<&str>| Sample { path: path.into(), permission: needed.map(permission) };
        let paths = vec![sample("/a", Some("a")), sample("/b", Some("b")), sample("/c", None)];
        let samples = Samples { origin: "https://api.example".into(), paths };
        assert_eq!(samples.for_one(&[permission("b")]), "https://api.example/b");
        assert_eq!(samples.for_one(&[]), "https://api.example/c");
        let none = Samples { paths: Vec::new(), ..samples };
        assert_eq!(none.for_one(&[]), "https://api.example/");
    }
}
