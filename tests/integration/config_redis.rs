//! The configuration block `state.redis`: accepted values, defaults, errors, and that no password is ever shown.

use std::path::Path;
use std::time::Duration;

use domain::quota::Quota;
use keygate::config::Config;
use platform::settings::SettingsErrors;
use platform::tls::CertificateFiles;
use proptest::prelude::*;
use state::redis::{Address, Clock, Durability, OnUnavailable, Servers, Settings};

/// A file whose block `state` begins in line 4, column 1.
fn file(state: &str) -> String {
    format!(
        "listen: [address: '127.0.0.1:8080']\n\
         admin: {{ socket: admin.sock }}\n\
         upstream: {{ endpoints: ['http://127.0.0.1:8081'] }}\n\
         state: {state}\n\
         audit: {{ path: audit }}\n\
         limits: {{ key: {{ requests: 7, per: 1m }}, org: {{ concurrent: 3 }} }}\n"
    )
}

fn parse(state: &str) -> Result<Config, SettingsErrors> {
    Config::parse(Path::new("etc/x.yaml"), &file(state))
}

/// Settings from a block `redis`.
fn redis(block: &str) -> Settings {
    let config = parse(&format!("{{ redis: {block} }}")).unwrap_or_else(|problems| panic!("{block}: {problems}"));
    assert!(!format!("{config:?}").contains("hunter2"));
    match config.state {
        state::Settings::Redis(settings) => *settings,
        state::Settings::Embedded(_) => panic!("{block} is embedded"),
    }
}

/// Errors of a block `state`, without the file's name.
fn problems(state: &str) -> Vec<String> {
    let problems = parse(state).map(|config| panic!("{state} is accepted: {config:?}")).unwrap_err();
    assert!(!format!("{problems} {problems:?}").contains("hunter2"), "{problems}");
    problems.iter().map(|problem| problem.to_string().replacen("etc/x.yaml:", "", 1)).collect()
}

fn at(host: &str, port: u16) -> Address {
    Address { host: host.into(), port }
}

#[test]
fn url_is_the_only_required_key() {
    let settings = redis("{ url: 'redis://cache' }");
    assert_eq!(settings.servers, Servers::Single(at("cache", 6379)));
    assert!(settings.login.user.is_none() && settings.login.password.is_none() && settings.tls.is_none());
    assert!(settings.sentinel_login.user.is_none() && settings.sentinel_login.password.is_none());
    assert_eq!((settings.database, settings.prefix.as_str()), (0, "keygate"));
    assert_eq!(settings.quota, Quota { requests: 7, per: Duration::from_secs(60), burst: 7, strict: false });
    assert_eq!(settings.concurrent, 3);
    assert_eq!((settings.deadline, settings.lease), (Duration::from_millis(50), Duration::from_secs(10)));
    assert_eq!(settings.on_unavailable, OnUnavailable::Deny);
    assert_eq!(settings.durability, Durability { replicas: 0, timeout: Duration::from_secs(1) });
    assert_eq!(settings.clock, Clock::Server);
}

#[test]
fn redis_keys_are_all_read() {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in [("ca", "c"), ("own", "o"), ("own-key", "k"), ("password", "hunter2\n")] {
        std::fs::write(directory.path().join(name), content).unwrap();
    }
    let block = "
  redis:
    url: rediss+sentinel://a,b:1/main/2
    user: ada
    password: { file: password }
    sentinel: { user: eve, password: { env: CARGO_PKG_NAME } }
    tls: { ca: ca, certificate: own, key: own-key }
    prefix: a.B_1-
    deadline: 2s
    lease: 8s
    on_unavailable: known_keys
    max_staleness: 5m
    durability: { replicas: 2, timeout: 250ms }";
    let config = Config::parse(&directory.path().join("x.yaml"), &file(block)).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
    let state::Settings::Redis(settings) = config.state else { panic!("redis") };
    let sentinels = vec![at("a", 26379), at("b", 1)];
    assert_eq!(settings.servers, Servers::Sentinel { sentinels, service: "main".into() });
    let secret = |login: &state::redis::Login| login.password.as_ref().map(|secret| secret.expose().to_owned());
    assert_eq!((settings.login.user.as_deref(), secret(&settings.login).as_deref()), (Some("ada"), Some("hunter2")));
    let sentinel = &settings.sentinel_login;
    assert_eq!((sentinel.user.as_deref(), secret(sentinel).as_deref()), (Some("eve"), Some("keygate")));
    let tls = settings.tls.unwrap();
    let path = |name| directory.path().join(name);
    assert_eq!(
        (tls.ca, tls.identity),
        (Some(path("ca")), Some(CertificateFiles { chain: path("own"), key: path("own-key") })),
        "relative to the file"
    );
    assert_eq!((settings.database, settings.prefix.as_str()), (2, "a.B_1-"));
    assert_eq!((settings.deadline, settings.lease), (Duration::from_secs(2), Duration::from_secs(8)));
    assert_eq!(settings.on_unavailable, OnUnavailable::KnownKeys { max_staleness: Duration::from_secs(300) });
    assert_eq!(settings.durability, Durability { replicas: 2, timeout: Duration::from_millis(250) });
}

