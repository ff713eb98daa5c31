//! Every command of `docs/key-policies.md`, against a gateway with query-store behind it.

use std::fs;

use crate::procedures::Office;
use crate::support::Shell;
use crate::support::page::block;

/// A shell in which the network of the page is that of this machine.
fn shell(office: &Office) -> Shell {
    Shell::of(&office.setup).replace("192.0.2.0/24", "127.0.0.0/8")
}

#[test]
fn key_with_a_policy_is_made_and_changed_as_the_page_says() {
    let office = Office::embedded();
    office.setup.ok(&["org", "create", "acme"]);
    office.setup.ok(&["user", "create", "--org", "acme", "ada@example.com", "--permission", "queries:read"]);
    let gateway = office.setup.start();
    shell(&office).follow(&block("$ keygate key create --org acme --user a"));
    let key = fs::read_to_string(office.setup.path().join("ci.key")).unwrap();
    assert_eq!(office.status(key.trim()), 200);
    let shell = shell(&office).replace("KEY_ID", &key[8..17]);
    shell.follow(&block("$ keygate key set KEY_ID --concurrent 20"));
    shell.follow(&block("$ keygate key disable --stdin < ci.key"));
    shell.follow(&block("$ keygate key set KEY_ID --network 198.5"));
    assert_eq!(office.status(key.trim()), 401);
    shell.follow(&block("$ keygate key list --org acme --expires-"));
    gateway.stop();
}

/// The secrets are in none of the files of the installation, the log of the gateway among them.
#[test]
fn key_made_offline_is_created_and_rotated_as_the_page_says() {
    let office = Office::embedded();
    office.setup.ok(&["org", "create", "acme"]);
    office.setup.ok(&["user", "create", "--org", "acme", "ada@example.com", "--permission", "queries:read"]);
    let org: serde_json::Value = serde_json::from_str(&office.setup.ok(&["org", "show", "acme", "--json"])).unwrap();
    let gateway = office.setup.start_logged();
    let shell = shell(&office).replace("TAG", org["tag"].as_str().unwrap());
    let commands = block("$ read -r id key sha256 < <(keygate key");
    shell.follow(&format!("{}\n$ echo \"$key $next\" > secrets\n", commands.trim_end()));
    gateway.stop();
    let file = office.setup.path().join("secrets");
    let secrets = fs::read_to_string(&file).unwrap();
    fs::remove_file(file).unwrap();
    let grep = |text: &str| {
        let grep = std::process::Command::new("grep").args(["-rqaF", text]).arg(office.setup.path()).status().unwrap();
        grep.success()
    };
    let [old, new] = secrets.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{secrets}") };
    assert!(grep(&old[8..17]), "the id is public");
    assert!(!fs::read(office.setup.path().join("log")).unwrap().is_empty());
    assert!(!grep(&old[18..40]) && !grep(&new[18..40]));
}

#[test]
fn key_of_the_page_is_applied_with_its_policy() {
    let office = Office::embedded();
    let keys: String = block("keys:").lines().map(|line| format!("    {line}\n")).collect();
    let users = "    users: [{ email: ada@example.com, permissions: [queries:read, queries:write] }]\n";
    let file = format!("organizations:\n  - name: acme\n{users}{keys}").replace(&"0".repeat(64), &"1".repeat(64));
    fs::write(office.setup.path().join("acme.yaml"), file).unwrap();
    let shell = Shell::of(&office.setup);
    let plan = shell.run("keygate apply --file acme.yaml --yes");
    assert!(plan.contains("permissions queries:read; expires 2100-01-31T00:00:00Z; networks 192.0.2.0/24"), "{plan}");
    assert!(plan.contains("concurrent 20; tags team=billing\n"), "{plan}");
    assert!(shell.run("keygate apply --file acme.yaml --yes").contains("nothing to change"));
    assert!(shell.run("keygate key list").contains("active"));
}
