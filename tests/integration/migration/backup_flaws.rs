//! Import of files that are damaged or hold impossible records: refused with their lines.

use domain::clock;
use domain::key::KeyDigest;
use serde_json::{Value, json};
use state::migration::file::{FileError, Flaw, parse_record, verify};
use state::migration::{Mismatch, Records, compare};
use state::{Change, OrgPatch, StateRecord};

use super::backup::{Directory, content, export, import_file};
use super::installation::runtime;
use super::records::{RecordMaker, monthly};
use crate::support::Random;

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
    assert!(doubled[0].starts_with("line 5: another record of the file has the same id"), "{doubled:?}");
    let missing = flaws(&edited(&|lines| drop(lines.remove(5))));
    assert!(missing[0].contains("missing"), "{missing:?}");
    let without_org = flaws(&edited(&|lines| drop(lines.remove(3))));
    assert!(without_org[0].contains("its organization is not in the lines before it"), "{without_org:?}");
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
    let newer = flaws(&edited(&|lines| lines[0] = lines[0].replace("\"version\":4", "\"version\":5,\"more\":true")));
    assert!(
        newer[0].starts_with("line 1: the format has version 5, and this keygate reads versions 1 to 4; import it")
    );
    let unknown = verify(&*edited(&|lines| lines[0] = lines[0].replace("\"version\":4", "\"version\":0"))).unwrap_err();
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

/// More digests of a key come in lines of their own: none of them is that of web sessions.
#[test]
fn digest_of_web_sessions_is_no_former_digest_of_a_key() {
    let of_sessions = state::session_quota_digest(domain::identity::UserId::generate());
    let line = |digest: &KeyDigest| {
        let hex: String = digest.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        json!({ "digests": { "key": "abcDEF123", "replaced": [hex] } }).to_string()
    };
    assert!(parse_record(line(&KeyDigest::of(b"former")).as_bytes()).is_ok());
    let error = parse_record(line(&of_sessions).as_bytes()).map(drop).unwrap_err().to_string();
    assert!(error.contains("belongs to web sessions"), "{error}");
}

