//! The file of `keygate apply`, read whole: refused with the places of all its errors when anything in it is wrong.
//!
//! Its size and its depth are bounded, and it has no aliases and no tags: a small file stays small.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};

use crate::cli::output::Escaped;
use ::control::management::Document;
use platform::settings::Outline;

/// Bytes of a file at most: some two hundred thousand keys with their users.
const MAX_FILE: u64 = 64 << 20;

/// Reads a file; `-` is standard input.
pub(super) fn read(path: &Path) -> anyhow::Result<Document> {
    let mut text = String::new();
    let name = path.display();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(MAX_FILE + 1).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text))
    };
    let length = read.with_context(|| format!("{name}: cannot be read"))?;
    if length as u64 > MAX_FILE {
        bail!("{name}: is larger than {} MiB; split it", MAX_FILE >> 20);
    }
    let (mut document, outline) = parse(&text).map_err(|error| anyhow!("{name}: {}", Escaped(error)))?;
    let lines: Vec<String> = flaws(&document, &outline).into_iter().map(|flaw| format!("{name}:{flaw}")).collect();
    document.normalize();
    if lines.is_empty() { Ok(document) } else { Err(anyhow!("{}", lines.join("\n"))) }
}

/// Parses a text, YAML, or JSON, which is YAML as well; with the places of its values.
fn parse(text: &str) -> Result<(Document, Outline), String> {
    // First by the parser of settings, which bounds depth and knows no aliases: what the next
    // one reads is harmless.
    let outline = Outline::parse(text)?;
    let document = serde_yaml::from_str(text).map_err(|error| error.to_string())?;
    Ok((document, outline))
}

