//! Placeholders of templates, such as `$NAME` and `{{ name }}`: a file has them before it is rendered. As a key, each
//! would be one that everybody knows who has the template.

/// Placeholder of decK, as of a key that is one.
pub(crate) const OF_DECK: &str =
    "is a variable of a decK template; render the file first, as `deck file render --populate-env-vars` does";
const OF_TEMPLATE: &str = "is a placeholder of a template, which stands for a value; render the file first";

/// Beginnings and ends between which a value is put in, anywhere in a text.
const PAIRS: [(&str, &str); 6] = [("{{", "}}"), ("{%", "%}"), ("${", "}"), ("$(", ")"), ("#{", "}"), ("[[", "]]")];
/// Beginnings and ends of a text that is a placeholder as a whole.
const AROUND: [(&str, &str); 4] = [("<", ">"), ("%", "%"), ("@", "@"), ("__", "__")];
/// Beginnings of references that tools replace: of sops, vals and 1Password.
const REFERENCES: [&str; 3] = ["ENC[", "ref+", "op://"];
/// Letters at least of a name at the end of a text: a random key may have a `$` close to its end.
const MIN_LAST_NAME: usize = 4;
/// Characters of a text that hides a value.
const MAX_MASK: usize = 128;

/// Reason for which a text is a placeholder, if it is one.
pub(crate) fn flaw(text: &str) -> Option<&'static str> {
    if text.contains("${{ env") || text.contains("${{env") {
        return Some(OF_DECK);
    }
    (is_replaced(text) || is_mask(text)).then_some(OF_TEMPLATE)
}

/// The advice for a line that is no YAML, when a placeholder or a statement of a template is in it.
pub(crate) fn advice(line: &str) -> Option<String> {
    let value = line.rsplit(": ").next().unwrap_or(line).trim().trim_matches(['"', '\'', ',']);
    flaw(value).or_else(|| flaw(line.trim())).map(|flaw| format!("the line {}", flaw.replacen("is", "has", 1)))
}

fn is_replaced(text: &str) -> bool {
    let has_pair = |(begin, end): &(&str, &str)| text.split_once(begin).is_some_and(|(_, rest)| rest.contains(end));
    let is_inside = |(begin, end): &(&str, &str)| {
        let inner = text.strip_prefix(begin).and_then(|text| text.strip_suffix(end));
        inner.is_some_and(|inner| *begin == "<" && !inner.is_empty() || is_name(inner))
    };
    let is_last =
        |name: &str| name.len() >= MIN_LAST_NAME && is_name(name) && !name.contains(|c: char| c.is_ascii_lowercase());
    text.strip_prefix('$').is_some_and(is_name)
        || text.rsplit_once('$').is_some_and(|(_, name)| is_last(name))
        || PAIRS.iter().any(has_pair)
        || AROUND.iter().any(is_inside)
        || REFERENCES.iter().any(|reference| text.starts_with(reference))
}

/// Returns whether a text is a name, as of a variable.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

/// Returns whether a text hides a value: `********`, `xxxx`.
fn is_mask(text: &str) -> bool {
    (3..=MAX_MASK).contains(&text.len())
        && ['*', 'x', 'X', '.', '-', '#'].iter().any(|mask| text.chars().all(|c| c == *mask))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholder_is_told_from_a_key() {
        for text in [
            "$SERVICE_KEY",
            "$key",
            "${SERVICE_KEY}",
            "${KEY:-default}",
            "prefix-${KEY}",
            "prefix-$SERVICE_KEY",
            "$(KEY)",
            "%SERVICE_KEY%",
            "{{ .Values.key }}",
            "{{key}}-suffix",
            "{% env KEY %}",
            "<your key>",
            "<KEY>",
            "@KEY@",
            "__KEY__",
            "#{KEY}#",
            "[[ KEY ]]",
            "ENC[AES256_GCM,data:abc]",
            "ref+vault://a/b",
            "op://vault/item",
            "********",
        ] {
            assert_eq!(flaw(text), Some(OF_TEMPLATE), "{text}");
        }
        assert_eq!(flaw("${{ env \"DECK_KEY\" }}"), Some(OF_DECK));
        for key in [
            "my-key",
            "a$b",
            "k$ABC",
            "$2b$12$abc",
            "$",
            "$1",
            "50%",
            "%a b%",
            "a<b>",
            "<>",
            "{vault}",
            "{a}",
            "a@b@",
            "__init",
            "aaaa",
            "}}{{",
        ] {
            assert_eq!(flaw(key), None, "{key}");
        }
    }

    #[test]
    fn line_of_a_template_has_an_advice() {
        for line in ["  - key: {{ .Values.key }}", "{{- range .Values.keys }}", "  key: %KEY%", "- key: @KEY@"] {
            assert!(advice(line).is_some_and(|text| text.starts_with("the line has a placeholder")), "{line}");
        }
        assert_eq!(advice("  - username: ["), None);
    }
}
