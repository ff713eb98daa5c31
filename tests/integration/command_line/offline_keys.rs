//! `keygate key generate`, and the commands that take its digests.

use domain::key::PlainKey;

use super::*;

/// A generated key as its JSON has it.
struct Generated {
    id: String,
    key: String,
    sha256: String,
}

impl Generated {
    fn of(json: &Value) -> Self {
        let text = |name: &str| json[name].as_str().unwrap().to_owned();
        assert_eq!(json.as_object().unwrap().len(), 3, "{json}");
        Self { id: text("id"), key: text("key"), sha256: text("sha256") }
    }

    /// Checks that the three belong together.
    fn check(&self) {
        let id = domain::key::parse(self.key.as_bytes()).unwrap();
        assert_eq!((id.as_str(), KeyDigest::of(self.key.as_bytes()).to_hex()), (&*self.id, self.sha256.clone()));
    }
}

/// Installation with acme and Ada.
fn installation() -> (Installation, String) {
    let installation = Installation::new();
    installation.ok("org create acme");
    installation.ok("user create --org acme ada@example.com");
    let tag = installation.json("org show acme")["tag"].as_str().unwrap().to_owned();
    (installation, tag)
}

#[test]
fn keys_are_generated_without_a_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let generate = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keygate"));
        command.current_dir(directory.path()).args(["key", "generate"]).args(line.split_whitespace());
        Ended::of(command.output().unwrap())
    };
    // A script takes the words of a line.
    let one = generate("--tag aB3");
    let words: Vec<&str> = one.out.split_whitespace().collect();
    assert_eq!((one.code, words.len(), one.out.lines().count(), &*one.err), (0, 3, 1, ""), "{one:?}");
    Generated { id: words[0].into(), key: words[1].into(), sha256: words[2].into() }.check();
    assert!(words[0].starts_with("aB3"));
    let json: Value = serde_json::from_str(&generate("--tag aB3 --json").out).unwrap();
    Generated::of(&json).check();
    let many: Value = serde_json::from_str(&generate("--tag aB3 --count 50 --json").out).unwrap();
    let many: Vec<Generated> = many["items"].as_array().unwrap().iter().map(Generated::of).collect();
    many.iter().for_each(Generated::check);
    let mut ids: Vec<&String> = many.iter().map(|key| &key.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 50);
    let next: Value = serde_json::from_str(&generate("--id aB3dE6gH9 --json").out).unwrap();
    assert_eq!(next["id"], "aB3dE6gH9");
    Generated::of(&next).check();
    for (line, part) in [("", "--tag"), ("--tag acme", "3 letters"), ("--tag aB3 --count 0", "1..=10000")] {
        let refused = generate(line);
        assert!(refused.code == 2 && refused.err.contains(part), "{line}: {refused:?}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "no file is read or written");
}

#[test]
fn generated_key_is_shown_with_names_on_a_terminal() {
    let command = format!("{} key generate --tag aB3", env!("CARGO_BIN_EXE_keygate"));
    let shown = Command::new("script").args(["-qec", &command, "/dev/null"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let value = |name: &str| {
        let line = shown.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{shown}"));
        line.trim().to_owned()
    };
    Generated { id: value("id "), key: value("key "), sha256: value("sha256 ") }.check();
}

#[test]
fn key_is_created_and_rotated_by_its_digest_without_and_through_a_gateway() {
    let (installation, tag) = installation();
    let create = "key create --org acme --user ada@example.com";
    let made = || Generated::of(&installation.json(&format!("key generate --tag {tag}")));
    let create_and_rotate = || {
        let key = made();
        let line = format!("{create} --id {} --sha256 {} deploy", key.id, key.sha256);
        let created = installation.json(&line);
        assert_eq!((&created["key"], &created["id"]), (&Value::Null, &Value::from(&*key.id)));
        let next = Generated::of(&installation.json(&format!("key generate --id {}", key.id)));
        let rotated = installation.ok(&format!("key rotate {} --sha256 {} --overlap 1h", key.id, next.sha256));
        assert!(rotated.out.contains(&format!("id                {}\n", key.id)), "{rotated:?}");
        assert!(rotated.err.contains("the old secret is valid until"), "{rotated:?}");
        let again = installation.run(&line);
        assert!(
            again.code == 1 && again.err.contains(&format!("a key {} has or had this SHA-256", key.id)),
            "{again:?}"
        );
        [key.key, next.key]
    };
    let mut secrets = create_and_rotate().to_vec();
    secrets.extend(installation.with_gateway(create_and_rotate));
    secrets.iter().for_each(|key| installation.with_use_of(key));
    let shown = made();
    let shown = installation.ok(&format!("{create} --id {} --sha256 {} shown", shown.id, shown.sha256));
    assert!(shown.out.contains("name              shown\n") && !shown.out.contains("sk_live_"), "{shown:?}");
}

#[test]
fn wrong_operands_have_their_exit_codes() {
    let (installation, tag) = installation();
    let create = "key create --org acme --user ada@example.com k";
    let id = format!("{tag}dE6gH9");
    let key = PlainKey::generate(id.parse().unwrap()).unwrap();
    let sha256 = key.digest().to_hex();
    let other = if tag == "zzz" { "yyydE6gH9" } else { "zzzdE6gH9" };
    for (code, line, part) in [
        (2, format!("{create} --id {id}"), "--sha256"),
        (2, format!("{create} --sha256 {sha256}"), "--id"),
        (2, format!("{create} --id {id} --sha256 {}", "0".repeat(64)), "an example of the documentation"),
        (2, format!("{create} --id {id} --sha256 abc"), "not the SHA-256"),
        (1, format!("{create} --id {other} --sha256 {sha256}"), "--tag"),
    ] {
        let refused = installation.run(&line);
        assert!(refused.code == code && refused.err.contains(part), "{line}: {refused:?}");
        let through_gateway = installation.with_gateway(|| installation.run(&line));
        assert_eq!((through_gateway.code, through_gateway.err), (code, refused.err), "{line}");
    }
}

#[test]
fn file_has_the_id_and_the_digest_of_a_key_made_offline() {
    let (installation, tag) = installation();
    let key = PlainKey::generate(format!("{tag}dE6gH9").parse().unwrap()).unwrap();
    let file = |id: &str, sha256: &str, more: &str| {
        let key = format!("{{ id: {id}, sha256: {sha256}, name: deploy, user: ada@example.com{more} }}");
        format!("organizations: [{{ name: acme, keys: [{key}] }}]")
    };
    let (id, sha256) = (key.id().to_string(), key.digest().to_hex());
    let conflict = |text: &str, part: &str| {
        let planned = installation.apply(text, "--dry-run");
        assert!(planned.code == 1 && planned.out.contains(part), "{planned:?}");
    };
    let other = if tag == "zzz" { "yyydE6gH9" } else { "zzzdE6gH9" };
    conflict(&file(other, &sha256, ""), "does not begin with the tag of acme");
    let limited = file(&id, &sha256, ", limits: { requests: 5, per: 1m }, disabled: true");
    let applied = installation.apply(&limited, "--yes");
    assert_eq!(
        applied.out,
        format!("+ key acme/{id}: user ada@example.com; limits 5 per 1m, burst 5; disabled true\napplied 1 change\n")
    );
    assert_eq!(installation.apply(&limited, "--yes").out, "nothing to change\n");
    let enabled = installation.apply(&file(&id, &sha256, ", disabled: false"), "--yes");
    assert_eq!(enabled.code, 0, "{enabled:?}");
    installation.with_use_of(key.expose().expose());
    let shown = &installation.json(&format!("key show {id}"));
    assert_eq!((&shown["imported"], &shown["limits"]["requests"]), (&Value::from(false), &Value::from(5)));
    conflict(&file(&format!("{tag}dE6gH0"), &sha256, ""), "a key made offline has both");
    let taken = installation.apply(&file(&id, &KeyDigest::of(b"another").to_hex(), ""), "--yes");
    assert!(taken.code == 1 && taken.out.contains("is taken"), "{taken:?}");
}
