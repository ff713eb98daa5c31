//! Leaked keys and management tokens: the reports of GitHub, and keys that revoke themselves.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use control::management::{self, KeyStatus, TokenStatus};
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};

use crate::revoked_exchanges::upstream::Endless;
use crate::revoked_exchanges::{End, end_of, open_tunnel};
use crate::support::gateway::{Key, OPERATOR};
use crate::support::page::block;
use crate::support::random::Random;
use crate::support::redis::Redis;
use crate::support::{Client, Gateway, KEYGATE, Response, Upstream, mistyped};
use domain::key::policy::DisabledBy;
use domain::key::{KeyDigest, KeyId, OrgTag, PlainKey};
use domain::management_token::PlainToken;

const PATH: &str = "/v1/leaks";
const SELF: &str = "/v1/self-revoke";
const TYPE: &str = "keygate_api_key";
const PLACE: &str = "https://github.com/acme/app/blob/0123abc/ci.yaml";
/// Bounds that no test meets by chance.
const MANY: &str = "limits: { sign_ins: { requests: 1000000, per: 1h, burst: 1000000 } }\n";

/// GitHub, with its keys.
pub(crate) struct GitHub {
    server: Upstream,
    keys: Arc<Mutex<Vec<(String, KeyPair)>>>,
}

impl GitHub {
    pub(crate) fn start() -> Self {
        let keys = Arc::new(Mutex::new(vec![("first".to_owned(), new_pair())]));
        let served = Arc::clone(&keys);
        let server = Upstream::answering(move |_, stream| {
            let keys = served.lock().unwrap();
            let shown = |(id, pair): &(String, KeyPair)| json!({ "key_identifier": id, "key": pair.public_key_pem() });
            let body = json!({ "public_keys": keys.iter().map(shown).collect::<Vec<_>>() }).to_string();
            let status = if keys.is_empty() { "500 Internal Server Error" } else { "200 OK" };
            let response = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            std::io::Write::write_all(stream, response.as_bytes()).ok();
        });
        Self { server, keys }
    }

    /// The block of a gateway that accepts its reports.
    pub(crate) fn block(&self, action: &str) -> String {
        format!("leaks: {{ path: {PATH}, github: '{}', action: {action} }}\n", self.keys_address())
    }

    /// The address of its keys.
    pub(crate) fn keys_address(&self) -> String {
        format!("http://{}/keys", self.server.address)
    }

    /// Answers with errors from now on.
    pub(crate) fn lose_keys(&self) {
        self.keys.lock().unwrap().clear();
    }

    /// The fields of a report that is signed with its last key.
    fn sign(&self, body: &[u8]) -> [(String, String); 2] {
        let keys = self.keys.lock().unwrap();
        let (id, pair) = keys.last().unwrap();
        let signature = STANDARD.encode(pair.sign(body).unwrap());
        [("Github-Public-Key-Identifier".into(), id.clone()), ("Github-Public-Key-Signature".into(), signature)]
    }

    /// Sends a signed report.
    fn report(&self, gateway: &Gateway, findings: &Value) -> Response {
        let body = findings.to_string();
        send(gateway, &self.sign(body.as_bytes()), body.as_bytes())
    }
}

fn new_pair() -> KeyPair {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap()
}

fn send(gateway: &Gateway, fields: &[(String, String)], body: &[u8]) -> Response {
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
    Client::connect(gateway.address).request("POST", PATH, "", &fields, body)
}

fn finding(token: &str, url: &str) -> Value {
    json!({ "token": token, "type": TYPE, "url": url, "source": "commit" })
}

fn feedback(token: &str, label: &str) -> Value {
    json!({ "token_hash": KeyDigest::of(token.as_bytes()).to_hex(), "token_type": TYPE, "label": label })
}

fn shown(gateway: &Gateway, key: &Key) -> management::Key {
    gateway.perform(async |to, now| management::show_key(to, OPERATOR, key.id, now).await)
}