/// All errors of a file beyond its syntax, in its order, each behind its line and column.
fn flaws(document: &Document, outline: &Outline) -> Vec<String> {
    let flaws = document.flaws().into_iter();
    let mut flaws: Vec<_> = flaws.map(|flaw| (outline.locate(&flaw.at), flaw.what)).collect();
    flaws.sort_by_key(|(at, _)| *at);
    // Values of the file are in it, which must not look like further lines.
    flaws.into_iter().map(|(at, what)| format!("{}:{}: {}", at.line, at.column, Escaped(what))).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DIGEST: &str = "d6ca0a5d362fdab49bbf5e6e0a6f03e8f281d6476eef09cf9c1989804e9aea03";

    #[test]
    fn file_is_read_as_yaml_and_as_json() {
        let yaml = format!(
            "organizations:\n  - name: acme\n    concurrent: null\n    users: [{{ email: a@b }}]\n    keys:\n      - \
             {{ sha256: {DIGEST}, name: k, user: a@b, limits: {{ requests: 5, per: 1m }} }}\n"
        );
        let json = format!(
            r#"{{"organizations":[{{"name":"acme","concurrent":null,"users":[{{"email":"a@b"}}],
               "keys":[{{"sha256":"{DIGEST}","name":"k","user":"a@b","limits":{{"requests":5,"per":"1m"}}}}]}}]}}"#
        );
        for text in [yaml, json] {
            let (document, _) = parse(&text).unwrap();
            let org = &document.organizations[0];
            assert_eq!((org.concurrent, org.suspended), (Some(None), None));
            let limits = org.keys[0].limits.unwrap().unwrap();
            assert_eq!((limits.requests, limits.per, limits.burst), (5, Duration::from_secs(60), None));
            assert!(org.users[0].permissions.is_none());
        }
        assert!(parse("").is_ok_and(|(document, _)| document.organizations.is_empty()) || parse("").is_err());
    }

    #[test]
    fn errors_name_their_line() {
        let unknown = parse("organizations:\n  - name: acme\n    users:\n      - emial: a@b\n").unwrap_err();
        assert!(unknown.contains("emial") && unknown.contains("line 4"), "{unknown}");
        let twice = parse("organizations:\n  - name: acme\n    name: globex\n").unwrap_err();
        assert!(twice.contains("name") && twice.contains("line"), "{twice}");
        let wrong = parse("organizations:\n  - name: acme\n    suspended: maybe\n").unwrap_err();
        assert!(wrong.contains("line 3"), "{wrong}");
    }

    #[test]
    fn small_files_stay_small() {
        let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\norganizations: *c\n";
        assert!(parse(bomb).unwrap_err().contains("aliases are not supported"));
        let nested = |depth| parse(&format!("organizations: {}{}", "[".repeat(depth), "]".repeat(depth)));
        assert!(nested(40).unwrap_err().contains("nested too deeply"));
        // The parser has a bound of its own, and a text of its own.
        assert!(nested(100_000).is_err());
    }

    /// The errors of a file, each behind its line.
    fn flaws(text: &str) -> Vec<String> {
        let (document, outline) = parse(text).unwrap();
        let without_column = |flaw: &String| {
            let [line, _, what] = flaw.splitn(3, ':').collect::<Vec<_>>().try_into().unwrap();
            format!("{line}:{what}")
        };
        super::flaws(&document, &outline).iter().map(without_column).collect()
    }

    #[test]
    fn records_twice_and_keys_without_a_reference_are_flaws() {
        let key = |more: &str| format!("      - {{ name: k, user: a@b{more} }}\n");
        let text = format!(
            "organizations:\n  - name: acme\n    users: [{{ email: a@b }}, {{ email: A@b }}]\n    keys:\n{}{}{}{}{}{}  \
             - name: acme\n  - name: \u{430}cme\n",
            key(&format!(", sha256: {DIGEST}")),
            key(&format!(", sha256: {}", DIGEST.to_uppercase())),
            key(""),
            key(", sha256: ab12"),
            key(&format!(", sha256: {}, id: abcDEF123", DIGEST.replace('d', "e"))),
            key(&format!(", sha256: {}, id: abcDEF123", DIGEST.replace('d', "f"))),
        );
        let flaws = flaws(&text).join("\n");
        for flaw in [
            "3: user A@b of organization acme is there twice",
            "6: key k is there twice",
            "7: key k has neither an id nor a sha256",
            "8: key k: the sha256 is not 64 hexadecimal digits",
            "10: key abcDEF123 is there twice",
            "11: organization acme is there twice",
            "12: organization \u{430}cme looks the same as another one",
        ] {
            assert!(flaws.contains(flaw), "{flaw}: {flaws}");
        }
    }

    #[test]
    fn every_value_that_an_operation_would_refuse_is_a_flaw_with_its_line() {
        let text = format!(
            "organizations:
  - name: \"ac\\u200bme\"
    concurrent: 0
    users:
      - email: ada
    keys:
      - name: \"lap\\ntop\"
        user: ada@
        sha256: {DIGEST}
        limits: {{ requests: 0, per: 1h }}
      - id: abcDEF123
        limits:
          requests: 5
          per: 500ms
  - name: org_0197c1de000070008000000000000001
"
        );
        let flaws = flaws(&text);
        let lines: Vec<&str> = flaws.iter().map(|flaw| flaw.split(':').next().unwrap()).collect();
        assert_eq!(lines, ["2", "3", "5", "7", "8", "10", "13", "15"], "{flaws:#?}");
        for (index, part) in
            [(0, "1 to 100 characters"), (1, "concurrent must be"), (2, "not an email"), (5, "requests")]
        {
            assert!(flaws[index].contains(part), "{part}: {}", flaws[index]);
        }
    }

    #[test]
    fn user_is_a_person_or_a_service_with_a_person() {
        let text = format!(
            "organizations:
  - name: acme
    users:
      - {{ email: ada@example.com, responsible: ada@example.com }}
      - {{ service: Nightly, responsible: ada@example.com }}
      - {{ service: nightly }}
      - {{ service: \"eve@example.com\" }}
      - {{ email: bob@example.com, service: bob }}
      - {{ permissions: [] }}
      - {{ service: weekly, responsible: nightly }}
    keys:
      - {{ name: k, user: Nightly, sha256: {DIGEST} }}
"
        );
        let flaws = flaws(&text);
        let expected = [
            "4: only a service has a responsible person",
            "6: user nightly of organization acme is there twice",
            "7: the name of a service must not have an `@`",
            "8: a user has an email address, or is a service",
            "9: a user has an email address, or is a service",
            "10: `nightly` is not an email address",
        ];
        assert_eq!(flaws.len(), expected.len(), "{flaws:#?}");
        for (flaw, expected) in flaws.iter().zip(expected) {
            assert!(flaw.starts_with(expected), "{expected}: {flaw}");
        }
    }

    #[test]
    fn session_quota_digest_is_a_flaw() {
        let user = domain::identity::UserId::generate();
        let digest = state::session_quota_digest(user);
        let hex = digest.to_hex();
        let text = format!("organizations: [{{ name: a, keys: [{{ name: k, user: a@b.example, sha256: {hex} }}] }}]");
        assert_eq!(flaws(&text).len(), 1, "{:?}", flaws(&text));
    }
}
