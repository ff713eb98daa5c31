//! Federation rules and management tokens of an export: they come back as they were, and a revocation is
//! taken over.

use std::time::Duration;

use domain::clock;
use domain::identity::OrgId;
use domain::management_token::ManagementToken;
use state::migration::file::{Flaw, Writer, parse_record, verify};
use state::migration::{Finding, MigrationError, Records, Report, compare, import};
use state::{Change, FederationRule, MAX_TOKENS, RuleChange, State, StateRecord, User};

use super::backup::{Directory, assert_round_trip, assert_same_file, content, export, import_file, on_both, on_redis};
use super::installation::{Installation, On, VERIFY, runtime};
use super::records::{RecordMaker, new_rule, new_token, new_user};
use super::records_of;
use crate::support::redis::{Cluster, Redis};

/// An export of the keygate before version 3, which left rules and tokens out.
const VERSION_2: &[u8] = include_bytes!("version-2.jsonl");

/// A state with an organization whose service has two rules, and three tokens.
async fn populated(state: &State) {
    let maker = RecordMaker::new(state);
    let org = maker.org("acme").await;
    let admin = maker.user(&org, "ada@example.com").await;
    maker.programs(&org, admin).await;
}

fn only<T>(records: Vec<StateRecord>, of: impl Fn(StateRecord) -> Option<T>) -> Vec<T> {
    records.into_iter().filter_map(of).collect()
}

async fn rules_of(state: &State) -> Vec<FederationRule> {
    only(records_of(state).await, |record| if let StateRecord::Rule(rule) = record { Some(*rule) } else { None })
}

async fn tokens_of(state: &State) -> Vec<ManagementToken> {
    only(records_of(state).await, |record| if let StateRecord::Token(token) = record { Some(*token) } else { None })
}

async fn import_token(state: &State, token: &ManagementToken) -> Report {
    import(&[StateRecord::Token(Box::new(token.clone()))], state).await.unwrap()
}

/// The records of a state, as they are compared.
async fn read(state: &State) -> Records {
    Records::read(&*export(state).await).unwrap()
}

