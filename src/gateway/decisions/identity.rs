//! Identity of the caller, for another proxy to set on the request that it forwards.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::admission::Route;
use domain::http_syntax;
use domain::identity::{IDENTITY_FIELDS, Principal};
use edge::forward::identity_fields;

/// Identity of the caller of a request, as the upstream is to see it.
pub(super) struct Identity<'a> {
    /// The caller; none on a public route.
    pub(super) caller: Option<Arc<Principal>>,
    pub(super) route: &'a Route,
    pub(super) request_id: &'a HeaderValue,
}

impl Identity<'_> {
    /// The identity fields, each with its value, or none where the caller has none.
    pub(super) fn fields(&self) -> impl Iterator<Item = (HeaderName, Option<HeaderValue>)> {
        identity_fields(self.caller.as_deref(), self.request_id).into_iter()
    }
}

/// Returns whether a field has a name that some servers take for that of an identity field.
pub(super) fn has_look_alike(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| is_look_alike(name.as_str()))
}

fn is_look_alike(name: &str) -> bool {
    let folded = http_syntax::folded_name(name);
    folded != name && IDENTITY_FIELDS.iter().any(|own| folded.eq_ignore_ascii_case(own.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Separators in names of fields that servers fold into one.
    const SEPARATORS: [&str; 3] = ["-", "_", "."];

    /// All other spellings of a name that servers fold into it.
    fn spellings(name: &str) -> Vec<String> {
        let mut all = vec![String::new()];
        for part in name.split_inclusive('-') {
            let word = part.trim_end_matches('-');
            let separators = if word.len() < part.len() { SEPARATORS.as_slice() } else { &[""] };
            let longer =
                |begun: &String| separators.iter().map(move |end| format!("{begun}{word}{end}")).collect::<Vec<_>>();
            all = all.iter().flat_map(longer).collect();
        }
        all.retain(|spelling| spelling != name);
        all
    }

    #[test]
    fn every_spelling_of_an_identity_field_is_a_look_alike_but_its_own() {
        for name in &IDENTITY_FIELDS {
            let name = name.as_str();
            assert!(!is_look_alike(name), "{name}");
            let dashes = u32::try_from(name.matches('-').count()).unwrap();
            assert_eq!(spellings(name).len(), 3_usize.pow(dashes) - 1, "{name}");
            for spelling in spellings(name) {
                assert!(is_look_alike(&spelling) && is_look_alike(&spelling.to_uppercase()), "{spelling}");
            }
            for separator in ["!", "~", "|", "^", "`", "'", "*", "+", "%", "$", "&", "#"] {
                assert!(is_look_alike(&name.replace('-', separator)), "{name} {separator}");
            }
        }
        for other in ["x_trace", "x-user-idx", "x_user", "accept", "xuser-id", "x.user"] {
            assert!(!is_look_alike(other), "{other}");
        }
    }
}
