//! `keygate apply --server`, and the check of a pipeline that the state is what the file says.

use super::*;
use crate::support::Shell;
use crate::support::page::block;

const FILE: &str = "organizations:
  - name: acme
    concurrent: 7
    users:
      - { email: ada@example.com, permissions: [queries:read] }
      - { service: nightly, responsible: ada@example.com, permissions: [queries:read] }
    federation_rules:
      - { name: deploy, user: nightly, issuer: 'https://ci.example.com', audience: api, permissions: [queries:read],
          claims: { sub: 'repo:acme/*:ref:refs/heads/main' } }
    keys:
      - { name: laptop, user: ada@example.com, networks: [10.0.0.0/8], limits: { requests: 5, per: 1m },
          sha256: d6ca0a5d362fdab49bbf5e6e0a6f03e8f281d6476eef09cf9c1989804e9aea03 }
";

#[test]
fn drift_is_shown_by_exit_status_3_until_the_file_is_applied() {
    let fixture = Fixture::start();
    let file = fixture.write("acme.yaml", FILE);
    let apply = |options: &str| format!("apply --file {} {options}", file.display());
    let [local, remote] = [fixture.local(&apply("--dry-run")), fixture.remote(&apply("--dry-run"))];
    assert_eq!(local.code, 3, "{local:?}");
    assert_eq!(remote, local);
    assert_eq!(fixture.same("org list --json"), "{\"items\":[]}\n", "nothing was changed");
    let applied = fixture.remote(&apply("--yes"));
    assert_eq!((applied.code, applied.out), (0, format!("{}applied 5 changes\n", local.out)), "{}", applied.err);
    assert_eq!(fixture.same(&apply("--dry-run")), "nothing to change\n");

    // A change by hand is drift.
    let key = fixture.json("key list --org acme")["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(fixture.local(&format!("key set {key} --clear networks")).code, 0);
    let drift = fixture.remote(&apply("--dry-run"));
    assert_eq!(drift.code, 3, "{drift:?}");
    assert_eq!(drift.out, "~ key acme/laptop: networks any -> 10.0.0.0/8\n");
    assert_eq!(fixture.remote(&apply("--yes")).code, 0);
    assert_eq!(fixture.remote(&apply("--dry-run --json")).code, 0);

    // A rule that differs is removed and created anew.
    fixture.write("acme.yaml", &FILE.replace("audience: api", "audience: other, audiences: [more, most], max: 30m"));
    let changed = fixture.remote(&apply("--yes"));
    let expected =
        "~ rule acme/deploy: audience api -> other; audiences none -> more most; max 1h -> 30m\napplied 1 change\n";
    assert_eq!((changed.code, &*changed.out), (0, expected), "{}", changed.err);
    assert_eq!(fixture.same(&apply("--dry-run")), "nothing to change\n");
    let (before, after) = FILE.split_once("{ name: deploy").unwrap();
    let (_, after) = after.split_once("} }").unwrap();
    fixture.write("acme.yaml", &format!("{before}{{ name: deploy, removed: true }}{after}"));
    assert_eq!(fixture.remote(&apply("--yes")).out, "- rule acme/deploy\napplied 1 change\n");
    assert_eq!(fixture.same("federation list --org acme --json"), "{\"items\":[]}\n");
}

#[test]
fn page_is_followed_by_a_pipeline() {
    let fixture = Fixture::start();
    fixture.write(
        "acme.yaml",
        "organizations: [{ name: acme, users: [{ email: ada@example.com, permissions: [queries:read] }] }]",
    );
    let config = fixture.gateway.dir.path().join("keygate.yaml");
    let shell = Shell::at(fixture.files.path()).set("KEYGATE_CONFIG", config.to_str().unwrap());
    let shell = shell.replace("127.0.0.1:9443", &fixture.api().to_string());
    let drift = block("$ keygate apply --file acme.yaml --dry-r");
    shell.follow(&format!("{}{drift}", block("$ (umask 077 && keygate token create pip")));
}

#[test]
fn more_calls_than_a_token_has_are_put_off() {
    let fixture = Fixture::limited("{ requests: 5, per: 5s }");
    let user = |number: usize| format!("      - {{ email: user-{number}@example.com, permissions: [queries:read] }}\n");
    let users: String = (0..640).map(user).collect();
    // Of users who are in other parts of the file than the keys.
    let key = |number: usize| {
        let user = format!("name: k, user: user-{number}@example.com, permissions: [queries:read]");
        format!("      - {{ sha256: '{:064x}', {user} }}\n", number + 1)
    };
    let keys: String = (0..20).map(|number| key(number * 32)).collect();
    let document = format!("organizations:\n  - name: acme\n    users:\n{users}    keys:\n{keys}");
    let file = fixture.write("many.yaml", &document);
    let applied = fixture.remote(&format!("apply --yes --file {}", file.display()));
    assert_eq!(applied.code, 0, "{}", applied.err);
    assert!(applied.out.ends_with("applied 661 changes\n"));
    assert_eq!(fixture.remote("user list --org acme").out.lines().count(), 641);
    assert_eq!(fixture.remote(&format!("apply --yes --file {}", file.display())).out, "nothing to change\n");
}
