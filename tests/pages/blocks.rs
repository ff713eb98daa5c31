//! Every fenced block of README.md and of the pages in `docs/` is run, loaded or compared by a test, or is one of a few
//! exceptions with a reason. A block is known by its language or its first line, so that it may move to another page.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::files::rust_files;
use crate::support::page::{Block, blocks};

/// Languages whose blocks are all checked by one test.
const LANGUAGES: [(&str, &str); 3] = [
    ("yaml", "configuration_examples_are_valid"),
    ("yml", "documented_settings_are_valid"),
    ("sql", "documented_queries_answer_their_questions"),
];

/// Beginnings of lines that are in no block of `text`: those are drawings and state machines, which nothing runs.
const COMMANDS: [&str; 7] = ["$ ", "keygate ", "curl ", "sudo ", "SELECT ", "CREATE ", "GRANT "];

/// The check of a block.
enum Check {
    /// By the test of this name, which reads the block from the page.
    By(&'static str),
    /// Not at all, for this reason.
    Not(&'static str),
}
use Check::{By, Not};

/// The other blocks, by the names that [`Block::name`] gives them.
const BLOCKS: &[(&str, Check)] = &[
    ("keygate token create scanner --org acme", By("commands_of_the_page_end_keys")),
    ("curl -sf -X POST https://gateway.example", By("commands_of_the_page_end_keys")),
    // Installation and first steps.
    ("cargo run -- demo", By("demo_output_can_be_pasted_and_works")),
    (
        "cargo run -- demo --upstream http://127.",
        By("demo_in_front_of_another_server_prints_a_key_and_a_command_that_works"),
    ),
    ("keygate demo --fleet", By("fleet_demo_numbers_agree_with_the_journals_that_it_leaves")),
    ("docker compose -f deploy/compose.yaml up", By("containers_get_an_organization_by_the_commands_of_the_page")),
    ("sha256sum --check --ignore-missing SHA25", By("package_is_set_up_by_the_commands_of_the_page")),
    ("kubectl create secret generic keygate-re", By("chart_takes_the_values_and_the_secret_of_the_page")),
    (
        "python3 -m http.server 8000 --bind 127.0",
        By("quick_start_of_the_readme_ends_with_a_request_through_the_gateway"),
    ),
    (
        "keygate init --upstream http://127.0.0.1",
        By("quick_start_of_the_readme_ends_with_a_request_through_the_gateway"),
    ),
    (
        "KEY=$(keygate key create --org main --us",
        By("quick_start_of_the_readme_ends_with_a_request_through_the_gateway"),
    ),
    ("$ keygate token create pipeline --allow", By("program_manages_an_organization_as_the_page_says")),
    ("$ api -X PATCH http://127.0.0.1:9443/v1/", By("program_manages_an_organization_as_the_page_says")),
    ("$ api -H 'Idempotency-Key: deploy-17' ht", By("program_manages_an_organization_as_the_page_says")),
    ("$ tag=$(api http://127.0.0.1:9443/v1/org", By("program_manages_an_organization_as_the_page_says")),
    ("$ users=http://127.0.0.1:9443/v1/orgs/ac", By("program_manages_an_organization_as_the_page_says")),
    ("keygate replay --config new.yaml --since", By("replay_tells_what_a_lower_limit_would_have_refused")),
    ("keygate org create acme", By("first_key_is_created_used_revoked_and_explained")),
    // Operation.
    ("// A WebSocket with a key.", By("page_opens_a_websocket_with_its_key_and_not_without")),
    ("keygate check", By("gateway_is_checked_started_and_watched")),
    ("keygate config status", By("configuration_status_is_shown")),
    ("install keygate-new /usr/local/bin/keyga", By("gateway_is_replaced_by_an_installed_program")),
    ("runuser -u keygate -- keygate doctor --c", By("doctor_is_called_in_three_ways")),
    ("keygate upstreams", By("endpoints_of_upstreams_are_shown")),
    ("curl -s http://127.0.0.1:9464/metrics |", By("metrics_are_looked_at")),
    ("mkdir -p config/tls", By("certificate_and_ticket_key_of_the_page_are_accepted")),
    ("keygate user create --org acme ada@examp", By("sign_in_links_and_sessions_are_managed")),
    ("keygate user create --org acme --service", By("services_are_created_and_reassigned_by_the_commands_of_the_page")),
    ("/var/lib/keygate/access.log {", By("access_log_is_rotated_by_the_command_of_the_page")),
    ("{\"@timestamp\":\"2026-11-22T17:04:05.12345", By("access_log_has_the_members_of_the_page")),
    ("RateLimit-Policy: \"key\";q=1000;w=3600, \"", By("responses_have_the_fields_of_the_page")),
    ("{\"type\":\"about:blank\",\"title\":\"Too Many", By("errors_page_has_the_statuses_and_codes_of_both_tables")),
    ("make fleet", Not("runs for minutes; the bench in test mode runs a small fleet")),
    // Clients that know only Basic.
    ("machine api.example.com login key passwo", By("clients_that_know_only_basic_are_served_where_it_is_on")),
    // Keys for CI.
    ("keygate federation create github --org a", By("workflows_of_the_page_get_a_key_and_use_it")),
    ("# .github/workflows/deploy.yml", By("workflows_of_the_page_get_a_key_and_use_it")),
    ("# .gitlab-ci.yml", By("workflows_of_the_page_get_a_key_and_use_it")),
    ("# job.yaml", By("workflows_of_the_page_get_a_key_and_use_it")),
    // State.
    ("keygate state export --out keygate.jsonl", By("state_is_exported_imported_and_verified")),
    ("{\"format\":\"keygate-state\",\"version\":4,\"t", By("export_has_the_lines_of_the_page")),
    ("organizations:", By("file_of_organizations_is_applied_with_the_plan_of_the_page")),
    ("keygate apply --file acme.yaml --dry-run", By("file_of_organizations_is_applied_with_the_plan_of_the_page")),
    ("+ organization acme", By("file_of_organizations_is_applied_with_the_plan_of_the_page")),
    ("printf %s \"$API_KEY\" | keygate key diges", By("file_of_organizations_is_applied_with_the_plan_of_the_page")),
    // Plans.
    ("keygate org set acme --plan pro", By("plans_of_the_page_are_given_and_shown")),
    ("keygate quota set --org acme --units 200", By("quotas_of_the_page_are_given_shown_and_recounted")),
    ("keygate quota show --org acme", By("quotas_of_the_page_are_given_shown_and_recounted")),
    // Policies of keys.
    ("$ keygate key create --org acme --user a", By("key_with_a_policy_is_made_and_changed_as_the_page_says")),
    ("$ keygate key set KEY_ID --concurrent 20", By("key_with_a_policy_is_made_and_changed_as_the_page_says")),
    ("$ keygate key disable --stdin < ci.key", By("key_with_a_policy_is_made_and_changed_as_the_page_says")),
    ("$ keygate key set KEY_ID --network 198.5", By("key_with_a_policy_is_made_and_changed_as_the_page_says")),
    ("$ keygate key list --org acme --expires-", By("key_with_a_policy_is_made_and_changed_as_the_page_says")),
    ("$ read -r id key sha256 < <(keygate key", By("key_made_offline_is_created_and_rotated_as_the_page_says")),
    ("keys:", By("key_of_the_page_is_applied_with_its_policy")),
    // Coming from elsewhere.
    ("keygate convert kong kong.yaml --org acm", By("keys_of_kong_are_moved")),
    ("_format_version: \"3.0\"", By("keys_of_kong_are_moved")),
    ("deck gateway dump --output-file kong.yam", By("keys_of_kong_are_moved")),
    ("consumers:", By("keys_of_apisix_are_moved")),
    ("keygate convert apisix apisix.yaml --org", By("keys_of_apisix_are_moved")),
    ("admin() { curl -sf -H \"X-API-KEY: $ADMIN", By("keys_of_apisix_are_moved")),
    ("{\"keys\": [", By("keys_of_unkey_are_moved")),
    ("keygate convert unkey unkey.json --org a", By("keys_of_unkey_are_moved")),
    ("kubectl get -A -o yaml secrets,kongconsu", By("keys_of_secrets_are_moved")),
    ("keygate convert agentgateway config.yaml", By("keys_of_agentgateway_are_moved")),
    ("keygate convert openapi openapi.yaml --p", By("operations_of_a_document_become_routes")),
    // A verification API.
    ("curl -si http://127.0.0.1:8090/v1/forwar", By("service_asks_whether_a_key_is_good_as_the_page_says")),
    ("import urllib.error, urllib.request", By("service_asks_whether_a_key_is_good_as_the_page_says")),
    ("// `request` is one of node:http.", By("service_asks_whether_a_key_is_good_as_the_page_says")),
    // From another machine.
    ("$ (umask 077 && keygate token create pip", By("page_is_followed_by_a_pipeline")),
    ("$ keygate apply --file acme.yaml --dry-r", By("page_is_followed_by_a_pipeline")),
    // Audit.
    ("keygate audit list --key KEY_ID --since", By("records_are_listed_explained_verified_and_proven")),
    ("keygate audit export --key mZvzkepCv | j", By("records_of_a_trace_are_found")),
    ("sudo keygate --config /etc/keygate/keyga", By("checkpoints_are_signed_and_their_copies_verified")),
    ("example.org/audit/gw-1", By("checkpoints_are_signed_and_their_copies_verified")),
    ("psql -At -c \"SELECT note FROM keygate.ch", By("checkpoints_are_signed_and_their_copies_verified")),
    ("keygate audit prove 019abd3c-5d52-7a1e-a", By("checkpoints_are_signed_and_their_copies_verified")),
    ("keygate audit check-proof proof --public", By("checkpoints_are_signed_and_their_copies_verified")),
    ("proven: the record is in the journal exa", By("checkpoints_are_signed_and_their_copies_verified")),
    ("# relay.py: needs `pip install standardw", By("relay_of_the_page_posts_a_line_for_each_event")),
    ("keygate usage --by org --per month", By("usage_is_added_up_in_four_ways")),
    ("{\"specversion\":\"1.0\",\"id\":\"day:2026-11-2", By("event_of_a_day_is_that_of_the_page")),
    ("$ curl -H \"Authorization: Bearer $KEY\" h", By("own_usage_is_fetched_and_has_the_members_of_the_page")),
];

/// Returns why a block is checked by nothing; none when it is, or is an exception.
fn flaw(block: &Block, sources: &[String]) -> Option<String> {
    let has = |test: &str, text: &str| {
        sources.iter().any(|source| source.contains(&format!("fn {test}()")) && source.contains(text))
    };
    if let Some((language, test)) = LANGUAGES.iter().find(|(language, _)| *language == block.language) {
        let reads = format!("block.language == \"{language}\"");
        return (!has(test, &reads)).then(|| format!("{test} is no test that reads all blocks of {language}"));
    }
    if block.language == "text" {
        let is_command = block.text.lines().any(|line| COMMANDS.iter().any(|command| line.starts_with(command)));
        return is_command.then(|| "it is no drawing".to_owned());
    }
    let name = block.name();
    if let Some((_, check)) = BLOCKS.iter().find(|(known, _)| *known == name) {
        let By(test) = check else { return None };
        let reads = format!("(\"{}\")", name.replace('"', "\\\""));
        return (!has(test, &reads)).then(|| format!("{test} is no test that reads it"));
    }
    // Commands of a procedure are followed in their order, by the heading.
    let reads = format!("procedure(\"{}\")", block.heading);
    let is_followed = block.text.starts_with("$ ") && sources.iter().any(|source| source.contains(&reads));
    (!is_followed).then(|| "it is in no table".to_owned())
}

#[test]
fn every_block_is_run_or_compared_by_a_test() {
    let sources: Vec<String> =
        rust_files(Path::new("tests")).iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let blocks = blocks();
    let flaws: Vec<String> = blocks
        .iter()
        .filter_map(|block| Some((block, flaw(block, &sources)?)))
        .map(|(block, flaw)| format!("{}: {:?}: {flaw}", block.page.display(), block.name()))
        .collect();
    assert!(flaws.is_empty(), "blocks without a check:\n{}", flaws.join("\n"));
    assert!(blocks.len() > 100, "only {} blocks were found", blocks.len());
}

/// The first page is short, with the table of a run, and has no block that nothing runs.
#[test]
fn readme_is_short_and_every_block_of_it_is_run() {
    let readme = fs::read_to_string("README.md").unwrap();
    assert!(readme.lines().count() <= 120, "{} lines", readme.lines().count());
    let blocks = blocks();
    let own: Vec<_> = blocks.iter().filter(|block| block.page == Path::new("README.md")).collect();
    assert!(own[0].text.starts_with("WHAT "), "it begins with the numbers of a run, and not {:?}", own[0].name());
    for block in own {
        let exception = BLOCKS.iter().find(|(name, check)| *name == block.name() && matches!(check, Not(_)));
        assert!(exception.is_none(), "{:?}", block.name());
    }
}

#[test]
fn table_of_blocks_names_blocks_that_exist_and_few_exceptions() {
    let names: BTreeSet<String> = blocks().iter().map(Block::name).collect();
    let mut seen = BTreeSet::new();
    for (name, check) in BLOCKS {
        assert!(names.contains(*name), "no page has a block that begins with {name:?}");
        assert!(seen.insert(name), "{name:?} is there twice");
        assert!(matches!(check, By(_)) || matches!(check, Not(reason) if !reason.is_empty()), "{name:?}");
    }
    let exceptions = BLOCKS.iter().filter(|(_, check)| matches!(check, Not(_))).count();
    assert!(exceptions <= 1, "{exceptions} blocks are not checked");
}