fn enable(gateway: &Gateway, key: &Key) {
    gateway.perform(async |to, now| management::enable_key(to, OPERATOR, key.id, now).await);
}

fn status(gateway: &Gateway, key: &Key) -> u16 {
    Client::connect(gateway.address).get("/x", &key.text).status
}

/// A key that no state has.
fn unknown() -> String {
    let key = PlainKey::generate(KeyId::generate(OrgTag::generate().unwrap()).unwrap()).unwrap();
    key.expose().expose().to_owned()
}

fn with(blocks: &str) -> (Upstream, Gateway, Key) {
    Gateway::with_key(&format!("\n{MANY}{blocks}"))
}

#[test]
fn reported_key_is_dead_on_three_gateways_and_its_streams_are_cut() {
    let (redis, upstream, github) = (Redis::start(), Endless::start(), GitHub::start());
    let gateways = [(); 3].map(|()| {
        let routes = crate::revoked_exchanges::ROUTES;
        let state = format!("\nstate: {{ redis: {{ url: '{}', deadline: 2s }} }}\n{routes}", redis.url());
        Gateway::with(&[upstream.address], &format!("{state}{}", github.block("disable")))
    });
    let (key, other) = (gateways[0].key(), gateways[0].key());
    let tunnels = gateways.each_ref().map(|gateway| open_tunnel(gateway, &key.text));
    let findings = json!([
        finding("ghp_not_ours", PLACE),
        finding(&key.text, &format!("{PLACE}?{}", key.text)),
        finding(&unknown(), PLACE),
        finding(&mistyped(&key.text), PLACE),
    ]);
    let answered = github.report(&gateways[1], &findings);
    assert_eq!(answered.status, 200, "{answered:?}");
    let unknown = findings[2]["token"].as_str().unwrap();
    assert_eq!(answered.json(), json!([feedback(&key.text, "true_positive"), feedback(unknown, "false_positive")]));
    for gateway in &gateways {
        let refused = Client::connect(gateway.address).get("/x", &key.text);
        assert_eq!((refused.status, refused.code()), (401, "invalid_token".into()));
        open_tunnel(gateway, &other.text);
    }
    assert_eq!(tunnels.map(end_of), [End::Reset; 3]);
    let policy = shown(&gateways[0], &key).policy;
    assert_eq!(policy.disabled.unwrap().by, DisabledBy::Leak);
    let [record] = &gateways[1].changes("key.disable")[..] else { panic!("one record") };
    let hidden = format!("key.disable/leak/commit/{PLACE}?sk_live_{}_%E2%80%A6", key.id);
    assert_eq!((record.path.as_str(), record.actor.as_deref()), (hidden.as_str(), Some("gateway")));
    assert_eq!((record.key_id, record.ip.map(|ip| ip.is_loopback())), (Some(key.id), Some(true)));
}

