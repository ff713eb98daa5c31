//! Commands on organizations, users, keys and tokens: what changes, and what is shown, is the same over both ways.

use domain::key::{KeyId, PlainKey};
use serde_json::json;

use super::*;
use crate::support::Client;

/// A text without what differs between two records: ids, tags, secrets and times.
fn masked(text: &str, names: &[(&str, &str)]) -> String {
    let mut named = names.iter().fold(text.to_owned(), |text, (name, mask)| text.replace(name, mask));
    if let Some(at) = named.find("\"tag\":\"") {
        named.replace_range(at + 7..at + 10, "TAG");
    }
    let mut words = Vec::new();
    for line in named.lines().filter(|line| !line.starts_with("tag ") && !line.starts_with("id ")) {
        let masked =
            line.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').map(|word| {
                let bare = word.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
                let digits = bare.chars().filter(char::is_ascii_digit).count();
                let is_id = bare.starts_with("org_") || bare.starts_with("usr_") || bare.starts_with("sk_live_");
                let is_id = is_id || bare.starts_with("kgm_") || digits > 1 || (bare.len() >= 9 && digits > 0);
                if is_id { word.replace(bare, "*") } else { word.to_owned() }
            });
        words.push(masked.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" "));
    }
    words.join("\n")
}

/// Id of the key whose secret a command showed.
fn shown_id(out: &str) -> Option<&str> {
    Some(&out.split_once("sk_live_")?.1[..9])
}

