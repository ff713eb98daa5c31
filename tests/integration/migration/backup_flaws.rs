//! Import of files that are damaged or hold impossible records: refused with their lines.

use state::StateRecord;
use state::migration::file::{FileError, Flaw, parse_record, verify};

use super::backup::{Directory, export};
use super::installation::runtime;
use super::records::RecordMaker;

/// The errors of a file.
fn flaws(file: &[u8]) -> Vec<String> {
    verify(file).unwrap_err().iter().map(FileError::to_string).collect()
}

#[test]
fn flawed_files_are_refused_with_their_lines() {
    let directory = Directory::new();
    let file = runtime().block_on(async {
        let state = directory.open();
        RecordMaker::new(&state).everything().await;
        export(&state).await
    });
    let text = String::from_utf8(file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.len();
    let joined = |lines: &[&str]| (lines.join("\n") + "\n").into_bytes();
    let edited = |edit: &dyn Fn(&mut Vec<String>)| {
        let mut edited: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        edit(&mut edited);
        edited.join("\n").into_bytes()
    };
    assert!(verify(&*joined(&lines)).is_ok());
    // Truncated: between two lines, and within one.
    assert!(flaws(&joined(&lines[..last - 1]))[0].starts_with(&format!("line {}: the file ends here", last - 1)));
    let half = &text.as_bytes()[..text.len() / 2];
    assert!(flaws(half).last().unwrap().contains("truncated"), "{:?}", flaws(half));
    // Reordered, duplicated, changed, left out.
    let swapped = flaws(&edited(&|lines| lines.swap(2, 3)));
    assert!(swapped.len() == 1 && swapped[0].contains("SHA-256"), "{swapped:?}");
    let doubled = flaws(&edited(&|lines| lines.insert(3, lines[3].clone())));
    assert!(doubled[0].contains("too many"), "{doubled:?}");
    let missing = flaws(&edited(&|lines| drop(lines.remove(3))));
    assert!(missing[0].contains("missing"), "{missing:?}");
    let changed = flaws(&edited(&|lines| lines[1] = lines[1].replace("acme", "acmf")));
    assert!(changed[0].contains("SHA-256"), "{changed:?}");
    // Not valid, in several lines: each is named.
    let invalid = flaws(&edited(&|lines| {
        lines[4] = "{\"user\":{}}".into();
        lines[7] = lines[7].replace("\"uses\":", "\"used\":");
        lines[9] = "x".repeat(1 << 21);
    }));
    let numbers: Vec<&str> = invalid.iter().map(|error| error.split(':').next().unwrap()).collect();
    assert_eq!(numbers[0], "line 5", "{invalid:?}");
    assert!(numbers.contains(&"line 8") || numbers.contains(&"line 10"), "{invalid:?}");
    assert!(invalid.iter().any(|error| error.contains("longer than")), "{invalid:?}");
    // More behind the end.
    let more = flaws(&edited(&|lines| lines.push("{}".into())));
    assert!(more[0].starts_with(&format!("line {}: there is more", last + 1)), "{more:?}");
    // A line without its end is a truncated one, and of many bad lines the first are enough.
    let torn = [lines[..3].join("\n"), "\n{\"us".to_owned()].concat();
    assert!(flaws(torn.as_bytes())[0].starts_with("line 4: the file ends here"), "{:?}", flaws(torn.as_bytes()));
    let many = flaws(&edited(&|lines| lines.splice(3..5, (0..50).map(|_| "{}".to_owned())).for_each(drop)));
    assert_eq!(many.len(), 20, "{many:?}");
    // One bad line, and not that the sums differ without it.
    let one = flaws(&edited(&|lines| lines[7] = "{}".into()));
    assert!(one.len() == 1 && one[0].starts_with("line 8: "), "{one:?}");
    // Other formats and versions.
    let newer = flaws(&edited(&|lines| lines[0] = lines[0].replace("\"version\":3", "\"version\":4,\"more\":true")));
    assert!(
        newer[0].starts_with("line 1: the format has version 4, and this keygate reads versions 1 to 3; import it")
    );
    let unknown = verify(&*edited(&|lines| lines[0] = lines[0].replace("\"version\":3", "\"version\":0"))).unwrap_err();
    assert!(matches!(unknown[0].flaw, Flaw::Version(0)), "{unknown:?}");
    let other = edited(&|lines| lines[0] = lines[0].replace("keygate-state", "other-state"));
    for other in [&other[..], b"", b"\n", b"{\"orgs\":[]}\n", b"SQLite format 3\0"] {
        assert!(flaws(other)[0].contains("not an exported state"), "{other:?}");
    }
}

#[test]
fn records_that_could_not_be_are_refused() {
    let directory = Directory::new();
    let lines = runtime().block_on(async {
        let state = directory.open();
        RecordMaker::new(&state).everything().await;
        String::from_utf8(export(&state).await).unwrap()
    });
    let key = lines.lines().find(|line| line.contains("half empty")).unwrap();
    let parse = |line: &str| parse_record(line.as_bytes()).map(|_: StateRecord| ());
    parse(key).unwrap();
    let level = key.split("\"level\":").nth(1).unwrap().split(',').next().unwrap();
    let org = lines.lines().find(|line| line.contains("\"max_expiry\":\"1h\"")).unwrap();
    let found = parse(&org.replace("\"max_expiry\":\"1h\"", "\"max_expiry\":\"1s\"")).unwrap_err().to_string();
    assert!(found.contains("the policy is not valid"), "{found}");
    for (from, to, error) in [
        (format!("\"level\":{level}"), "\"level\":999000000000000".to_owned(), "level of a bucket"),
        ("\"per_us\":3600000000".into(), "\"per_us\":0".into(), "a quota is not valid"),
        ("\"imported\":false".into(), "\"imported\":false,\"unknown\":1".into(), "unknown field"),
        ("\"session_quota_key\":false".into(), "\"session_quota_key\":true".into(), "web sessions"),
        ("\"created_by\":\"".into(), "\"created_by\":\"\\u001b[2J".into(), "none of a change of this key"),
        ("\"created_by\":\"".into(), "\"revoked_by\":\"".into(), "none of a change of this key"),
    ] {
        let line = key.replace(&from, &to);
        assert_ne!(line, key, "{from}");
        let found = parse(&line).unwrap_err().to_string();
        assert!(found.contains(error), "{found}");
    }
}

#[test]
fn names_and_addresses_that_could_not_be_created_are_refused() {
    let directory = Directory::new();
    let lines = runtime().block_on(async {
        let state = directory.open();
        let mut maker = RecordMaker::new(&state);
        let org = maker.org("people").await;
        let person = maker.user(&org, "person@example.com").await;
        maker.keys_by(&org, person, 1).await;
        String::from_utf8(export(&state).await).unwrap()
    });
    let line = |kind: &str| lines.lines().find(|line| line.starts_with(&format!("{{\"{kind}\":"))).unwrap();
    let (org, user, key) = (line("org"), line("user"), line("key"));
    let named = |line: &str, name: &str| {
        let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
        let fields = record.as_object_mut().unwrap().values_mut().next().unwrap();
        fields[if line == user { "email" } else { "name" }] = name.into();
        parse_record(record.to_string().as_bytes()).map(drop).map_err(|error| error.to_string())
    };
    for (line, good) in [(org, "Acme Inc."), (user, "ada@example.com"), (key, "laptop")] {
        assert_eq!(named(line, good), Ok(()));
    }
    for name in ["", " acme", "acme\u{a0}", "a\u{1b}[2Jb", "a\nb", "a\u{200b}b", "a\u{202e}b"] {
        for line in [org, key] {
            let error = named(line, name).unwrap_err();
            assert!(error.contains("is not valid") || error.contains("as it was created"), "{name:?}: {error}");
            assert!(!error.contains(['\u{1b}', '\n', '\u{202e}']), "{error:?}");
        }
    }
    assert!(named(org, "org_0197c1de000070008000000000000001").is_err(), "looks like an id");
    for email in ["", "ada", "Ada@example.com", "ada@exa\u{200b}mple.com", "a\nb@example.com"] {
        assert!(named(user, email).is_err(), "{email:?}");
    }
}

#[test]
fn bucket_of_created_keys_that_could_not_be_is_refused() {
    let directory = Directory::new();
    let lines = runtime().block_on(async {
        let state = directory.open();
        let mut maker = RecordMaker::new(&state);
        let org = maker.org("people").await;
        let person = maker.user(&org, "person@example.com").await;
        maker.keys_by(&org, person, 3).await;
        String::from_utf8(export(&state).await).unwrap()
    });
    let user = lines.lines().find(|line| line.contains("person@example.com")).unwrap();
    parse_record(user.as_bytes()).unwrap();
    let creation = user.split("\"creation\":").nth(1).unwrap();
    let level = creation.split("\"level\":").nth(1).unwrap().split(',').next().unwrap();
    let line = user.replace(&format!("\"level\":{level}"), "\"level\":9007199254740993");
    assert_ne!(line, user);
    assert!(parse_record(line.as_bytes()).unwrap_err().to_string().contains("level of a bucket"));
}