#[test]
fn urls_can_be_given_in_several_ways() {
    let cluster = Servers::Cluster(vec![at("a", 1), at("b", 6379)]);
    assert_eq!(redis("{ url: 'redis://a:1,b' }").servers, cluster);
    assert_eq!(redis("{ url: ['redis://a:1', 'redis://b'] }").servers, cluster);
    assert_eq!(redis("{ url: ['redis://a'] }").servers, Servers::Single(at("a", 6379)));

    let settings = redis("{ url: 'rediss://ada:hunter2@[::1]/5' }");
    assert_eq!((settings.servers, settings.database), (Servers::Single(at("::1", 6379)), 5));
    assert_eq!(settings.login.user.as_deref(), Some("ada"));
    assert_eq!(settings.login.password.unwrap().expose(), "hunter2");
    let tls = settings.tls.unwrap();
    assert!(tls.ca.is_none() && tls.identity.is_none(), "the certificates of the system are trusted");

    let settings = redis("{ url: 'redis://ada@cache', password: hunter2 }");
    assert_eq!(settings.login.user.as_deref(), Some("ada"));
    assert_eq!(settings.login.password.unwrap().expose(), "hunter2");

    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("url"), "redis://:hunter2@cache\n").unwrap();
    let config = Config::parse(&directory.path().join("x.yaml"), &file("{ redis: { url: { file: url } } }")).unwrap();
    let state::Settings::Redis(settings) = config.state else { panic!("redis") };
    assert_eq!(settings.login.password.unwrap().expose(), "hunter2");
}

#[test]
fn url_errors_are_reported_with_their_position() {
    let of = |url: &str| {
        let [problem] = &problems(&format!("{{ redis: {{ url: {url} }} }}"))[..] else { panic!("one problem: {url}") };
        problem.clone()
    };
    for (url, error) in [
        ("'http://:hunter2@h'", "is not a Redis url; begin it with redis://, rediss:// (TLS), redis+sentinel:// or"),
        ("'redis://:hunter2@h h'", "has a space or a control character"),
        ("'redis://:hunter2@h?db=1'", "has a query or a fragment"),
        ("'redis://:hunter2@h#1'", "has a query or a fragment"),
        ("'redis://:hunter2@x@h'", "has an `@` elsewhere than before the first host; write %40"),
        ("'redis+sentinel://u:1/hunter2@h'", "has an `@` elsewhere than before the first host; write %40"),
        ("'redis://u:@h'", "has an `@` without a user, or a `:` without a password"),
        ("'redis://:hunter2%zz@h'", "has a `%` in its user or password that is no percent-encoding"),
        ("'redis://:hunter2@'", "has a host that is neither a name nor an IP address"),
        ("'redis://::1'", "has an IPv6 address without brackets"),
        ("'redis://:hunter2@h:0'", "has a port that is not a number of 1 to 65535"),
        ("'redis+sentinel://:hunter2@h'", "names no service"),
        ("'redis+sentinel://:hunter2@h/a,b'", "has a service whose name"),
        ("'redis://:hunter2@h/hunter2'", "has a database that is not a number"),
        ("'redis://:hunter2@a,b/1'", "has several hosts, which makes it a Cluster, and a database"),
        ("'redis://:hunter2@a,a'", "names a host and port that are named already"),
        ("[]", "is empty; give at least one url"),
        ("''", "is empty; give a secret, or remove the key"),
        ("{ file: none }", "state.redis.url.file: etc/none cannot be read"),
    ] {
        let problem = of(url);
        let place = if url.starts_with('{') { "4:32: " } else { "4:24: state.redis.url: " };
        assert!(problem.starts_with(&format!("{place}{error}")), "{problem}");
    }
    let second = "4:37: state.redis.url[1]: ";
    for (other, error) in [
        ("'rediss://b'", "differs from the first url in more than its hosts"),
        ("'redis://u@b'", "differs from"),
        ("'redis://:hunter2@b'", "differs from"),
        ("'redis://b/1'", "differs from"),
        ("'redis://a'", "names a host and port that are named already; remove one"),
        ("'redis://b:x'", "has a port"),
    ] {
        let problem = of(&format!("['redis://a',{other}]"));
        assert!(problem.starts_with(&format!("{second}{error}")), "{problem}");
    }
    assert!(of("['redis+sentinel://a/s', 'redis+sentinel://b/t']").contains("url[1]: differs from"));
    assert!(of("['redis://a/1', 'redis://b/1']").contains("url[1]: has several hosts, which makes it a Cluster"));
    assert_eq!(problems("{ redis: {} }"), ["4:10: state.redis.url: is required"]);
}

