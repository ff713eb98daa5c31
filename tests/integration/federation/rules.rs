//! Rules, as the operator manages them.

use domain::page::PageQuery;

use super::{ORG, TARGET, World, issued, refusal};
use crate::support::gateway::OPERATOR;

#[test]
fn rules_are_created_listed_shown_and_removed() {
    let world = World::embedded();
    let gateway = &world.gateway;
    let rule = gateway.perform(async |to, now| to.show_federation_rule(OPERATOR, ORG, "deploy", now).await);
    assert_eq!((&*rule.target, rule.service.as_deref()), (TARGET, Some("ci")));
    let first = PageQuery::default();
    let listed = gateway.perform(async |to, now| to.list_federation_rules(OPERATOR, ORG, &first, now).await);
    assert_eq!(listed.items, [rule]);
    issued(&world.exchange(&world.token()));
    gateway.perform(async |to, now| to.remove_federation_rule(OPERATOR, ORG, "deploy", now).await);
    assert_eq!(refusal(&world.exchange(&world.token())).1, "invalid_target");
    let gone = gateway.refused(async |to, now| to.remove_federation_rule(OPERATOR, ORG, "deploy", now).await);
    assert_eq!(gone, "no_such_rule");
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
        let refused = world.gateway.refused(async |to, now| to.create_federation_rule(OPERATOR, ORG, rule, now).await);
        assert_eq!(refused, code, "{text}");
    }
}
