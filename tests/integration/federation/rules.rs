//! Rules, as the operator manages them.

use control::admin::{Operation, Reply};

use super::{ORG, TARGET, World, issued, refusal};

#[test]
fn rules_are_created_listed_shown_and_removed() {
    let world = World::embedded();
    let shown = world.perform(Operation::ShowRule { org: ORG.into(), rule: "deploy".into() });
    let Reply::FederationRule { rule } = shown else { panic!("not a rule") };
    assert_eq!((&*rule.target, rule.service.as_deref()), (TARGET, Some("ci")));
    let Reply::FederationRules(listed) = world.perform(Operation::list_rules(ORG.into())) else { panic!("not rules") };
    assert_eq!(listed.items, [*rule]);
    issued(&world.exchange(&world.token()));
    world.perform(Operation::RemoveRule { org: ORG.into(), rule: "deploy".into() });
    assert_eq!(refusal(&world.exchange(&world.token())).1, "invalid_target");
    let gone = Operation::RemoveRule { org: ORG.into(), rule: "deploy".into() };
    assert_eq!(world.gateway.refused(gone), "no_such_rule");
    assert_eq!(world.keys().len(), 1, "its keys stay until they end");
}

#[test]
fn rule_that_is_too_wide_is_refused() {
    let world = World::embedded();
    let mut cases = Vec::new();
    for subject in ["*", "repo:*", "repo:*/app:ref:refs/heads/main", "system:serviceaccount:*"] {
        let mut rule = world.rule();
        rule.claims.insert("sub".into(), subject.parse().unwrap());
        cases.push((rule, "invalid_rule"));
    }
    let mut changed = |code: &'static str, change: &dyn Fn(&mut control::management::NewFederationRule)| {
        let mut rule = world.rule();
        rule.name = "other".into();
        change(&mut rule);
        cases.push((rule, code));
    };
    changed("invalid_rule", &|rule| rule.issuer = "http://ci.example.com".into());
    changed("invalid_rule", &|rule| rule.max = Some(std::time::Duration::from_secs(13 * 3600)));
    changed("invalid_rule", &|rule| rule.permissions.clear());
    changed("invalid_policy", &|rule| rule.permissions.push("org:admin".parse().unwrap()));
    changed("not_a_service", &|rule| rule.user = "ada@example.com".into());
    changed("no_such_user", &|rule| rule.user = "nobody".into());
    changed("taken", &|rule| rule.name = "deploy".into());
    for (rule, code) in cases {
        let text = format!("{rule:?}");
        assert_eq!(
            world.gateway.refused(Operation::CreateRule { org: ORG.into(), rule: Box::new(rule) }),
            code,
            "{text}"
        );
    }
}