#[test]
fn report_that_github_has_not_signed_looks_up_nothing() {
    let (redis, upstream, github) = (Redis::start(), Upstream::start(), GitHub::start());
    let state = format!("state: {{ redis: {{ url: '{}', deadline: 2s }} }}\n", redis.url());
    let gateway = Gateway::with(&[upstream.address], &format!("\n{MANY}{state}{}", github.block("revoke")));
    let key = gateway.key();
    let token = gateway.token();
    let body = json!([finding(&key.text, PLACE), finding(token.secret.expose(), PLACE)]).to_string().into_bytes();
    let signed = github.sign(&body);
    let digest = format!("keygate:digest:{}", KeyDigest::of(key.text.as_bytes()).to_hex());
    let mut monitor = redis.monitor();
    let mut random = Random::new(53);
    let mut client = Client::connect(gateway.address);
    let other = new_pair();
    for round in 0..10_000 {
        let (mut body, mut fields) = (body.clone(), signed.clone());
        match round % 4 {
            0 => {
                let at = random.index(body.len());
                body[at] ^= 1 << random.index(7);
            }
            1 => body.truncate(random.index(body.len())),
            2 => {
                let mut signature = STANDARD.decode(&fields[1].1).unwrap();
                let at = random.index(signature.len());
                signature[at] ^= 1 << random.index(8);
                fields[1].1 = STANDARD.encode(signature);
            }
            _ => match random.index(4) {
                0 => fields[0].1 = "another".into(),
                1 => fields[0].1 = "First".into(),
                2 => fields[1].1 = STANDARD.encode(other.sign(&body).unwrap()),
                _ => fields[random.index(2)].0 = "X-Else".into(),
            },
        }
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
        let refused = client.request("POST", PATH, "", &fields, &body);
        assert_eq!((refused.status, refused.code()), (401, "report_unsigned".into()), "{round}");
        if refused.header("connection") == Some("close") {
            client = Client::connect(gateway.address);
        }
    }
    let id = token.token.id.to_string();
    assert_eq!(monitor.commands_with(&[&digest, &id]), Vec::<String>::new());
    assert_eq!((status(&gateway, &key), gateway.changes("key.revoke").len()), (200, 0));
    assert_eq!(github.server.count(), 2, "its keys were read once, and once more for the unknown one");
    assert_eq!(send(&gateway, &signed, &body).status, 200);
    let commands = monitor.commands_with(&[&digest, &id]).concat();
    assert!(commands.contains(&digest) && commands.contains(&id), "these are in the commands: {commands}");
    assert_eq!((status(&gateway, &key), gateway.changes("key.revoke").len()), (401, 1));
}

#[test]
fn report_that_is_sent_again_changes_nothing_also_when_the_key_was_enabled() {
    let github = GitHub::start();
    let (_upstream, gateway, key) = with(&github.block("disable"));
    let report = |url| github.report(&gateway, &json!([finding(&key.text, url)])).json();
    let positive = json!([feedback(&key.text, "true_positive")]);
    for _ in 0..3 {
        assert_eq!(report(PLACE), positive);
    }
    assert_eq!((status(&gateway, &key), gateway.changes("key.disable").len()), (401, 1));
    enable(&gateway, &key);
    assert_eq!(report(PLACE), positive);
    assert_eq!((status(&gateway, &key), gateway.changes("key.disable").len()), (200, 1));
    // Another place is another leak.
    assert_eq!(report("https://github.com/acme/fork"), positive);
    assert_eq!((status(&gateway, &key), gateway.changes("key.disable").len()), (401, 2));
    enable(&gateway, &key);
    assert_eq!([report(PLACE), report("https://github.com/acme/fork")], [positive.clone(), positive.clone()]);
    assert_eq!(status(&gateway, &key), 200);
    // A key that a person has disabled is the operator's to enable from now on.
    gateway.disable(&key);
    assert_eq!(report("https://gist.github.com/1"), positive);
    assert_eq!(shown(&gateway, &key).policy.disabled.unwrap().by, DisabledBy::Leak);
}

#[test]
fn secret_that_was_replaced_has_not_leaked_and_one_that_is_still_valid_has() {
    let github = GitHub::start();
    let (_upstream, gateway, first) = with(&github.block("disable"));
    let second = gateway.rotate(&first, None);
    let positive = json!([feedback(&first.text, "true_positive")]);
    assert_eq!(github.report(&gateway, &json!([finding(&first.text, PLACE)])).json(), positive);
    assert_eq!(status(&gateway, &second), 200);
    let third = gateway.rotate(&second, Some(std::time::Duration::from_secs(3600)));
    github.report(&gateway, &json!([finding(&second.text, PLACE)]));
    assert_eq!((status(&gateway, &second), status(&gateway, &third)), (401, 401));
    let revoked = gateway.another_key(&first);
    gateway.revoke(&revoked);
    github.report(&gateway, &json!([finding(&revoked.text, PLACE)]));
    assert_eq!(gateway.changes("key.disable").len(), 1);
}

