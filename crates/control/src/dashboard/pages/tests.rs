//! Rules that every page keeps, checked on the pages of the gallery.
//!
//! `KEYGATE_PAGES=DIR cargo test --lib dashboard::pages` writes them to a directory, to be looked at.

mod gallery;

use std::{env, fs};

use askama::Template as _;

use self::gallery::{
    NEW_KEY, NEW_TOKEN, filtered_key, key, key_with_unsearched_records, keys, new_key, new_token, restricted_key,
    revoked_key, rows, unused_key,
};
use super::{Issuance, KeyFilter, KeyOrder, KeysPage, SortColumns};
use crate::management::{GoodPractice, KeyCount, KeyStatus};

#[test]
fn pages_are_written_to_a_directory_on_request() {
    let Some(directory) = env::var_os("KEYGATE_PAGES") else { return };
    for (name, html) in gallery::all() {
        let mut file = std::path::PathBuf::from(&directory);
        file.push(format!("{name}.html"));
        fs::write(file, html).unwrap();
    }
}

#[test]
fn hostile_values_are_escaped() {
    let pages = gallery::all();
    let escaped = pages.iter().any(|(_, html)| html.contains("&#60;script&#62;alert(1)"));
    assert!(escaped, "the gallery has no hostile value to escape");
    for (name, html) in pages {
        assert_eq!(html.matches("<script").count(), 1, "{name}: a script besides the dashboard's");
        assert!(!html.contains("<img src=x"), "{name}: an element from a value");
        assert!(!html.contains("\"'>"), "{name}: a value that ends its attribute");
    }
}

#[test]
fn pages_comply_with_a_strict_content_security_policy() {
    for (name, html) in gallery::all() {
        let lower = html.to_lowercase();
        for forbidden in ["<style", " style=", "javascript:", "<iframe", "<object", "<base", "action=\"http"] {
            assert!(!lower.contains(forbidden), "{name} has {forbidden}");
        }
        let tags = lower.split('<').filter_map(|rest| rest.split_once('>')).map(|(tag, _)| tag);
        for tag in tags {
            let has_handler = tag.split_whitespace().any(|word| word.starts_with("on") && word.contains("=\""));
            assert!(!has_handler, "{name}: an inline handler in <{tag}>");
        }
    }
}

#[test]
fn pages_have_one_heading_one_main_part_a_skip_link_a_title_and_unique_ids() {
    for (name, html) in gallery::all() {
        assert_eq!(html.matches("<h1").count(), 1, "{name}: one main heading");
        assert_eq!(html.matches("<main").count(), 1, "{name}: one main part");
        assert!(html.contains("href=\"#main\""), "{name}: a link that skips the navigation");
        assert!(!html.contains("<title> "), "{name}: a title");
        let mut ids: Vec<&str> = html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count, "{name}: an id twice");
    }
}

#[test]
fn records_are_shown_with_the_gateway_that_recorded_them() {
    let pages = [keys(rows()).render(), key().render()].map(Result::unwrap);
    for page in pages {
        assert!(page.contains("recorded by the gateway <span class=\"mono\">gateway-1</span>"), "{page}");
    }
    assert!(!revoked_key().render().unwrap().contains("by the gateway <span"), "without records, no gateway is named");
}

#[test]
fn budget_is_shown_with_what_is_left_its_end_and_the_level_that_gives_it() {
    let plan = "The plan <code class=\"tag mono\">pro</code> of the organization has this budget.";
    for page in [keys(rows()).render(), key().render()].map(Result::unwrap) {
        for text in ["<strong>1,734,001</strong> of 2,000,000 units", "265,999 left. The period ends", plan] {
            assert!(page.contains(text), "{text}: {page}");
        }
    }
    let page = unused_key().render().unwrap();
    assert!(page.contains(" units spent by all requests of the owner<") && page.contains("the owner’s own."), "{page}");
}

