//! Plans on the command line: given, shown with the level that has them, exported, and missed.

use serde_json::{Value, json};

use super::Installation;
use crate::support::page::block;

const PLANS: &str = "\
plans:
  free: { requests: 10, per: 1h }
  pro: { requests: 50, per: 1h, burst: 20, concurrent: 2 }
limits: { plan: free }
";

fn with_plans(installation: &Installation, plans: &str) {
    let text = std::fs::read_to_string(&installation.config).unwrap();
    let before = text.split("plans:").next().unwrap();
    std::fs::write(&installation.config, format!("{before}{plans}")).unwrap();
}

#[test]
fn plan_is_given_at_creation_and_changed_at_each_level() {
    let (installation, _, id) = Installation::with_key_id();
    with_plans(&installation, PLANS);
    let limit = |expected: &str| {
        for command in ["key show", "explain"] {
            let shown = installation.ok(&format!("{command} {id}")).out;
            assert!(shown.contains(expected), "{command}: {expected}\n{shown}");
        }
    };
    limit("10 per 1h, burst 10 (plan free of `limits.plan`)");
    let org = installation.json("org set acme --plan pro");
    assert_eq!(org["plan"], "pro");
    limit("50 per 1h, burst 20 (plan pro of its organization, 2 in flight)");
    installation.ok("user set --org acme ada@example.com --plan free");
    limit("10 per 1h, burst 10 (plan free of its user)");
    let key = installation.json(&format!("key set {id} --plan pro --tag team=billing"));
    assert_eq!((&key["plan"], &key["policy"]["tags"]["team"]), (&json!("pro"), &json!("billing")));
    let plan = json!({ "name": "pro", "of": "key", "concurrent": 2 });
    assert_eq!(key["limits"], json!({ "requests": 50, "per": "1h", "burst": 20, "own": false, "plan": plan }));
    limit("(plan pro of the key, 2 in flight)");
    installation.ok(&format!("key limits {id} --requests 5"));
    limit("5 per 1h, burst 5 (its own)");
    installation.ok(&format!("key limits {id} --default"));
    for (list, column) in [("key list --org acme", "pro"), ("user list --org acme", "free"), ("org list", "pro")] {
        let table = installation.ok(list).out;
        assert!(table.contains("PLAN") && table.contains(column), "{table}");
    }
    assert_eq!(installation.json(&format!("key set {id} --no-plan")).get("plan"), None);
    installation.ok("user set --org acme ada@example.com --no-plan");
    limit("(plan pro of its organization, 2 in flight)");
    assert_eq!(installation.json("org set acme --no-plan").get("plan"), None);

    installation.ok("org create globex --plan pro");
    installation.ok("user create --org globex bob@globex.example --plan free");
    let created = installation.json("key create --org globex --user bob@globex.example --plan pro k");
    assert_eq!(created["plan"], "pro");
    let sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let line = format!("key import --org globex --user bob@globex.example --plan free --sha256 {sha256} old");
    assert_eq!(installation.json(&line)["limits"]["plan"]["of"], "key");
    assert_eq!(installation.json("org show globex")["plan"], "pro");
}

#[test]
fn plans_of_the_page_are_given_and_shown() {
    let (installation, _, id) = Installation::with_key_id();
    with_plans(&installation, &block("plans:"));
    for line in block("keygate org set acme --plan pro").lines() {
        installation.ok(line.strip_prefix("keygate ").unwrap());
    }
    let page = std::fs::read_to_string("docs/plans.md").unwrap();
    let (_, shown) = page.split_once("which level has won: `").unwrap();
    let explained = installation.ok(&format!("explain {id}")).out;
    assert!(explained.contains(shown.split('`').next().unwrap()), "{explained}");
    // The levels of the table from the last one to the first: each wins over those before it.
    let commands = page.lines().rev().filter_map(|row| row.strip_prefix("| ")?.split_once("| `keygate "));
    let commands = commands.map(|(_, command)| command.split('`').next().unwrap().replace("KEY_ID", id.as_str()));
    let levels = ["plan pro of its organization", "plan pro of its user", "plan pro of the key", "(its own)"];
    let mut count = 0;
    for (command, level) in commands.zip(levels) {
        installation.ok(&command);
        let explained = installation.ok(&format!("explain {id}")).out;
        assert!(explained.contains(level), "{command}: {level}\n{explained}");
        count += 1;
    }
    assert_eq!(count, levels.len());
}

#[test]
fn quotas_of_the_page_are_given_shown_and_recounted() {
    let (installation, _, id) = Installation::with_key_id();
    let run = |line: &str| installation.ok(&line.strip_prefix("keygate ").unwrap().replace("KEY_ID", id.as_str())).out;
    let given: Vec<String> = block("keygate quota set --org acme --units 200").lines().map(run).collect();
    for (shown, quota) in given.iter().zip(["2000000 units a month", "50000 units a day", "1000 units a day"]) {
        assert!(shown.contains("quota") && shown.contains(quota), "{quota}: {shown}");
    }
    for line in block("keygate quota show --org acme").lines() {
        let shown = run(line);
        assert!(shown.contains("2000000 units a month for the organization"), "{line}: {shown}");
    }
}