#[test]
fn action_is_that_of_the_configuration() {
    let github = GitHub::start();
    let (_upstream, gateway, key) = with(&github.block("notify"));
    for _ in 0..2 {
        github.report(&gateway, &json!([finding(&key.text, PLACE)]));
    }
    assert_eq!(status(&gateway, &key), 200);
    let [record] = &gateway.changes("key.leaked")[..] else { panic!("one record") };
    assert_eq!((record.path.as_str(), record.key_id), (&*format!("key.leaked/commit/{PLACE}"), Some(key.id)));
    let (_upstream, gateway, key) = with(&github.block("revoke"));
    github.report(&gateway, &json!([{ "token": key.text, "type": TYPE }]));
    assert_eq!((status(&gateway, &key), shown(&gateway, &key).status), (401, KeyStatus::Revoked));
    assert_eq!(gateway.changes("key.revoke")[0].path, "key.revoke/leak/unknown/");
}

#[test]
fn reported_management_token_is_revoked_and_a_replay_changes_nothing() {
    for action in ["disable", "revoke", "notify"] {
        let github = GitHub::start();
        let (_upstream, gateway, _) = with(&github.block(action));
        let management::NewToken { token, secret } = gateway.token();
        let text = secret.expose();
        let unknown = PlainToken::generate().unwrap().expose().expose().to_owned();
        let findings = [text, &unknown, &mistyped(text)].map(|text| finding(text, &format!("{PLACE}?{text}")));
        let known = json!([feedback(text, "true_positive"), feedback(&unknown, "false_positive")]);
        for _ in 0..3 {
            assert_eq!(github.report(&gateway, &json!(findings)).json(), known);
        }
        let shown = gateway.perform(async |to, now| management::show_token(to, OPERATOR, token.id, now).await);
        let (status, operation, cause) = match action {
            "notify" => (TokenStatus::Active, "token.leaked", ""),
            _ => (TokenStatus::Revoked, "token.revoke", "leak/"),
        };
        assert_eq!(shown.status, status, "{action}");
        let [record] = &gateway.changes(operation)[..] else { panic!("one record") };
        let place = format!("commit/{PLACE}?kgm_{}_%E2%80%A6", token.id);
        assert_eq!(record.path, format!("{operation}/{}/{cause}{place}", token.id));
        assert_eq!((record.actor.as_deref(), record.org_id), (Some("gateway"), token.org));
    }
}

#[test]
fn keys_of_github_are_read_again_for_an_unknown_one_and_without_them_nothing_is_believed() {
    let github = GitHub::start();
    let (_upstream, gateway, key) = with(&github.block("disable"));
    assert_eq!(github.report(&gateway, &json!([])).json(), json!([]));
    github.keys.lock().unwrap().push(("second".to_owned(), new_pair()));
    assert_eq!(github.report(&gateway, &json!([])).status, 200);
    github.keys.lock().unwrap().push(("third".to_owned(), new_pair()));
    let refused = github.report(&gateway, &json!([finding(&key.text, PLACE)]));
    assert_eq!((refused.status, github.server.count()), (401, 2), "not twice within minutes");
    let lost = GitHub::start();
    let (_upstream, gateway, key) = with(&lost.block("disable"));
    let body = json!([finding(&key.text, PLACE)]).to_string();
    let signed = lost.sign(body.as_bytes());
    lost.lose_keys();
    let refused = send(&gateway, &signed, body.as_bytes());
    assert_eq!((refused.status, refused.code()), (503, "report_unverified".into()));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(status(&gateway, &key), 200);
}