fn texts(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

#[test]
fn rules_and_tokens_come_back_as_they_were_over_every_pair_of_states() {
    let (redis, other, cluster) = (Redis::start(), Redis::start(), Cluster::start(3, 0));
    let directories = [Directory::new(), Directory::new(), Directory::new()];
    runtime().block_on(async {
        let source = directories[0].open();
        populated(&source).await;
        let file = export(&source).await;
        let (_, summary) = verify(&*file).unwrap();
        assert_eq!((summary.counts.rules, summary.counts.tokens, summary.counts.records()), (2, 3, 8));
        let kinds: Vec<&str> = content(&file).lines().map(|line| line.split('"').nth(1).unwrap()).collect();
        assert_eq!(kinds, ["org", "user", "user", "rule", "rule", "token", "token", "token", "end"]);
        assert_round_trip(&file, &directories[1].open()).await;
        // Written to the file as well, not to memory alone.
        assert_same_file(&file, &export(&directories[1].open()).await);
        let on_one = on_redis(&[redis.url()]).await;
        assert_round_trip(&file, &on_one).await;
        let on_cluster = on_redis(&cluster.urls()).await;
        assert_round_trip(&export(&on_one).await, &on_cluster).await;
        assert_round_trip(&export(&on_cluster).await, &on_redis(&[other.url()]).await).await;
        assert_round_trip(&export(&on_cluster).await, &directories[2].open()).await;
        let comparison = compare(&read(&source).await, &read(&on_cluster).await, clock::now());
        assert_eq!((comparison.same, comparison.only_in_second, comparison.differences.len()), (8, 0, 0));
    });
}

#[test]
fn rules_and_tokens_move_by_the_commands_and_are_verified() {
    let redis = Redis::start();
    let installation = Installation::moving_to(&[redis.url()], "");
    runtime().block_on(populated(&State::Embedded(installation.source())));
    let report = installation.copy();
    assert_eq!((&report["rules"]["copied"], &report["tokens"]["copied"]), (&2.into(), &3.into()), "{report}");
    let again = installation.copy();
    assert_eq!((&again["rules"]["already_there"], &again["tokens"]["already_there"]), (&2.into(), &3.into()));
    let verified = installation.run(On::Redis, "state verify state.jsonl");
    assert_eq!((verified.code, verified.out.as_str()), (0, "the same: 8 records\n"), "{verified:?}");
    let (rule, token) = runtime().block_on(async {
        let target = installation.target().await;
        let rule = rules_of(&target).await.remove(0);
        let token = tokens_of(&target).await.remove(0);
        let remove = RuleChange::Remove { org: rule.org, name: rule.name.clone() };
        target.change(Change::FederationRule(remove)).await.unwrap();
        target.change(Change::RevokeToken { token: token.id, at: clock::now() }).await.unwrap();
        target.close().await;
        (rule, token)
    });
    let verified = installation.run(On::Redis, VERIFY);
    let comparison: serde_json::Value = serde_json::from_str(&verified.out).unwrap();
    let expected = serde_json::json!([
        { "record": "rule", "id": format!("{}/{}", rule.org, rule.name), "problem": "it is missing" },
        { "record": "token", "id": token.id.as_str(), "problem": "it is there, and is not the same: revoked" },
    ]);
    assert_eq!((verified.code, &comparison["differences"]), (1, &expected), "{verified:?}");
}

#[test]
fn token_that_is_revoked_on_one_side_is_revoked() {
    on_both(async |state| {
        let one = new_token("one");
        let other = new_token("other");
        for token in [&one, &other] {
            state.change(Change::CreateToken(Box::new(token.clone()))).await.unwrap();
        }
        let old = export(&state).await;
        let revoked = ManagementToken { revoked: Some(one.created.after(Duration::from_secs(1))), ..one.clone() };
        let report = import_token(&state, &revoked).await;
        assert_eq!((report.withdrawn, report.tokens.already_there, report.is_complete()), (1, 1, true), "{report:?}");
        assert_eq!(state.management_token(one.id).await.unwrap(), Some(revoked.clone()));
        // A token that the target has revoked stays revoked, and since its own time.
        let at = clock::now();
        state.change(Change::RevokeToken { token: other.id, at }).await.unwrap();
        let report = import_file(&old, &state).await;
        assert_eq!((report.withdrawn, report.tokens.copied, report.is_complete()), (0, 0, true), "{report:?}");
        let earlier = ManagementToken { revoked: Some(other.created), ..other.clone() };
        assert!(import_token(&state, &earlier).await.is_complete());
        assert_eq!(tokens_of(&state).await, [revoked, ManagementToken { revoked: Some(at), ..other }]);
    });
}

#[test]
fn rules_and_tokens_without_their_owners_are_left_out() {
    on_both(async |state| {
        let maker = RecordMaker::new(&state);
        let org = maker.org("acme").await;
        let person = maker.user(&org, "ada@example.com").await;
        let before = export(&state).await;
        let rule = |user: User| StateRecord::Rule(Box::new(new_rule(&user, "deploy")));
        let token = |org, admin| StateRecord::Token(Box::new(ManagementToken { org, admin, ..new_token("t") }));
        let elsewhere = OrgId::generate();
        let records = [
            rule(User { id: person, ..new_user(org.id, "no service") }),
            rule(new_user(org.id, "missing")),
            rule(new_user(elsewhere, "missing")),
            token(Some(elsewhere), None),
            token(Some(org.id), Some(new_user(org.id, "missing").id)),
        ];
        let report = import(&records, &state).await.unwrap();
        assert_eq!((report.left_out.rules, report.left_out.tokens), (3, 2), "{report:?}");
        assert!(!report.is_complete());
        assert_same_file(&before, &export(&state).await);
    });
}

/// A removed service keeps its rules, by which nothing is exchanged.
#[test]
fn rule_of_a_removed_service_comes_back() {
    let (directory, other, redis) = (Directory::new(), Directory::new(), Redis::start());
    runtime().block_on(async {
        let source = directory.open();
        populated(&source).await;
        let FederationRule { org, user, .. } = rules_of(&source).await.remove(0);
        source.change(Change::RemoveUser { org, user, at: clock::now() }).await.unwrap();
        let file = export(&source).await;
        for state in [other.open(), on_redis(&[redis.url()]).await] {
            assert_round_trip(&file, &state).await;
        }
    });
}

#[test]
fn expired_token_is_not_imported_and_not_missed() {
    let (directory, other, redis) = (Directory::new(), Directory::new(), Redis::start());
    runtime().block_on(async {
        let source = directory.open();
        let (live, mut expired) = (new_token("live"), new_token("expired"));
        expired.created = clock::now().before(Duration::from_secs(60));
        expired.expires = clock::now();
        for token in [&expired, &live] {
            source.change(Change::CreateToken(Box::new(token.clone()))).await.unwrap();
        }
        let (_, mut file) = Writer::begin(clock::now(), "test");
        let mut writer = Writer::default();
        file.extend(writer.lines(&[&expired, &live].map(|token| StateRecord::Token(Box::new(token.clone())))));
        file.extend(writer.end());
        for state in [other.open(), on_redis(&[redis.url()]).await] {
            let report = import_file(&file, &state).await;
            assert_eq!((report.expired, report.tokens.copied, report.is_complete()), (1, 1, true), "{report:?}");
            assert_eq!(tokens_of(&state).await, std::slice::from_ref(&live));
            let comparison = compare(&Records::read(&*file).unwrap(), &read(&state).await, clock::now());
            assert_eq!((comparison.same, comparison.only_in_second, comparison.differences.len()), (1, 0, 0));
        }
    });
}

#[test]
fn no_more_tokens_are_imported_than_there_may_be() {
    let directory = Directory::new();
    let redis = Redis::start();
    runtime().block_on(async {
        let tokens: Vec<StateRecord> = (0..MAX_TOKENS + 2)
            .map(|number| StateRecord::Token(Box::new(new_token(&format!("token {number}")))))
            .collect();
        for state in [directory.open(), on_redis(&[redis.url()]).await] {
            for again in [false, true] {
                let report = import(&tokens, &state).await.unwrap();
                let count = if again { report.tokens.already_there } else { report.tokens.copied };
                assert_eq!((count, report.conflicts.len()), (u64::from(MAX_TOKENS), 2));
                assert!(texts(&report.conflicts)[1].contains("there are 2000 tokens already"), "{report:?}");
            }
            assert_eq!(tokens_of(&state).await.len(), MAX_TOKENS as usize);
        }
    });
}

#[test]
fn import_of_a_token_alone_waits_for_the_replicas_that_are_configured() {
    let redis = Redis::start();
    runtime().block_on(async {
        let url = format!("\"{}\"", redis.url());
        let target = Installation::moving_to(&[url], ", durability: { replicas: 1, timeout: 500ms }").target().await;
        let records = [StateRecord::Token(Box::new(new_token("pipeline")))];
        // Once as it is written, and once as it is there.
        for _ in 0..2 {
            let imported = import(&records, &target).await;
            assert!(matches!(imported, Err(MigrationError::NotReplicated(_))), "{imported:?}");
        }
    });
}

#[test]
fn file_of_version_2_is_read_and_differs_in_its_first_line_only() {
    assert!(VERSION_2.starts_with(b"{\"format\":\"keygate-state\",\"version\":2,"));
    on_both(async |state| {
        let report = import_file(VERSION_2, &state).await;
        assert!(report.is_complete(), "{report:?}");
        assert_same_file(VERSION_2, &export(&state).await);
    });
}

#[test]
fn rules_and_tokens_that_could_not_be_created_are_refused_with_their_lines() {
    let directory = Directory::new();
    let file = runtime().block_on(async {
        let state = directory.open();
        populated(&state).await;
        String::from_utf8(export(&state).await).unwrap()
    });
    assert!(verify(file.as_bytes()).is_ok());
    for (line, from, to, what) in [
        (5, "\"name\":\"deploy\"", "\"name\":\"De ploy\"", "the rule is not valid: the name of a rule"),
        (5, "repo:acme/*:", "repo:*:", "the rule is not valid: the pattern of `sub`"),
        (5, "\"permissions\":[\"a\"]", "\"permissions\":[]", "at least one permission"),
        (5, "\"max\":\"1h\"", "\"max\":\"1d\"", "the lifetime of a rule's keys"),
        (5, "\"issuer\":", "\"hours\":\"9-17\",\"issuer\":", "unknown field"),
        (7, "[\"keys:read\",\"keys:create\"]", "[]", "a token needs one scope"),
        (7, "\"keys:read\",", "\"keys:all\",", "a scope is one of"),
        (7, "[\"10.0.0.0/8\",\"2001:db8::/32\"]", "[\"2001:db8::/32\",\"10.0.0.0/8\"]", "sorted, each once"),
        (7, "\"digest\":\"", "\"digest\":\"x", "it is not a record"),
        (7, "\"name\":\"of the operator\"", "\"name\":\"a\\nb\"", "is not valid"),
        (7, "\"client_san\":\"ci.example.com\"", "\"client_san\":\"\"", "the name of a certificate"),
        (7, "\"created_by\":\"unix", "\"created_by\":\"\\u001bunix", "none who could create a token"),
        (8, "\"scopes\":[", "\"scopes\":[\"state:export\",", "tokens of all organizations only"),
        (8, "\"org\":\"org_", "\"unknown\":\"org_", "unknown field"),
    ] {
        let lines: Vec<&str> = file.lines().collect();
        let changed = lines[line - 1].replace(from, to);
        assert_ne!(changed, lines[line - 1], "{from}");
        let error = parse_record(changed.as_bytes()).map(drop).unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
        let flaws = verify(file.replace(lines[line - 1], &changed).as_bytes()).unwrap_err();
        assert!(flaws.len() == 1 && flaws[0].line == line as u64, "{flaws:?}");
        assert!(matches!(flaws[0].flaw, Flaw::Record(_)));
    }
}
