//! The files of `deploy/proxies` without the question: all else is as it is.

use crate::program::Kind;

/// The text of a file, without what asks for a decision.
///
/// # Panics
/// When the file no longer has what is taken out.
pub(crate) fn without_question(kind: Kind, text: &str) -> String {
    match kind {
        Kind::Nginx | Kind::DebianNginx => without(text, "        auth_request /_keygate;\n"),
        // The file of its routes; the other one says nothing of questions.
        Kind::Traefik if text.contains("forwardAuth:") => text.replace("[keygate, credentials]", "[credentials]"),
        // The file without routes.
        Kind::Traefik => text.to_owned(),
        Kind::Caddy => without_block(text, "\tforward_auth "),
        Kind::EnvoyExtAuthz => without_block(text, "                  - name: envoy.filters.http.ext_authz"),
        Kind::EnvoyExtProc => without_block(text, "                  - name: envoy.filters.http.ext_proc"),
    }
}

fn without(text: &str, part: &str) -> String {
    assert_eq!(text.matches(part).count(), 1, "{part:?} in {text}");
    text.replace(part, "")
}

/// The text without the line that begins so, and those behind it that are deeper, or close its brace.
fn without_block(text: &str, begin: &str) -> String {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let (mut kept, mut removed, mut is_inside) = (String::new(), 0, false);
    for line in text.split_inclusive('\n') {
        if line.starts_with(begin) {
            (is_inside, removed) = (true, removed + 1);
            continue;
        }
        let is_closing = line.trim() == "}" && depth(line) == depth(begin);
        is_inside &= is_closing || line.trim().is_empty() || depth(line) > depth(begin);
        if !is_inside {
            kept += line;
        }
        is_inside &= !is_closing;
    }
    assert_eq!(removed, 1, "{begin:?} in {text}");
    kept
}