#[test]
fn search_that_is_not_finished_offers_older_records() {
    let page = key_with_unsearched_records().render().unwrap();
    assert_eq!(page.matches("Nothing found so far").count(), 1);
    assert!(!page.contains("No request matches"));
    let href = "/settings/keys/aC3007919?show=refused&#38;cursor=AaBb";
    assert_eq!(page.matches(href).count(), 2, "from the text, and from the paging below the table");
    assert!(filtered_key().render().unwrap().contains("No request matches"));
}

#[test]
fn new_key_is_on_its_page_and_hidden_by_debug() {
    let page = new_key(Issuance::Created);
    assert!(page.render().unwrap().contains(NEW_KEY));
    assert!(!format!("{page:?}").contains(NEW_KEY));
}

#[test]
fn new_token_is_on_its_page_and_hidden_by_debug() {
    let page = new_token();
    assert!(page.render().unwrap().contains(NEW_TOKEN));
    assert!(!format!("{page:?}").contains(NEW_TOKEN));
}

#[test]
fn token_is_revoked_from_its_row_while_there_is_something_to_revoke() {
    let pages = gallery::all();
    let page = &pages.iter().find(|(found, _)| *found == "tokens").unwrap().1;
    let row = |name: &str| page.split("<tr role=\"row\"").find(|row| row.contains(name)).unwrap();
    for (name, status, is_revocable) in [
        ("Terraform", "Revoked", false),
        ("Pipeline", "Expired", false),
        ("Nightly", "Refused", true),
        ("Ingest of the", "Active", true),
    ] {
        let row = row(name);
        assert!(row.contains(&format!("\">{status}</span>")), "{name}: {row}");
        assert_eq!(row.contains("/revoke\""), is_revocable, "{name}: {row}");
        assert_eq!(row.contains("Its creator is no longer an admin."), status == "Refused", "{name}: {row}");
    }
}

#[test]
fn form_of_a_token_has_each_scope_of_administrators_with_a_sentence() {
    let pages = gallery::all();
    let page = |name: &str| &pages.iter().find(|(found, _)| *found == name).unwrap().1;
    let form = page("create-token");
    assert_eq!(form.matches("name=\"scope\"").count(), 12);
    for refused in ["orgs:write", "state:export"] {
        assert!(!form.contains(refused), "{refused}");
    }
    let wrong = page("create-token-wrong");
    for error in ["name", "scopes", "expiry", "networks"] {
        assert!(wrong.contains(&format!("<a href=\"#{error}\">")), "{error}: a link from the summary of errors");
        assert!(wrong.contains(&format!("id=\"{error}-error\"")), "{error}: the error is beside its field");
    }
}

#[test]
fn page_of_a_new_key_has_good_practice_and_lines_for_a_shell() {
    let page = new_key(Issuance::Created).render().unwrap();
    for line in GoodPractice::LINES {
        assert!(page.contains(&format!("<li>{line}</li>")), "{line}");
    }
    assert!(page.contains(&format!("export KEYGATE_API_KEY=&#39;{NEW_KEY}&#39;\nexport KEYGATE_API_URL=")), "{page}");
}

#[test]
fn key_is_revoked_from_its_row_and_its_name_is_asked_for_only_in_use() {
    let rows = rows();
    let page = keys(rows.clone()).render().unwrap();
    for row in rows {
        let offered = page.contains(&format!("href=\"/settings/keys/{}/revoke\"", row.id));
        assert_eq!(offered, row.state != KeyStatus::Revoked, "{}", row.name);
    }
    let pages = gallery::all();
    let page = |name: &str| &pages.iter().find(|(found, _)| *found == name).unwrap().1;
    assert!(page("revoke").contains("name=\"name\"") && !page("revoke-unused").contains("name=\"name\""));
}