/// The same limits as those of a change by management: a state would refuse 0, and its organization admit nothing.
#[test]
fn organization_has_a_limit_that_can_be_set() {
    let line = |concurrent: u32| {
        json!({ "org": {
            "id": "org_0197c1de000070008000000000000001", "tag": "abc", "name": "acme",
            "created": "2026-01-01T00:00:00.000000Z", "suspended": false, "concurrent": concurrent,
        } })
    };
    let parse = |concurrent| parse_record(line(concurrent).to_string().as_bytes()).map(drop);
    for concurrent in [1, 1_000_000] {
        assert!(parse(concurrent).is_ok(), "{:?}", parse(concurrent));
    }
    for concurrent in [0, 1_000_001, u32::MAX] {
        let error = parse(concurrent).unwrap_err().to_string();
        assert_eq!(error, format!("concurrent is {concurrent}, and must be 1 to 1000000"));
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

/// The lines between the first and the last with their counts and their SHA-256, as someone would write them who
/// changes a file on purpose.
fn summed(lines: &[String]) -> Vec<u8> {
    let between = lines[1..lines.len() - 1].iter().map(|line| format!("{line}\n")).collect::<String>();
    let count = |kind: &str| between.lines().filter(|line| line.starts_with(&format!("{{\"{kind}\":"))).count();
    let digests: usize = between.lines().map(digests_of).sum();
    let hash =
        KeyDigest::of(between.as_bytes()).as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut end = json!({ "orgs": count("org"), "users": count("user"), "keys": count("key"), "digests": digests });
    for (name, kind) in [("rules", "rule"), ("tokens", "token"), ("spent", "spent")] {
        if count(kind) > 0 {
            end[name] = count(kind).into();
        }
    }
    end["sha256"] = hash.into();
    format!("{}\n{between}{}\n", lines[0], json!({ "end": end })).into_bytes()
}

/// The number of digests of a line.
fn digests_of(line: &str) -> usize {
    match parse_record(line.as_bytes()) {
        Ok(StateRecord::Key(key)) => key.digests().count(),
        Ok(StateRecord::Digests(_, digests)) => digests.len(),
        _ => 0,
    }
}

/// The lines of a state with two organizations: each with a person and a service, a rule and a key, and with something
/// spent; and a token.
fn two_orgs() -> Vec<String> {
    let directory = Directory::new();
    let file = runtime().block_on(async {
        let state = directory.open();
        let mut maker = RecordMaker::new(&state);
        for name in ["acme", "globex"] {
            let org = maker.org(name).await;
            let person = maker.user(&org, "ada@example.com").await;
            let (_, digest) = maker.key(&org, person, "laptop").await;
            let patch = OrgPatch { budget: monthly(1000), ..OrgPatch::default() };
            maker.change(Change::UpdateOrg { org: org.id, patch }).await;
            maker.take(&digest, 2).await;
            maker.programs(&org, person).await;
        }
        export(&state).await
    });
    String::from_utf8(file).unwrap().lines().map(str::to_owned).collect()
}

/// Each file has the right sums: an import is refused whole, with the line, before its first change.
#[test]
fn hostile_files_are_refused_with_their_lines() {
    let lines = two_orgs();
    assert!(verify(&*summed(&lines)).is_ok());
    let numbers = |kind: &str| -> Vec<usize> {
        (0..lines.len()).filter(|number| lines[*number].starts_with(&format!("{{\"{kind}\":"))).collect()
    };
    let (orgs, users, rules) = (numbers("org"), numbers("user"), numbers("rule"));
    let (keys, tokens, spent) = (numbers("key"), numbers("token"), numbers("spent"));
    let field = |line: usize, name: &str| {
        let record: Value = serde_json::from_str(&lines[line]).unwrap();
        record.as_object().unwrap().values().next().unwrap()[name].clone()
    };
    let subject = |kind: &str, line: usize| json!(format!("{kind}:{}", field(line, "id").as_str().unwrap()));
    // The tokens of an organization have an administrator.
    let of_admin = *tokens.iter().find(|line| !field(**line, "admin").is_null()).unwrap();
    let of_other = *users.iter().rfind(|line| field(**line, "org") != field(of_admin, "org")).unwrap();
    // The service of the other organization comes after the rule, and has the flaw.
    let mut early = lines.clone();
    early[rules[0]] =
        lines[rules[0]].replace(field(users[1], "id").as_str().unwrap(), field(users[3], "id").as_str().unwrap());
    let found = flaws(&summed(&early));
    let expected = format!("line {}: its rule, key, token or service belongs to another", users[3] + 1);
    assert!(found[0].starts_with(&expected), "{found:?}");
    // So does a person who is the subject of a budget in a line before.
    let mut early = lines.clone();
    early[spent[0]] = lines[spent[0]]
        .replace(field(spent[0], "subject").as_str().unwrap(), subject("user", users[2]).as_str().unwrap());
    assert!(flaws(&summed(&early))[0].starts_with(&format!("line {}: its ", users[2] + 1)));
    for (line, name, value, problem) in [
        (orgs[1], "id", field(orgs[0], "id"), "another record of the file has the same id"),
        (orgs[1], "tag", field(orgs[0], "tag"), "another record of the file has the same tag"),
        (orgs[1], "name", field(orgs[0], "name"), "another record of the file has the same name"),
        (users[1], "id", field(users[0], "id"), "another record of the file has the same id"),
        (users[0], "org", json!("org_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), "its organization is not in the lines before"),
        (users[0], "permissions", json!(["b", "a"]), "sorted, each once"),
        (users[0], "email", json!("a".repeat(400) + "@example.com"), "is not an email address"),
        (users[1], "responsible", field(users[1], "id"), "a service is responsible for a service"),
        (users[3], "responsible", field(users[0], "id"), "its responsible person belongs to another organization"),
        (users[0], "responsible", field(users[1], "id"), "is not valid"),
        (keys[1], "id", field(keys[0], "id"), "another record of the file has the same id"),
        (keys[1], "sha256", field(keys[0], "sha256"), "another record of the file has the same digest"),
        (keys[1], "org", field(keys[0], "org"), "its id belongs to another organization"),
        (keys[1], "user", field(users[0], "id"), "its user belongs to another organization"),
        (keys[0], "name", json!("n".repeat(1000)), "is not valid"),
        (rules[1], "name", field(rules[0], "name"), "another record of the file has the same name"),
        (rules[3], "user", field(users[1], "id"), "its user belongs to another organization"),
        (rules[0], "user", field(users[0], "id"), "its user is a person"),
        (tokens[1], "id", field(tokens[0], "id"), "another record of the file has the same id"),
        (tokens[1], "digest", field(tokens[0], "digest"), "another record of the file has the same digest"),
        (of_admin, "admin", field(of_other, "id"), "its administrator belongs to another organization"),
        (spent[1], "subject", field(spent[0], "subject"), "another record of the file has the same subject"),
        (spent[1], "subject", subject("key", keys[0]), "its subject belongs to another organization"),
        (spent[0], "org", field(orgs[1], "id"), "its subject belongs to another organization"),
        (spent[0], "start", json!("2999-01-01T00:00:00.000000Z"), "what is spent has the start of a second"),
        (spent[0], "start", json!("2026-11-01T00:00:00.000001Z"), "what is spent has the start of a second"),
        (spent[0], "units", json!(1_000_000_000_000_001_u64), "at most 1,000,000,000,000,000 units"),
    ] {
        let mut hostile = lines.clone();
        let mut record: Value = serde_json::from_str(&lines[line]).unwrap();
        record.as_object_mut().unwrap().values_mut().next().unwrap()[name] = value;
        hostile[line] = record.to_string();
        let expected = format!("line {}: ", line + 1);
        let errors = verify(&*summed(&hostile)).err();
        let errors = errors.unwrap_or_else(|| panic!("{name} of {expected}{problem}"));
        let found: Vec<String> = errors.iter().map(FileError::to_string).collect();
        assert!(
            found[0].starts_with(&expected) && found[0].contains(problem),
            "{name} of {expected}{problem}: {found:?}"
        );
    }
}

/// A file that names users who are not in it is an export of a state in use.
#[test]
fn key_of_a_user_who_was_created_meanwhile_is_left_out() {
    let lines = two_orgs();
    let person = lines.iter().position(|line| line.contains("\"email\":\"ada@example.com\"")).unwrap();
    let mut without = lines.clone();
    without.remove(person);
    let file = summed(&without);
    assert!(verify(&*file).is_ok());
    let directory = Directory::new();
    runtime().block_on(async {
        let report = import_file(&file, &directory.open()).await;
        assert_eq!((report.left_out.keys, report.conflicts.len()), (1, 0), "{report:?}");
    });
}

/// Bytes and lines of a file changed at random, 2,000 times: the check refuses each, or it is the same file.
#[test]
fn mutated_files_are_refused() {
    let lines = two_orgs();
    let original = (lines.join("\n") + "\n").into_bytes();
    let mut random = Random::new(51);
    let mut refused = 0;
    for _ in 0..2000 {
        let mut file = original.clone();
        for _ in 0..=random.index(3) {
            let at = random.index(file.len());
            let end = at + random.index((file.len() - at).min(80));
            match random.index(6) {
                0 => file[at] ^= 1 << random.index(8),
                1 => drop(file.drain(at..=end)),
                2 => drop(file.splice(at..at, file[at..=end].to_vec())),
                3 => file.truncate(at + 1),
                4 => file[at..=end].reverse(),
                _ => {
                    let mut lines: Vec<Vec<u8>> =
                        file.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
                    let (one, other) = (random.index(lines.len()), random.index(lines.len()));
                    lines.swap(one, other);
                    file = lines.concat();
                }
            }
        }
        match verify(&*file) {
            Err(errors) => {
                assert!(!errors.is_empty() && errors.iter().all(|error| error.line > 0), "{errors:?}");
                refused += 1;
            }
            // The time of the export is in no sum.
            Ok(_) => assert_eq!(content(&file), content(&original)),
        }
    }
    assert!(refused > 1800, "{refused}");
}

/// The value of a field, changed in one of several ways.
fn mutated(value: &Value, other: &Value, random: &mut Random) -> Value {
    match (random.index(3), value) {
        (0, _) => other.clone(),
        (1, Value::Bool(value)) => json!(!value),
        (1, Value::Number(number)) => json!(number.as_i64().unwrap_or_default() + 1),
        (1, Value::Array(list)) => Value::Array(list.iter().skip(1).cloned().collect()),
        (1, Value::String(text)) => {
            let mut letters: Vec<char> = text.chars().collect();
            let at = random.index(letters.len().max(1));
            letters.get_mut(at).into_iter().for_each(|letter| *letter = if *letter == '1' { '2' } else { '1' });
            letters.into_iter().collect::<String>().into()
        }
        _ => Value::Null,
    }
}

/// Fields of records changed at random, 2,000 times, in files whose sums are right: each file is refused, or changes
/// nothing of a record that is there but withdrawals, and counters that began earlier.
#[test]
fn changed_files_with_right_sums_change_no_record_that_is_there() {
    const WITHDRAWALS: [&str; 6] =
        ["removed", "revoked", "revoked_by", "suspended", "suspended_by_operator", "withdrawn"];
    let lines = two_orgs();
    let records: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kind = |line: usize| records[line].as_object().unwrap().keys().next().unwrap().clone();
    let original = Records::read(&*summed(&lines)).unwrap();
    let directory = Directory::new();
    let mut random = Random::new(51);
    let (mut refused, mut added, mut withdrawn) = (0, 0, 0);
    runtime().block_on(async {
        let state = directory.open();
        assert!(import_file(&summed(&lines), &state).await.is_complete());
        for number in 0..2000 {
            let line = 1 + random.index(lines.len() - 2);
            let alike: Vec<usize> = (1..lines.len() - 1).filter(|other| kind(*other) == kind(line)).collect();
            let other = &records[alike[random.index(alike.len())]][kind(line)];
            let mut record = records[line].clone();
            let fields = record[kind(line)].as_object_mut().unwrap();
            let name = fields.keys().nth(random.index(fields.len())).unwrap().clone();
            fields[&name] = mutated(&fields[&name], &other[&name], &mut random);
            let mut changed = lines.clone();
            changed[line] = record.to_string();
            let file = summed(&changed);
            if verify(&*file).is_err() {
                refused += 1;
                continue;
            }
            let report = import_file(&file, &state).await;
            added += [report.orgs, report.users, report.keys, report.rules, report.tokens, report.spent]
                .map(|of| of.copied)
                .iter()
                .sum::<u64>();
            withdrawn += report.withdrawn;
            let now = Records::read(&*export(&state).await).unwrap();
            for finding in compare(&original, &now, clock::now()).differences {
                let Mismatch::Differs(fields) = &finding.problem else { panic!("{number}, {name}: {finding}") };
                assert!(fields.iter().all(|field| WITHDRAWALS.contains(&&**field)), "{number}, {name}: {finding}");
            }
        }
    });
    assert!(refused > 500 && added > 10 && withdrawn > 0, "{refused} refused, {added} added, {withdrawn} withdrawn");
}