#[test]
fn contradicting_keys_are_reported() {
    let block = "
  redis:
    url: redis://ada:hunter2@h
    user: eve
    password: hunter2
    sentinel: { password: hunter2 }
    tls: {}
    deadline: 3s
    lease: 11s
    max_staleness: 2m";
    let expected = "\
7:11: state.redis.user: is given twice, here and in `url`; remove one
8:15: state.redis.password: is given twice, here and in `url`; remove one
9:15: state.redis.sentinel: is given, and `url` names no sentinels; write redis+sentinel:// there, or remove the block
10:10: state.redis.tls: is given, and `url` is of a scheme without TLS; write rediss:// there, or remove the block
12:12: state.redis.lease: is less than 4 times `deadline` (3s); make the lease longer, or the deadline shorter
13:20: state.redis.max_staleness: has no effect unless `on_unavailable` is known_keys; write that, or remove it";
    assert_eq!(problems(block).join("\n"), expected);
    let late = problems("{ redis: { url: 'redis://h', deadline: 3s } }");
    let error = "is more than a quarter of `lease` (10s); make the lease longer, or the deadline shorter";
    assert_eq!(late, [format!("4:47: state.redis.deadline: {error}")]);
    for share in ["level", "exact"] {
        let share =
            problems(&format!("{{ redis: {{ url: 'redis://h', on_unavailable: known_keys, share: {share} }} }}"));
        assert!(share[0].contains("state.redis.share: is no setting") && share[0].contains("remove"), "{share:?}");
    }
    let denied = problems("{ redis: { url: 'redis://h', on_unavailable: deny, max_staleness: 2m } }");
    assert!(denied[0].starts_with("4:74: state.redis.max_staleness: has no effect"), "{denied:?}");
}

#[test]
fn values_out_of_range_are_reported() {
    let of = |keys: &str| {
        let [problem] = &problems(&format!("{{ redis: {{ url: 'rediss://h', {keys} }} }}"))[..] else {
            panic!("one problem: {keys}")
        };
        problem.strip_prefix("4:").unwrap().to_owned()
    };
    let long = "x".repeat(33);
    for (keys, error) in [
        ("prefix: 'a:b'", "46: state.redis.prefix: `a:b` is not a prefix: 1 to 32 of letters, digits and . _ -"),
        ("prefix: '{a}'", "46: state.redis.prefix: `{a}` is not a prefix"),
        (&format!("prefix: {long}"), "46: state.redis.prefix: `xxx"),
        ("prefix: ''", "46: state.redis.prefix: is empty"),
        ("deadline: 0s", "48: state.redis.deadline: 0s is out of range; give 1ms to 10s"),
        ("deadline: 10001ms, lease: 1m", "48: state.redis.deadline: 10001ms is out of range"),
        ("lease: 999ms", "45: state.redis.lease: 999ms is out of range; give 1s to 10m"),
        ("lease: 601s", "45: state.redis.lease: 601s is out of range"),
        ("lease: 10", "45: state.redis.lease: `10` is not a duration"),
        ("on_unavailable: allow", "54: state.redis.on_unavailable: `allow` is not one of the choices; give deny or"),
        (
            "on_unavailable: known_keys, max_staleness: 2h",
            "81: state.redis.max_staleness: 2h is out of range; give 1s to 1h",
        ),
        ("on_unavailable: allow, max_staleness: 1m", "54: state.redis.on_unavailable: `allow` is not"),
        ("durability: { replicas: 17 }", "62: state.redis.durability.replicas: 17 is out of range; give 0 to 16"),
        ("durability: { timeout: 61s }", "61: state.redis.durability.timeout: 61s is out of range; give 1ms to 1m"),
        ("user: ''", "44: state.redis.user: is empty"),
        ("password: []", "48: state.redis.password: is a list"),
        (
            "password: { env: KEYGATE_NO_SUCH }",
            "55: state.redis.password.env: the environment variable KEYGATE_NO_SUCH",
        ),
        ("tls: { ca: none }", "49: state.redis.tls.ca: etc/none cannot be read: No such file"),
        ("tls: { ca: /tmp }", "49: state.redis.tls.ca: /tmp cannot be read: Is a directory"),
        (
            "tls: { key: /dev/null }",
            "50: state.redis.tls.key: has no effect without `certificate`; give both, or neither",
        ),
        ("tls: { certificate: /dev/null }", "58: state.redis.tls.certificate: has no effect without `key`; give both"),
        ("tls: { cert: x }", "45: state.redis.tls.cert: is not a known key"),
        ("clock: asker", "38: state.redis.clock: is not a known key"),
    ] {
        let problem = of(keys);
        assert!(problem.starts_with(error), "{keys}: {problem}");
    }
    assert!(redis("{ url: 'redis://h', deadline: 250ms, lease: 1s }").lease == Duration::from_secs(1));
}