#[test]
fn report_of_another_form_is_refused_without_a_word_of_it() {
    let github = GitHub::start();
    let (upstream, gateway, key) = with(&github.block("disable"));
    for body in [json!({}), json!([key.text]), json!([{ "token": [key.text] }]), json!("x")] {
        let refused = github.report(&gateway, &body);
        assert_eq!((refused.status, refused.code()), (400, "invalid_body".into()), "{body}");
        assert!(!String::from_utf8(refused.body).unwrap().contains(&key.text));
    }
    let large = vec![b' '; (1 << 20) + 1];
    assert_eq!(send(&gateway, &github.sign(&large), &large).code(), "body_too_large");
    let refused = Client::connect(gateway.address).get(PATH, &key.text);
    assert_eq!((refused.status, refused.header("allow")), (405, Some("POST")));
    assert_eq!(upstream.count(), 0, "the path is never forwarded");
}

#[test]
fn key_ends_itself_and_no_answer_tells_whether_it_was_one() {
    let (upstream, gateway, key) = with("leaks: {}\ncredentials: { headers: [X-API-Key] }\n");
    let revoke =
        |headers: &[(&str, &str)], key: &str| Client::connect(gateway.address).request("POST", SELF, key, headers, b"");
    let told =
        |response: Response| (response.status, response.header("content-length").map(str::to_owned), response.body);
    let unknown = told(revoke(&[], &unknown()));
    assert_eq!(unknown.0, 204);
    let again = gateway.another_key(&key);
    assert_eq!(told(revoke(&[], &key.text)), unknown);
    assert_eq!(told(revoke(&[], &key.text)), unknown);
    assert_eq!(told(revoke(&[], "key-of-another-system")), unknown);
    assert_eq!((status(&gateway, &key), status(&gateway, &again)), (401, 200));
    let [record] = &gateway.changes("key.revoke")[..] else { panic!("one record") };
    assert_eq!((record.path.as_str(), record.key_id, record.ip.is_some()), ("key.revoke/self", Some(key.id), true));
    gateway.disable(&again);
    assert_eq!(revoke(&[("X-API-Key", &again.text)], "").status, 204);
    assert_eq!(shown(&gateway, &again).status, KeyStatus::Revoked);
    let rotated = gateway.another_key(&key);
    let newer = gateway.rotate(&rotated, None);
    assert_eq!(revoke(&[], &rotated.text).status, 204);
    assert_eq!(status(&gateway, &newer), 200, "who has an old secret does not end the new one");

    assert_eq!(revoke(&[], "").code(), "unauthenticated");
    let both = [("X-API-Key", newer.text.as_str())];
    assert_eq!(revoke(&both, &newer.text).code(), "unauthenticated", "two keys are none");
    let with_body = Client::connect(gateway.address).request("POST", SELF, &newer.text, &[], b"{}");
    assert_eq!((with_body.status, status(&gateway, &newer)), (413, 200));
    assert_eq!(Client::connect(gateway.address).get(SELF, &newer.text).status, 405);
    let before = upstream.count();
    assert_eq!(Client::connect(gateway.address).request("POST", PATH, &newer.text, &[], b"[]").status, 200);
    assert_eq!(upstream.count(), before + 1, "without `github` the other path is the upstream's");
}

#[test]
fn attempts_of_an_address_are_bounded_and_successes_are_not() {
    const LIMIT: &str = "\nlimits: { sign_ins: { requests: 3, per: 1h, burst: 3 } }\n";
    let github = GitHub::start();
    let (_upstream, gateway, key) = Gateway::with_key(&format!("{LIMIT}{}", github.block("disable")));
    for _ in 0..6 {
        assert_eq!(github.report(&gateway, &json!([finding(&key.text, PLACE)])).status, 200);
        let key = gateway.another_key(&key);
        assert_eq!(Client::connect(gateway.address).request("POST", SELF, &key.text, &[], b"").status, 204);
    }
    let revoke = || Client::connect(gateway.address).request("POST", SELF, &unknown(), &[], b"");
    assert_eq!([revoke().status, revoke().status], [204; 2]);
    assert_eq!(send(&gateway, &[], b"[]").code(), "report_unsigned");
    let limited = revoke();
    assert_eq!((limited.status, limited.code()), (429, "rate_limited".into()));
    assert!(limited.header("retry-after").is_some());
    assert_eq!(github.report(&gateway, &json!([])).status, 429);
}

