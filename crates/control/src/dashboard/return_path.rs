//! Validation of `return_to`: the path to go to after a sign-in, of this origin only (open redirect).

use url::Url;

/// Bytes of an address at most.
const MAX_LENGTH: usize = 2000;

/// The path and query of `text`, if every browser takes it for an address of `origin`; else `None`.
///
/// The text is parsed as browsers parse it (WHATWG URL Standard). Texts that browsers take for another host, such as
/// `//host`, `/\host` or a slash, a tab and another slash, are recognized as such.
pub fn return_path(origin: &str, text: &str) -> Option<String> {
    let base = Url::parse(origin).ok()?;
    if !text.starts_with('/') || text.len() > MAX_LENGTH {
        return None;
    }
    let target = base.join(text).ok()?;
    let path = match target.query() {
        Some(query) => format!("{}?{query}", target.path()),
        None => target.path().to_owned(),
    };
    // The browser parses the path again: dot segments are gone by then, so `/.//host` has become `//host`.
    let reparsed = base.join(&path).ok()?;
    let stays = |url: &Url| url.origin() == base.origin() && url.username().is_empty() && url.password().is_none();
    (stays(&target) && stays(&reparsed) && !path.starts_with("//")).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_path_stays_on_the_origin() {
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
        assert_eq!(to(&format!("/{}", "a".repeat(MAX_LENGTH))), None);
    }
}