#[test]
fn both_states_together_are_an_error() {
    let both = problems("{ embedded: { path: old.db }, redis: { url: 'redis://h' } }");
    assert!(
        both[0].contains("state.embedded: set either `embedded` or `redis`, not both; to move: `keygate state export`")
    );
    assert_eq!(both.len(), 1, "{both:?}");
    let state::Settings::Embedded(alone) = parse("{ embedded: { path: old.db } }").unwrap().state else { panic!() };
    assert_eq!((alone.path.as_path(), alone.concurrent, alone.quota.requests), (Path::new("etc/old.db"), 3, 7));
    assert_eq!(
        problems("{ embedded: {}, redis: { url: h } }"),
        [
            "4:10: state.embedded.path: is required",
            "4:38: state.redis.url: is not a Redis url; begin it with redis://, rediss:// (TLS), redis+sentinel:// or \
             rediss+sentinel://",
        ]
    );
}

#[test]
fn missing_state_names_both_variants() {
    let error = "state.embedded: is missing, and so is `redis`; give the one that is to serve";
    assert_eq!(problems("{}"), [format!("4:1: {error}")]);
    let misspelt = problems("{ rediss: {} }");
    assert_eq!(
        misspelt,
        [format!("4:1: {error}"), "4:10: state.rediss: is not a known key; did you mean `redis`?".into()]
    );
}

/// The shipped file with the commented-out block in place of the embedded one.
fn shipped_with_redis() -> (String, String) {
    let text = std::fs::read_to_string("config/keygate.yaml").unwrap();
    let start = text.find("  # redis:\n").expect("the file has the block");
    let length = text[start..].find("\n\n").expect("the block ends");
    let block: Vec<String> = text[start..start + length].lines().map(|line| line.replacen("# ", "", 1)).collect();
    let block = block.join("\n");
    let embedded = text.find("  embedded:\n").expect("the file has the embedded block");
    (format!("{}{block}{}", &text[..embedded], &text[start + length..]), block)
}

#[test]
fn shipped_file_shows_the_defaults_of_redis() {
    let read = |text: &str| Config::parse(Path::new("config/keygate.yaml"), text).unwrap();
    let (with_redis, block) = shipped_with_redis();
    let lines = with_redis.replace(&block, "  redis: { url: 'redis://127.0.0.1:6379' }");
    assert_ne!(lines, with_redis);
    assert_eq!(format!("{:#?}", read(&with_redis).state), format!("{:#?}", read(&lines).state));
}

#[test]
fn shipped_file_shows_every_key_of_redis() {
    let (_, block) = shipped_with_redis();
    let shown: Vec<&str> = block
        .lines()
        .filter_map(|line| line.trim_start_matches([' ', '#']).split_once(':').map(|(key, _)| key))
        .collect();
    let url = "url: 'rediss+sentinel://h/s'";
    for (nested, least) in [("", 10), ("sentinel", 2), ("tls", 3), ("durability", 2)] {
        // An unknown key that resembles none: the error lists all known ones.
        let keys = if nested.is_empty() { "zzzzzzzzzz: 1".into() } else { format!("{nested}: {{ zzzzzzzzzz: 1 }}") };
        let problem = problems(&format!("{{ redis: {{ {url}, {keys} }} }}")).remove(0);
        let (_, known) = problem.split_once("known here: ").expect("the error lists all known keys");
        let known: Vec<&str> = known.split(", ").collect();
        assert!(known.len() >= least, "{known:?}");
        let hidden: Vec<_> = known.iter().filter(|key| !shown.contains(key)).collect();
        assert!(hidden.is_empty(), "config/keygate.yaml does not show {hidden:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn password_in_a_url_is_never_shown(
        scheme in prop::sample::select(vec!["redis", "rediss", "redis+sentinel", "redi", ""]),
        (before, after, rest) in ("[!-&(-~]{0,5}", "[!-&(-~]{0,5}", "[!-&(-~]{0,9}"),
    ) {
        let shown = match parse(&format!("{{ redis: {{ url: '{scheme}://u:{before}hunter2{after}@{rest}' }} }}")) {
            Ok(config) => format!("{config:?}"),
            Err(problems) => format!("{problems} {problems:?}"),
        };
        prop_assert!(!shown.contains("hunter2"), "{shown}");
    }
}