#[test]
fn list_says_how_many_keys_match_and_offers_only_orders_of_all_of_them() {
    let order = |text: &str| KeyOrder::from_parameter(text);
    let page = |counted, is_complete, is_sortable, sort: &str, filter: KeyFilter| {
        let count = KeyCount { counted, is_complete, is_sortable };
        let columns = SortColumns::new(order(sort), is_sortable, |order| format!("?sort={}", order.parameter()));
        KeysPage { count, columns, order: order(sort), filter, ..keys(rows()) }
    };
    let text = || KeyFilter { text: "a".into(), state: None };
    for (page, summary) in [
        (page(1, true, true, "", KeyFilter::default()), "1 key, newest first"),
        (page(2_000, true, true, "-name", text()), "2,000 keys found, by name, from Z to A"),
        (page(312, false, true, "-last_used", text()), "More than 312 keys found, last used first"),
        (page(0, false, true, "expires", text()), "Not all keys counted, expiring soonest first"),
    ] {
        assert_eq!(page.summary(), summary);
        assert_eq!(page.render().unwrap().matches("class=\"sort\"").count(), 4, "{summary}");
    }
    let long = page(100_000, true, false, "created", KeyFilter::default());
    assert!(long.summary().starts_with("100,000 keys, oldest first. A list of more than 10,000 keys"));
    let html = long.render().unwrap();
    assert_eq!(html.matches("class=\"sort\"").count(), 1, "{html}");
    assert!(html.contains("aria-sort=\"ascending\"") && html.contains("href=\"?sort=\""), "{html}");
}

#[test]
fn service_shows_that_its_responsible_person_has_left() {
    let pages = gallery::all();
    let page = &pages.iter().find(|(found, _)| *found == "users").unwrap().1;
    let row = |name: &str| page.split("<tr role=\"row\">").find(|row| row.contains(name)).unwrap();
    assert!(!row("bob<wbr>").contains("Service"), "{page}");
    for (service, badges) in [("nightly report", 1), ("Ingest of the", 2), (">import<", 2)] {
        let row = row(service);
        assert!(row.contains("<span class=\"tag\">Service</span>") && row.contains("Responsible: "), "{row}");
        assert_eq!(row.matches("class=\"badge").count(), badges, "{row}");
    }
}

#[test]
fn rest_of_the_form_that_creates_a_key_is_folded_away_until_it_is_used() {
    let pages = gallery::all();
    let page = |name: &str| &pages.iter().find(|(found, _)| *found == name).unwrap().1;
    assert!(page("create").contains("<details class=\"more rest\">"));
    let restricted = page("create-restricted");
    assert!(restricted.contains("<details class=\"more rest\" open>"));
    for error in ["permissions", "expiry", "networks", "concurrent"] {
        assert!(restricted.contains(&format!("<a href=\"#{error}\">")), "{error}: a link from the summary of errors");
        assert!(restricted.contains(&format!("id=\"{error}-error\"")), "{error}: the error is beside its field");
    }
}

#[test]
fn number_of_selected_keys_is_asked_for_where_a_revocation_ends_requests() {
    let pages = gallery::all();
    let page = |name: &str| &pages.iter().find(|(found, _)| *found == name).unwrap().1;
    assert!(page("selected-in-use").contains("name=\"count\"") && !page("selected").contains("name=\"count\""));
    assert!(!page("selected-none").contains("<form method=\"post\" action=\"/settings/keys/selected\""));
}

#[test]
fn actions_that_are_not_possible_are_not_offered() {
    let revoked = revoked_key().render().unwrap();
    assert!(!revoked.contains("/rotate\"") && !revoked.contains("/revoke\""), "a revoked key cannot be changed");
    assert!(!revoked.contains("/disable\"") && !revoked.contains("/policy\""), "a revoked key cannot be changed");
    for can_enable in [true, false] {
        let page = restricted_key(can_enable).render().unwrap();
        assert!(!page.contains("/disable\""), "a disabled key is not disabled again");
        assert_eq!(page.contains("/enable\""), can_enable, "the operator alone enables what the operator disabled");
    }
    let page = gallery::sign_in(&["Acme SSO"]).render().unwrap();
    assert!(!page.contains("/sessions") && !page.contains("sign-out"), "without a session, there is no navigation");
}
