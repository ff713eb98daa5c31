//! Plans on the pages: an administrator sees them, and has no form for them.

use control::management::{self, OrgUpdate};

use super::fixture::Setup;
use crate::support::Client;
use crate::support::gateway::OPERATOR;

#[test]
fn pages_show_the_plan_and_have_no_field_for_it() {
    let setup = Setup::with("{}", "plans: { pro: { requests: 50, per: 1h, concurrent: 2 } }\n");
    let admin = setup.admin();
    let user = setup.user("bob@example.com", &["queries:read"]);
    let org = setup.org.to_string();
    let plan = || Some(Some("pro".parse().unwrap()));
    setup.gateway.perform(async |to, now| {
        let update = management::UserUpdate { plan: plan(), ..management::UserUpdate::default() };
        management::update_user(to, OPERATOR, &org, "bob@example.com", update, now).await
    });
    let key = setup.gateway.create_key(setup.org, user.user, "laptop");
    let page = |path: &str| {
        let fields = [("Cookie", admin.cookie.as_str())];
        let response = Client::connect(setup.address()).request("GET", &format!("/settings{path}"), "", &fields, b"");
        String::from_utf8(response.body).unwrap()
    };
    let shown = page(&format!("/keys/{}", key.id));
    assert!(shown.contains("50 requests per hour") && shown.contains("2 with this key"), "{shown}");
    assert!(shown.contains(">pro</code> <span class=\"small\">Of its owner"), "{shown}");
    assert!(page("/users").contains("Plan <code class=\"tag mono\">pro</code>"));
    for path in [format!("/keys/{}/policy", key.id), "/keys/new".to_owned()] {
        assert!(!page(&path).contains("name=\"plan\""), "{path}");
    }
    setup.gateway.perform(async |to, now| {
        management::update_org(to, OPERATOR, &org, OrgUpdate { plan: plan(), ..OrgUpdate::default() }, now).await
    });
    let audit = page("/audit");
    assert!(audit.contains("Changed the plan of a user") || audit.contains("user.plan"), "{audit}");
}

#[test]
fn pages_of_the_key_and_the_organization_show_what_is_spent_of_the_budget() {
    let plan = "{ requests: 50, per: 1s, quota: { units: 1200, per: month, of: org } }";
    let setup = Setup::with("{}", &format!("plans: {{ free: {plan} }}\nlimits: {{ plan: free }}\n"));
    let (admin, member) = (setup.admin(), setup.member());
    let (secret, key) = member.key("report");
    assert_eq!(Client::connect(setup.address()).get("/x", &secret).status, 200);
    for page in [admin.page("/settings/keys"), member.page(&format!("/settings/keys/{key}"))] {
        for text in ["<strong>1</strong> of 1,200 units", "1,199 left", "free</code> of all others has this budget"] {
            assert!(page.contains(text), "{text}: {page}");
        }
    }
    assert!(!member.page("/settings/keys").contains(" of 1,200 units"), "the organization's is for its admins");
    let org = setup.org.to_string();
    let quota = Some(Some("5/day".parse().unwrap()));
    setup.gateway.perform(async |to, now| {
        management::update_org(to, OPERATOR, &org, OrgUpdate { quota, ..OrgUpdate::default() }, now).await
    });
    for page in [admin.page("/settings/keys"), member.page(&format!("/settings/keys/{key}"))] {
        assert!(page.contains(" of 5 units") && page.contains("the organization’s own"), "{page}");
    }
}
