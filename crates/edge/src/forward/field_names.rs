//! Removal of client fields that the upstream must not get: identity headers (`X-User-Id`, `X-Org-Id` and the other
//! reserved ones, which only the gateway sets), spoofable fields that upstreams commonly trust, and those that some
//! server could misread.
//!
//! A head of which a [`FieldSet`](domain::head_fields::FieldSet) says that it has no such name is not searched.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};

use domain::head_fields::{self, CredentialFields, Removal};
use domain::http_syntax;

/// Fields that Envoy sets itself, or removes.
const OF_A_PROXY: [&str; 4] = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-client-cert", "via"];
/// Prefix of fields that Envoy sets itself; no answer can remove them.
const OF_ENVOY: &str = "x-envoy-";

/// Names of the fields of a request that the proxy which forwards it has to remove: those that the upstream must not
/// get, but for what that proxy sets itself and what is for one connection. A name that is not plain is one of them if
/// some server could take it for such a name.
pub fn untrusted_names(
    headers: &HeaderMap,
    credentials: &CredentialFields,
    passed: &[HeaderName],
    pass_authorization: bool,
) -> Vec<HeaderName> {
    let is_of_proxy = |name: &str| OF_A_PROXY.contains(&name) || name.starts_with(OF_ENVOY);
    let is_untrusted = |name: &&HeaderName| {
        let text = name.as_str();
        if credentials.contains(text.as_bytes()) {
            return true;
        }
        match Removal::of(http_syntax::folded_name(text).as_bytes()) {
            Some(Removal::Connection) | None => false,
            Some(_) if is_of_proxy(text) => false,
            Some(Removal::Spoofable) => !passed.contains(name),
            Some(Removal::Reserved) => **name != AUTHORIZATION || !pass_authorization,
        }
    };
    headers.keys().filter(is_untrusted).cloned().collect()
}

/// Removes from a request every field that the upstream must not get, except the spoofable ones that `passed` lets
/// through, and `Authorization` where that is the upstream's. Returns how many names were not plain.
///
/// Servers that fold names (`X_User_Id` into `HTTP_X_USER_ID`) fold only names that are not plain.
pub(super) fn remove_untrusted(headers: &mut HeaderMap, passed: &[HeaderName], pass_authorization: bool) -> usize {
    remove(headers, |name| match Removal::of(name.as_str().as_bytes()) {
        Some(Removal::Spoofable) => !passed.contains(name),
        Some(Removal::Reserved) if *name == AUTHORIZATION => !pass_authorization,
        other => other.is_some(),
    })
}

/// Removes every field whose name is reserved, or not plain. Returns how many names were not plain.
pub(super) fn remove_reserved(headers: &mut HeaderMap) -> usize {
    remove(headers, |name| head_fields::is_reserved(name.as_str().as_bytes()))
}

fn remove(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) -> usize {
    let removed: Vec<HeaderName> = headers.keys().filter(|name| is_removed(name) || !is_plain(name)).cloned().collect();
    removed.iter().for_each(|name| drop(headers.remove(name)));
    removed.iter().filter(|name| !is_plain(name)).count()
}

/// Returns whether every server reads a name as this one alone.
pub(super) fn is_plain(name: &HeaderName) -> bool {
    http_syntax::is_plain_name(name.as_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::head_fields::RESERVED;

    #[test]
    fn reserved_name_is_removed_in_every_spelling() {
        for name in RESERVED.iter().copied().chain(["x-forwarded-for", "x-forwarded-proto", "x-forwarded-whatever"]) {
            for separator in ['-', '_', '.', '!', '~', '|', '^', '`', '\'', '*', '+', '%', '$', '&', '#'] {
                let spelled = name.replace('-', &separator.to_string());
                for spelled in [spelled.to_uppercase(), spelled] {
                    let mut headers = HeaderMap::new();
                    headers.append(HeaderName::from_bytes(spelled.as_bytes()).unwrap(), "forged".parse().unwrap());
                    let unread = usize::from(spelled.contains(|c: char| !c.is_ascii_alphanumeric() && c != '-'));
                    assert_eq!(remove_reserved(&mut headers), unread, "{spelled}");
                    assert!(headers.is_empty(), "{spelled}");
                }
            }
        }
    }

    #[test]
    fn other_names_are_kept() {
        for name in ["x-user-idx", "xx-user-id", "x-user", "accept", "user-agent", "x-forward", "viaa", "xuserid"] {
            let mut headers = HeaderMap::new();
            headers.append(HeaderName::from_static(name), "1".parse().unwrap());
            assert_eq!((remove_reserved(&mut headers), headers.len()), (0, 1), "{name}");
            assert_eq!((remove_untrusted(&mut headers, &[], false), headers.len()), (0, 1), "{name}");
        }
    }

    #[test]
    fn spoofable_field_passes_only_by_its_name() {
        let passed = ["x-real-ip", "x-envoy-attempt-count"].map(HeaderName::from_static);
        let names = ["x-real-ip", "x-envoy-attempt-count", "x-client-ip", "x-envoy-retry-on", "x-user-id", "accept"];
        let mut headers = HeaderMap::new();
        names.iter().for_each(|name| drop(headers.insert(HeaderName::from_static(name), "1".parse().unwrap())));
        remove_untrusted(&mut headers, &passed, false);
        let left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["x-real-ip", "x-envoy-attempt-count", "accept"]);
    }
}