/// A text in which the operator and the program with the token are the same actor.
fn with_one_actor(text: &str, token: &str) -> String {
    let text = text.replace(&format!("token:{token}"), "ACTOR");
    let mut text = text.replace(&format!(r#"{{"kind":"program","token":"{token}"}}"#), "ACTOR");
    for (begin, end) in [(r#"{"kind":"operator","name":""#, "\"}"), ("unix:", ")")] {
        while let Some(at) = text.find(begin) {
            let after = at + text[at..].find(end).unwrap() + end.len();
            text.replace_range(at..after, "ACTOR");
        }
    }
    text
}

/// The command for the second organization in place of the first.
fn of_other(line: &str, key: &str, other: &str) -> String {
    line.replace("ORG", "umbra").replace("KEY", other).replace(key, other)
}

#[test]
fn commands_change_and_show_the_same_over_the_socket_and_over_the_api() {
    let fixture = Fixture::start();
    let token = fs::read_to_string(fixture.files.path().join("token")).unwrap()["kgm_".len()..][..10].to_owned();
    let run = |line: &str, key: &str, other: &str| {
        let local = fixture.local(&line.replace("ORG", "acmes").replace("KEY", key));
        let remote = fixture.remote(&of_other(line, key, other));
        assert_eq!((local.code, remote.code), (0, 0), "{line}: {local:?} {remote:?}");
        let [shown, shown_other] = [&local, &remote].map(|ended| shown_id(&ended.out).unwrap_or_default());
        let keys = [key, other, shown, shown_other].map(|id| (id, "KEY"));
        let names = [("acmes", "ORG"), ("umbra", "ORG")].into_iter().chain(keys);
        let names: Vec<(&str, &str)> = names.filter(|(name, _)| !name.is_empty()).collect();
        let masked = |text: &str| masked(&with_one_actor(text, &token), &names);
        assert_eq!((masked(&remote.out), masked(&remote.err)), (masked(&local.out), masked(&local.err)), "{line}");
        [local.out, remote.out]
    };
    for line in [
        "org create ORG",
        "org limits ORG --concurrent 7 --json",
        "org policy ORG --max-expiry 90d --unused-keys never",
        "org suspend ORG",
        "org resume ORG --json",
        "org show ORG",
        "user create --org ORG ada@example.com --permission queries:read --permission queries:write",
        "user create --org ORG --service nightly --responsible ada@example.com --json",
        "user permit --org ORG nightly --permission queries:read",
        "user permit --org ORG nightly",
        "user permit --org ORG nightly --add queries:write --remove queries:read",
        "user permit --org ORG nightly --set queries:read --json",
        "user suspend --org ORG nightly --json",
        "user resume --org ORG nightly",
        "user reassign --org ORG nightly --responsible ada@example.com",
        "user list --org ORG",
        "federation create deploy --org ORG --user nightly --issuer https://ci.example.com --audience api \
         --claim sub=repo:acme/*:ref:refs/heads/main --permission queries:read --tag team=ci",
        "federation list --org ORG",
        "federation show deploy --org ORG --json",
        "federation remove deploy --org ORG",
    ] {
        run(line, "", "");
    }
    let created = run("key create --org ORG --user ada@example.com --expires 30d --tag team=billing laptop", "", "");
    let [key, other] = created.map(|out| shown_id(&out).unwrap().to_owned());
    for line in [
        "key show KEY",
        "key set KEY --network 10.0.0.0/8 --concurrent 3",
        "key set KEY --clear networks --no-tag team --json",
        // Its bucket is full from here on: a token that came between two commands would differ.
        "key limits KEY --requests 5 --per 1m",
        "key disable KEY",
        "key enable KEY",
        "key rotate KEY --overlap 1h",
        "key list --org ORG --state active",
        "key list --org ORG --json",
        "explain KEY",
        "key limits KEY --default --json",
        "key revoke KEY --json",
        "user remove --org ORG nightly",
        "user list --org ORG --json",
    ] {
        run(line, &key, &other);
    }
    let digest = "0a6f09f8b92e5a5e9e9d5a0d4f4ed6f4b3d4bfa0b6a5ea4a2e0c5ed5d5d5d500";
    let import = format!("key import --org ORG --user ada@example.com old --sha256 {digest}");
    let imported = [import.replace("ORG", "acmes"), import.replace("ORG", "umbra").replace("d500", "d501")];
    let [local, remote] = [fixture.local(&imported[0]), fixture.remote(&imported[1])];
    assert_eq!((local.code, remote.code), (0, 0), "{local:?} {remote:?}");
    let masked = |text: &str| masked(&with_one_actor(text, &token), &[]);
    assert_eq!(masked(&remote.out), masked(&local.out));
}

#[test]
fn lists_of_several_pages_are_the_same() {
    let fixture = Fixture::start();
    assert_eq!(fixture.local("org create acme").code, 0);
    fixture.local("user create --org acme ada@example.com");
    for number in 0..3 {
        fixture.local(&format!("org create org-{number}"));
    }
    for number in 0..103 {
        fixture.gateway.create_key("acme", "ada@example.com", &format!("key {number}"));
    }
    for line in ["org list", "org list --json", "user list", "user list --json"] {
        fixture.same(line);
    }
    // The remote list is a use of the token itself.
    let tokens = [fixture.local("token list --json"), fixture.remote("token list --json")].map(|listed| {
        let mut listed: Value = serde_json::from_str(&listed.out).unwrap();
        assert_ne!(listed["items"][0]["last_use"].take()["user_agent"], Value::Null);
        listed
    });
    assert_eq!(tokens[0], tokens[1]);
    let keys = fixture.same("key list --org acme");
    assert_eq!(keys.lines().count(), 104, "{keys}");
    assert_eq!(fixture.same("key list --json").matches("\"id\"").count(), 103);
    let csv = fixture.same("key list --org acme --csv");
    assert!(csv.starts_with("id,name,user,status,") && csv.matches("\r\n").count() == 104, "{csv}");
    assert_eq!(fixture.same("key list --org acme --csv --name 10").lines().count(), 5, "and the titles");
    assert_eq!(fixture.same("key list --org acme --name 10").lines().count(), 5, "10, 100, 101 and 102");
}

#[test]
fn key_is_found_by_its_secret_with_its_last_attempt() {
    let fixture = Fixture::start();
    let key = fixture.gateway.key();
    assert_eq!(Client::connect(fixture.gateway.address).get("/", &key.text).status, 200);
    fixture.gateway.records();
    let found = fixture.with_token("token", "key find --stdin --json", &key.text);
    let found: Value = serde_json::from_str(&found.out).unwrap_or_else(|_| panic!("{found:?}"));
    assert_eq!(found["id"], json!(key.id));
    assert_eq!(found["last_attempt"]["outcome"], "completed");
    fixture.same(&format!("key show {}", key.id));
}

#[test]
fn tokens_are_created_listed_and_revoked() {
    let fixture = Fixture::start();
    let org = fixture.gateway.key().org;
    let created = fixture.remote(&format!("token create reader --org {org} --allow keys:read,orgs:read"));
    assert_eq!(created.code, 0, "{created:?}");
    assert!(created.out.starts_with("kgm_") && created.out.lines().count() == 1, "{created:?}");
    fixture.write("reader", &created.out);
    // It lists its own organization alone, so that commands on all of them work.
    assert_eq!(fixture.with_token("reader", "key list --json", "").code, 0);
    let id = &created.out["kgm_".len()..][..10];
    let revoked = fixture.json(&format!("token revoke {id}"));
    assert_eq!(revoked["id"], id);
    let refused = fixture.with_token("reader", "org list", "");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("the token is not known, or was revoked"), "{refused:?}");
}

#[test]
fn token_of_one_organization_finds_no_key_of_another() {
    let fixture = Fixture::start();
    let [own, other] = [fixture.gateway.key(), fixture.gateway.key()];
    fixture.token("reader", &format!("token create reader --org {} --allow keys:read,usage:read", own.org));
    let find = |secret: &str| fixture.with_token("reader", "key find --stdin", secret);
    assert_eq!(find(&own.text).code, 0);
    let refused = find(&other.text);
    assert_eq!(refused.code, 1, "{refused:?}");
    let id: KeyId = format!("{}zzzzzz", &other.id.to_string()[..3]).parse().unwrap();
    let missing = find(PlainKey::generate(id).unwrap().expose().expose());
    assert_eq!(refused.err.replace(&other.id.to_string(), "*"), missing.err.replace(&id.to_string(), "*"));
}