#[test]
fn plan_that_the_file_lacks_is_not_given_and_found_where_it_was() {
    let (installation, _, id) = Installation::with_key_id();
    with_plans(&installation, PLANS);
    for line in ["org set acme --plan prow", "org create other --plan prow", &format!("key set {id} --plan prow")] {
        let refused = installation.run(line);
        assert!(refused.code != 0 && refused.err.contains("there is no plan `prow`"), "{line}: {refused:?}");
    }
    for line in ["org set acme", "user set --org acme ada@example.com", "key set"] {
        assert_eq!(installation.run(line).code, 2, "{line}");
    }
    installation.ok(&format!("key set {id} --plan pro"));
    installation.ok("user set --org acme ada@example.com --plan free");
    let checked = installation.ok("check --state").out;
    assert!(checked.contains("the file has all plans that records name"), "{checked}");

    with_plans(&installation, "plans: { free: { requests: 10, per: 1h } }\n");
    assert!(installation.run("check").code == 0, "the file by itself is right");
    let missing = installation.run("check --state");
    assert!(missing.code != 0, "{missing:?}");
    assert!(missing.err.contains(&format!("key {id} of acme has the plan pro, which `plans` does not")), "{missing:?}");
    assert!(!missing.err.contains("ada@example.com"), "{missing:?}");
    let shown = installation.ok(&format!("explain {id}")).out;
    assert!(shown.contains("1000 per 1h, burst 1000 (as configured: there is no plan pro, of the key)"), "{shown}");
    installation.ok(&format!("key revoke {id}"));
    installation.ok("check --state");
}

#[test]
fn budget_is_shown_and_a_burst_below_a_cost_is_found() {
    let (installation, _, id) = Installation::with_key_id();
    let sold = "plans: { sold: { requests: 50, per: 1h, quota: { units: 70, per: month, of: org } } }\n\
                limits: { plan: sold }\nroutes: [{ name: all, path: '/**', cost: 20 }]\n";
    with_plans(&installation, sold);
    let shown = installation.ok(&format!("explain {id}")).out;
    assert!(shown.contains("(plan sold of `limits.plan`)"), "{shown}");
    assert!(shown.contains("0 of 70 spent, until 20"), "{shown}");
    let explained = installation.json(&format!("explain {id}"));
    assert_eq!(
        (&explained["standing"]["quota"]["units"], &explained["standing"]["quota"]["used"]),
        (&json!(70), &json!(0))
    );
    installation.ok("check --state");
    installation.ok(&format!("key limits {id} --requests 19 --per 1m"));
    let small = installation.run("check --state");
    let expected = format!("key {id} of acme has a burst of its own of 19, below the cost of a route");
    assert!(small.code != 0 && small.err.contains(&expected), "{small:?}");
}

#[test]
fn file_gives_plans_and_takes_them_away() {
    let installation = Installation::new();
    with_plans(&installation, PLANS);
    let digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let file = |org: &str, user: &str, key: &str| {
        format!(
            "organizations:\n  - name: acme\n    plan: {org}\n    users: [{{ email: ada@example.com, plan: {user} }}]\n\
             \x20   keys: [{{ name: one, user: ada@example.com, sha256: {digest}, plan: {key} }}]\n"
        )
    };
    let applied = installation.apply(&file("free", "pro", "free"), "--yes");
    assert!(applied.code == 0 && applied.out.contains("+ organization acme: plan free"), "{applied:?}");
    assert_eq!(installation.apply(&file("free", "pro", "free"), "--dry-run").out, "nothing to change\n");
    let changed = installation.apply(&file("pro", "null", "null"), "--yes").out;
    for step in
        ["organization acme: plan free -> pro", "user acme/ada@example.com: plan pro -> none", "plan free -> none"]
    {
        assert!(changed.contains(step), "{step}: {changed}");
    }
    assert_eq!(installation.json("org show acme")["plan"], "pro");
    let unknown = installation.apply(&file("prow", "null", "null"), "--yes");
    assert!(
        unknown.code != 0 && (unknown.err.clone() + &unknown.out).contains("there is no plan `prow`"),
        "{unknown:?}"
    );
}

#[test]
fn export_and_import_keep_plans_and_differences_are_conflicts() {
    let (source, _, id) = Installation::with_key_id();
    let target = Installation::new();
    [&source, &target].into_iter().for_each(|installation| with_plans(installation, PLANS));
    source.ok("org set acme --plan pro");
    source.ok("user set --org acme ada@example.com --plan free");
    source.ok(&format!("key set {id} --plan pro"));
    let (first, second) = (source.file("state.jsonl"), source.file("again.jsonl"));
    source.ok(&format!("state export --out {first}"));
    target.ok(&format!("state import {first}"));
    let plans = |installation: &Installation| -> [Value; 3] {
        let user = installation.json("user list --org acme")["items"][0]["plan"].clone();
        [
            installation.json("org show acme")["plan"].clone(),
            user,
            installation.json(&format!("key show {id}"))["plan"].clone(),
        ]
    };
    assert_eq!(plans(&target), [json!("pro"), json!("free"), json!("pro")]);
    target.ok(&format!("state export --out {second}"));
    target.ok(&format!("state import {first}"));
    let same = target.ok(&format!("state verify {second} {first}"));
    assert!(!same.out.contains("differ"), "{same:?}");

    target.ok(&format!("key set {id} --no-plan"));
    target.ok("user set --org acme ada@example.com --plan pro");
    let conflict = target.run(&format!("state import {first}"));
    assert_eq!((conflict.code, conflict.out.matches("not the same: plan").count()), (4, 2), "{conflict:?}");
    assert_eq!(plans(&target), [json!("pro"), json!("pro"), Value::Null], "an import changes none");
}
