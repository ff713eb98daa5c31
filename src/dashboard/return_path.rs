//! Where to go after a sign-in: a path of our own, and nowhere else.

use url::Url;

/// The longest address that is returned to.
const LENGTH: usize = 2000;

/// The path and query to return to, when the text is one of this origin for every browser; else none.
///
/// It is read as browsers read it (the WHATWG URL standard), so that what they take for another host, such as `//host`,
/// `/\host` or a tab in between, is seen here, too.
pub fn return_path(origin: &str, text: &str) -> Option<String> {
    let base = Url::parse(origin).ok()?;
    if !text.starts_with('/') || text.len() > LENGTH {
        return None;
    }
    let target = base.join(text).ok()?;
    let path = match target.query() {
        Some(query) => format!("{}?{query}", target.path()),
        None => target.path().to_owned(),
    };
    // As it is read once more: what it was made of may have been dropped on the way.
    let again = base.join(&path).ok()?;
    let stays = |url: &Url| url.origin() == base.origin() && url.username().is_empty() && url.password().is_none();
    (stays(&target) && stays(&again) && !path.starts_with("//")).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_our_own() {
        let to = |text| return_path("https://gateway.example", text);
        for (text, path) in [
            ("/settings/keys?q=a%20b", "/settings/keys?q=a%20b"),
            ("/", "/"),
            ("/a/../settings", "/settings"),
            ("/settings#fragment", "/settings"),
        ] {
            assert_eq!(to(text).as_deref(), Some(path), "{text}");
        }
        for elsewhere in [
            "",
            "settings",
            "https://evil.example/",
            "//evil.example/",
            "/\\evil.example/",
            "\\\\evil.example",
            "/\t/evil.example",
            "/\n/evil.example",
            "///evil.example",
            "/.//evil.example",
            "/..//evil.example/",
            "javascript:alert(1)",
            "/\r\nset-cookie: a=b/",
        ] {
            let path = to(elsewhere);
            let harmless =
                path.as_deref().is_none_or(|path| !path.starts_with("//") && !path.contains(['\r', '\n', '\\']));
            assert!(harmless && path.as_deref() != Some("//evil.example/"), "{elsewhere:?}: {path:?}");
        }
        for elsewhere in ["//evil.example/", "/\\evil.example/", "https://evil.example/", "/\t/evil.example"] {
            assert_eq!(to(elsewhere), None, "{elsewhere:?}");
        }
        assert_eq!(to(&format!("/{}", "a".repeat(LENGTH))), None);
    }
}