#[test]
fn paths_are_the_upstreams_without_the_block() {
    let (upstream, gateway, key) = Gateway::with_key("");
    for path in [PATH, SELF] {
        assert_eq!(Client::connect(gateway.address).request("POST", path, &key.text, &[], b"").status, 200);
    }
    assert_eq!((upstream.count(), status(&gateway, &key)), (2, 200));
}

#[test]
fn commands_of_the_page_end_keys() {
    let setup = crate::management_api::fixture::Setup::with("leaks: {}\n");
    let gateway = &setup.gateway;
    gateway.create_org("acme");
    let ada = gateway.create_user("acme", "ada@example.com", &[]);
    let [found, own] = ["found", "own"].map(|name| gateway.create_key("acme", &ada.email, name));
    let run = |script: &str, environment: &[(&str, &str)]| {
        let path = format!("{}:{}", Path::new(KEYGATE).parent().unwrap().display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-ec", script]).env("PATH", path).env("KEYGATE_CONFIG", gateway.dir.path().join("keygate.yaml"));
        let output = shell.envs(environment.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let commands = block("keygate token create scanner --org acme");
    let commands = commands.replace("http://127.0.0.1:9443", &format!("http://{}", setup.api()));
    let (create, report) = commands.split_once('\n').unwrap();
    let created: Value = serde_json::from_str(&run(&format!("{create} --json"), &[])).unwrap();
    let token = created["token"].as_str().unwrap();
    let answer = run(report, &[("KEYGATE_TOKEN", token), ("FOUND", &found.text)]);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((&answer["found"]["id"], &answer["found"]["status"]), (&json!(found.id), &json!("disabled")));
    let place = "key.disable/leak/gitleaks/https://git.example.com/acme/app";
    assert_eq!(gateway.changes("key.disable")[0].path, place);
    let revoke = block("curl -sf -X POST https://gateway.example");
    let revoke = revoke.replace("https://gateway.example.com", &format!("http://{}", gateway.address));
    assert_eq!(run(&revoke, &[("KEY", &own.text)]), "");
    assert_eq!((status(gateway, &own), gateway.changes("key.revoke")[0].path.as_str()), (401, "key.revoke/self"));
}

/// The expressions of gitleaks are those of Python here: both read them alike.
#[test]
fn rules_of_gitleaks_find_keys_and_management_tokens_and_no_shorter_or_longer_text() {
    const SCRIPT: &str = "import re, sys, tomllib\n\
        rules = tomllib.load(open('deploy/gitleaks.toml', 'rb'))['rules']\n\
        for line in sys.argv[1:]:\n\
        \x20   found = [rule['id'] for rule in rules if re.search(rule['regex'], line)\n\
        \x20            and any(word in line for word in rule['keywords'])]\n\
        \x20   print(*found)\n";
    let (key, token) = (unknown(), PlainToken::generate().unwrap().expose().expose().to_owned());
    let texts = [
        key.clone(),
        format!("KEY=\"{key}\""),
        format!("https://x.example/?key={key}&a=b"),
        token.clone(),
        format!("{key}a"),
        format!("a{key}"),
        key[..key.len() - 1].to_owned(),
        format!("{token}0"),
        "sk_live_51H8xExampleOfAnotherSystem".to_owned(),
    ];
    let output = Command::new("python3").arg("-c").arg(SCRIPT).args(&texts).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found = String::from_utf8(output.stdout).unwrap();
    let key = "keygate-api-key";
    assert_eq!(found.lines().collect::<Vec<_>>(), [key, key, key, "keygate-management-token", "", "", "", "", ""]);
    let page = std::fs::read_to_string("docs/leaked-keys.md").unwrap();
    assert!(page.contains("`sk_live_[0-9A-Za-z]{9}_[0-9A-Za-z]{49}`"), "the expression for GitHub is the same");
}
