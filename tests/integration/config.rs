//! Configuration file: accepted values, defaults, and errors.

use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::quota::Quota;
use domain::secret::Secret;
use journal::audit::{Durability, OnUnavailable};
use keygate::config::Config;
use platform::settings::{Document, Section, SettingsErrors};
use state::{GivenPlan, GivenPlans, LimitLevel, LimitPlans};

use crate::support::lenient;

/// The minimal configuration of the documentation.
pub const MINIMAL: &str = "\
listen:
  - address: 127.0.0.1:8080
admin:
  socket: data/admin.sock          # management
  address: 127.0.0.1:9464          # /metrics /live /ready
upstream:
  endpoints: [http://127.0.0.1:8081]
state:
  embedded: { path: data/state.db }
limits:
  key: { requests: 1000, per: 1h, burst: 1000 }
  org: { concurrent: 100 }
audit: { path: data/audit, durability: written }
";

pub fn parse(text: &str) -> Result<Config, SettingsErrors> {
    Config::parse(Path::new("etc/keygate.yaml"), text)
}

/// Errors of the minimal file with an addition at its end, one line each.
fn problems_with(addition: &str) -> Vec<String> {
    let problems = parse(&format!("{MINIMAL}{addition}")).unwrap_err();
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn minimal_file_is_accepted() {
    let config = parse(MINIMAL).unwrap();
    assert_eq!(config.listen[0].address.port(), 8080);
    assert_eq!(config.admin.socket, Path::new("etc/data/admin.sock"), "relative to the file");
    assert_eq!(config.upstreams[0].settings.endpoints[0].authority, "127.0.0.1:8081");
    let state::Settings::Embedded(state) = &config.state else { panic!("embedded") };
    assert_eq!((state.quota, state.concurrent), (Quota::DEFAULT, 100));
    assert_eq!(config.audit.durability, Durability::Written);
    assert_eq!(config.audit.gateway, config.gateway);
    assert!(config.workers >= 1 && !config.gateway.is_empty() && config.routes.is_empty());
}

#[test]
fn shipped_file_shows_the_defaults() {
    let shipped = Config::load(Path::new("config/keygate.yaml")).unwrap();
    let least = "{listen: [address: '127.0.0.1:8080'], admin: {socket: ../data/admin.sock}, \
                 upstream: {endpoints: ['http://127.0.0.1:8081']}, \
                 state: {embedded: {path: ../data/state.db}}, audit: {path: ../data/audit}}";
    let defaults = Config::parse(Path::new("config/keygate.yaml"), least).unwrap();
    assert_eq!(shipped.routes.len(), 5);
    let shipped = Config { routes: Vec::new(), source: defaults.source.clone(), ..shipped };
    assert_eq!(format!("{shipped:#?}"), format!("{defaults:#?}"));
}

#[test]
fn all_errors_are_reported_at_once_with_their_locations() {
    let text = "\
listen:
  - address: localhost
  - addres: 127.0.0.1:8080
upstream:
  endpoints: [ftp://a:1, http://b:2, http://b:2]
state: { redis: { url: 'redis://x', deadlin: 1 } }
limits:
  key:
    request: 10
    per: 1
    burst: 0
    per: 2h
audit: { path: a, durability: sometimes }
session: { issuer: x }
";
    let expected = "\
etc/keygate.yaml:1:1: admin.socket: is required
etc/keygate.yaml:2:14: listen[0].address: `localhost` is not an IP address with a port, such as \
127.0.0.1:8080 or [::1]:8080
etc/keygate.yaml:3:5: listen[1].address: is required
etc/keygate.yaml:3:5: listen[1].addres: is not a known key; did you mean `address`?
etc/keygate.yaml:5:15: upstream.endpoints[0]: `ftp://a:1/` is not an endpoint such as http://127.0.0.1:8081 \
or https://store.internal
etc/keygate.yaml:5:38: upstream.endpoints[2]: is listed already; remove one
etc/keygate.yaml:6:37: state.redis.deadlin: is not a known key; did you mean `deadline`?
etc/keygate.yaml:9:5: limits.key.request: is not a known key; did you mean `requests`?
etc/keygate.yaml:10:10: limits.key.per: `1` is not a duration; give a whole number and its unit: 250ms, 30s, 5m, 1h, 7d
etc/keygate.yaml:11:12: limits.key.burst: 0 is out of range; give 1 to 1000000000
etc/keygate.yaml:12:5: limits.key.per: is given twice, first in line 10; remove one
etc/keygate.yaml:13:31: audit.durability: `sometimes` is not one of the choices; give written or synced
etc/keygate.yaml:14:1: session.origin: is required
etc/keygate.yaml:14:12: session.issuer: is not a known key; known here: origin, path, api, \
idle, lifetime, hsts, links, limit, people, providers";
    assert_eq!(parse(text).unwrap_err().to_string(), expected);
}

#[test]
fn yaml_errors_are_reported_with_their_location() {
    let message = |text: &str| parse(text).unwrap_err().to_string();
    assert!(message("listen: [a\nadmin: {").starts_with("etc/keygate.yaml:2:"), "{}", message("listen: [a\nadmin: {"));
    assert_eq!(message("a: &x 1\nb: *x"), "etc/keygate.yaml:2:4: aliases are not supported; write the value out");
    assert_eq!(message("a: !t 1"), "etc/keygate.yaml:1:4: tags are not supported; remove it");
    assert!(message("a: 1\n---\nb: 2").contains("second document"));
    assert!(message("- a").starts_with("etc/keygate.yaml:1:1: a block of `key: value` is expected"));
    assert!(message(&format!("a: {}1{}", "[".repeat(40), "]".repeat(40))).contains("nested too deeply"));
    assert!(message(&"[".repeat(10_000)).starts_with("etc/keygate.yaml:1:"));
    let missing = Config::load(Path::new("no/such.yaml")).unwrap_err().to_string();
    assert!(missing.starts_with("no/such.yaml: cannot be read:"), "{missing}");
}

#[test]
fn contradicting_values_are_errors() {
    let twice = parse(&MINIMAL.replace("listen:", "listen:\n  - address: 127.0.0.1:8080")).unwrap_err().to_string();
    assert!(twice.contains(":3:14: listen[1].address: 127.0.0.1:8080 is listed already"), "{twice}");
    let shown = parse(&MINIMAL.replace("listen:", "listen:\n  - address: 127.0.0.1:9464")).unwrap_err().to_string();
    assert!(shown.contains("admin.address: 127.0.0.1:9464 is in `listen` already"), "{shown}");

    let slow = MINIMAL.replace("per: 1h, burst: 1000", "per: 366d, burst: 1000000000");
    let error = parse(&slow).unwrap_err().to_string();
    assert!(error.contains("limits.key.burst: 1000000000 per 31622400s is too large; give at most 284, or"), "{error}");

    let long = MINIMAL.replace("data/admin.sock", &format!("/{}", "x".repeat(107)));
    assert!(parse(&long).unwrap_err().to_string().contains("admin.socket: /xxx"));
    let fits = MINIMAL.replace("data/admin.sock", &format!("/{}", "x".repeat(106)));
    assert!(parse(&fits).is_ok());

    let heads = problems_with("http: { max_head: 8KiB, max_target: 16KiB }\n");
    assert_eq!(heads.len(), 1);
    assert!(heads[0].contains("http.max_target: is larger than `max_head`"));
}

#[test]
fn unrecorded_service_has_a_name_that_says_so() {
    let with = |policy: &str| {
        MINIMAL.replace("durability: written", &format!("durability: written, on_unavailable: {policy}"))
    };
    let config = parse(&with("serve_unrecorded")).unwrap();
    assert_eq!(config.audit.on_unavailable, OnUnavailable::ServeUnrecorded);
    let problem = parse(&with("drop")).unwrap_err().to_string();
    assert!(problem.contains("audit.on_unavailable: `drop` is called `serve_unrecorded`"), "{problem}");
}

#[test]
fn upgrade_is_refused_over_http2() {
    let http2 = MINIMAL.replace("endpoints: [http://127.0.0.1:8081]", "endpoints: [http://h:1]\n  protocol: http2");
    assert!(parse(&http2).is_ok());
    let routes = "routes: [{ name: a, path: /, upgrade: [websocket] }]\n";
    let problem = parse(&format!("{http2}{routes}")).unwrap_err().to_string();
    assert!(problem.contains("routes: `upgrade` needs HTTP/1 to the upstream"), "{problem}");
    let config = parse(&format!("{MINIMAL}{routes}")).unwrap();
    assert_eq!(config.routes[0].upgrade, ["websocket"]);
}

#[test]
fn unknown_blocks_are_errors() {
    assert!(problems_with("identity: { user: X-User }\n")[0].contains("identity: is not a known key"));
}

#[test]
fn listener_roles_are_read() {
    let only = MINIMAL.replace("address: 127.0.0.1:8080", "address: 127.0.0.1:8080\n    serves: dashboard");
    let problem = parse(&only).unwrap_err().to_string();
    assert!(problem.contains("needs a block `session`") && problem.contains("nothing but the dashboard"), "{problem}");
    let management = |address: &str| format!("- {{ address: '{address}', serves: management }}");
    let with = |address: &str| MINIMAL.replacen("listen:\n", &format!("listen:\n  {}\n", management(address)), 1);
    assert!(parse(&with("127.0.0.1:9443")).is_ok());
    let problem = parse(&with("0.0.0.0:9443")).unwrap_err().to_string();
    assert!(problem.contains("serves: management needs `tls` unless the address is of loopback"), "{problem}");
}

#[test]
fn routes_are_checked() {
    let routes = "routes:
  - { name: a, path: 'x' }
  - { name: b, methods: [get], path: / }
  - { name: c, path: '/a//b' }
  - { name: d, path: '/a/{id' }
  - { name: e, path: '/**/a' }
  - { name: f, path: '/a/..' }
  - { name: g, path: '/a**' }
  - { name: 'h i', path: /a }
  - { name: j, path: /a, permission: A }
  - { name: k, methods: [GET, PUT], path: '/k/{id}' }
  - { name: l, methods: [PUT], path: '/k/{other}' }
  - { name: k, methods: [GET], path: '/m/**' }
  - { name: n, path: /n, upgrade: [h2c] }
  - { name: o, path: /o, upgrade: ['HTTP/2.0'] }
  - { name: p, path: /p, upgrade: ['a, b'] }
  - { name: q, path: '/q%' }
  - { name: r, path: '/%72/{id}' }
  - { name: s, path: '/s%2Ft/**' }
  - { name: t, path: '/t;u' }
  - { name: u, path: '/%E9' }
  - { name: v, path: '/things:purge' }
  - { name: w, path: '/things%3Apurge' }
  - { name: x, path: '/%c3%a9/**', strip_prefix: '/%C3%A9' }
";
    let problems = problems_with(routes);
    let faults = [
        "does not begin",
        "mean GET?",
        "empty segment",
        "brace within",
        "elsewhere than in a last",
        "dot segment",
        "elsewhere than in a last",
        "not a route's name",
        "is not a permission",
        "route `k` is for the same method and path",
        "the name `k` is another route's",
        "past the gateway",
        "past the gateway",
        "not the name of a protocol",
        "without two hexadecimal digits",
        "needs none; write the character",
        "which needs `encoded_slash: pass`",
        "has a `;`",
        "no UTF-8",
        "route `v` is for the same method and path",
    ];
    assert_eq!(problems.len(), faults.len(), "{problems:#?}");
    for (problem, fault) in problems.iter().zip(faults) {
        assert!(problem.contains(fault), "{problem} should say {fault}");
    }
}

#[test]
fn proxies_and_endpoints_are_read() {
    let config = parse(&format!("{MINIMAL}trusted_proxies: [10.0.0.0/8, '::1', 192.0.2.7]\n")).unwrap();
    let networks: Vec<String> = config.trusted_proxies.iter().map(ToString::to_string).collect();
    assert_eq!(networks, ["10.0.0.0/8", "::1/128", "192.0.2.7/32"]);
    for (mapped, meant) in [("::ffff:127.0.0.1", "127.0.0.1"), ("::ffff:10.0.0.0/104", "10.0.0.0/8")] {
        let problems = problems_with(&format!("trusted_proxies: ['{mapped}', '::/0']\n"));
        assert!(problems.len() == 1 && problems[0].ends_with(&format!("did you mean {meant}?")), "{problems:?}");
    }
    assert!(problems_with("trusted_proxies: [10.1.0.0/8]\n")[0].contains("did you mean 10.0.0.0/8?"));

    let config = parse(&MINIMAL.replace("http://127.0.0.1:8081", "'http://[::1]:8081', 'http://store'")).unwrap();
    let [v6, named] = &config.upstreams[0].settings.endpoints[..] else { panic!("two endpoints") };
    assert_eq!((v6.host.as_str(), v6.port, v6.authority.as_str()), ("::1", 8081, "[::1]:8081"));
    assert_eq!((named.host.as_str(), named.port, named.authority.as_str()), ("store", 80, "store:80"));
    assert!(parse(&MINIMAL.replace("127.0.0.1:8081", "127.0.0.1:8081/api")).is_err());
}

#[test]
fn units_are_read_and_checked() {
    let blocks = "timeouts: { head: 250ms, drain: 1m30s }\nhttp: { max_head: 65536, max_body: 2MiB }\n";
    let config = parse(&format!("{MINIMAL}{blocks}")).unwrap();
    assert_eq!(config.transport.head_timeout, Duration::from_millis(250));
    assert_eq!(config.drain, Duration::from_secs(90));
    assert_eq!((config.transport.max_head, config.transport.max_body), (65_536, 2 << 20));
    assert_eq!(config.transport.keep_alive_timeout, Duration::from_secs(75));
    assert!(problems_with("http: { max_body: 1GB }\n")[0].contains("is not a size"));
    assert!(problems_with("timeouts: { head: 0s }\n")[0].contains("0s is out of range; give 1ms to 1d"));
}

/// Reads `secret` from a file of one line.
fn secret(directory: &Path, written: &str) -> Result<Secret, SettingsErrors> {
    let document = Document::parse(&directory.join("x.yaml"), &format!("secret: {written}\n")).unwrap();
    assert!(!format!("{document:?}").contains("hunter2"));
    document.read(|section: &mut Section<'_>| section.required("secret", |value| value.secret()))
}

#[test]
fn secrets_are_inline_or_in_files_or_variables_and_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("token");
    for (content, kept) in
        [("hunter2", "hunter2"), ("hunter2\n", "hunter2"), ("hunter2\r\n", "hunter2"), (" x \n", " x ")]
    {
        std::fs::write(&path, content).unwrap();
        assert_eq!(secret(directory.path(), "{ file: token }").unwrap().expose(), kept);
    }
    assert_eq!(secret(directory.path(), "hunter2").unwrap().expose(), "hunter2");
    assert_eq!(secret(directory.path(), "{ env: CARGO_PKG_NAME }").unwrap().expose(), "keygate");
    assert_eq!(format!("{:?}", secret(directory.path(), "hunter2").unwrap()), "Secret(…)");

    std::fs::write(&path, "\n").unwrap();
    let refused = |written| secret(directory.path(), written).unwrap_err().to_string();
    assert!(refused("{ file: token }").ends_with("x.yaml:1:17: secret.file: holds an empty secret"));
    assert!(refused("{ file: none }").contains("cannot be read"));
    assert!(refused("{ env: KEYGATE_NO_SUCH }").contains("KEYGATE_NO_SUCH is not set"));
    assert!(refused("{ file: token, env: HOME }").contains("or {file: …}, or {env: …}"));
    assert!(refused("{}").contains("give the secret itself"));
    assert!(!refused("[hunter2]").contains("hunter2"));
}

#[test]
fn strict_quota_leaves_room_for_an_inflow() {
    let key =
        |block: &str| MINIMAL.replace("key: { requests: 1000, per: 1h, burst: 1000 }", &format!("key: {{ {block} }}"));
    let quota = |block: &str| parse(&key(block)).map(|config| config.state.defaults().quota);
    let strict = quota("strict: true").unwrap();
    assert_eq!((strict.requests, strict.burst, strict.strict, strict.inflow()), (1000, 100, true, 901));
    let chosen = quota("requests: 60, per: 1m, burst: 20, strict: true").unwrap();
    assert_eq!((chosen.requests, chosen.burst, chosen.inflow()), (60, 20, 41));
    assert_eq!(quota("strict: false").unwrap(), Quota::DEFAULT);
    let error = quota("requests: 60, burst: 60, strict: true").unwrap_err().to_string();
    assert!(error.contains("limits.key.burst") && error.contains("must be less than requests"), "{error}");
}

#[test]
fn plans_have_the_bounds_of_limits_and_names_that_are_there() {
    let with = |plans: &str, plan: &str| {
        let text = MINIMAL.replace("limits:", &format!("{plans}\nlimits:{plan}"));
        parse(&text).map(|config| config.state.defaults()).map_err(|error| error.to_string())
    };
    let free = "plans: { free: { requests: 10, per: 1m }, pro: { requests: 50, per: 1h, burst: 5, concurrent: 3 } }";
    let defaults = with(free, "\n  plan: free").unwrap();
    let names: Vec<&str> = defaults.plans.names().map(|name| name.as_str()).collect();
    assert_eq!(names, ["free", "pro"]);
    let limits = defaults.limits_of(None, GivenPlans::default());
    let quota = Quota { requests: 10, per: Duration::from_secs(60), burst: 10, strict: false };
    assert_eq!((limits.quota, limits.level, limits.concurrent), (quota, LimitLevel::Plan, None));
    let pro = "pro".parse().unwrap();
    let limits = defaults
        .limits_of(None, GivenPlans { key: GivenPlan { plan: Some(&pro), budget: None }, ..GivenPlans::default() });
    assert_eq!((limits.quota.burst, limits.concurrent), (5, Some(3)));
    assert_eq!(with("", "").unwrap().plans, LimitPlans::NONE);
    for (plans, plan, reason) in [
        (free, "\n  plan: fre", "limits.plan: `fre` is not a plan of `plans`; did you mean `free`?"),
        ("", "\n  plan: free", "limits.plan: names a plan, and the file has no `plans`"),
        ("plans: { free: { requests: 10 } }", "", "plans.free.per: is required"),
        ("plans: { free: { per: 1h } }", "", "plans.free.requests: is required"),
        ("plans: { free: { requests: 0, per: 1h } }", "", "plans.free.requests: 0 is out of range"),
        ("plans: { free: { requests: 10, per: 1h, quota: 1 } }", "", "plans.free.quota"),
        ("plans: { free: { requests: 10, per: 1h, concurrent: 0 } }", "", "plans.free.concurrent"),
        ("plans: { a b: { requests: 10, per: 1h } }", "", "is not the name of a plan: up to 40 of letters"),
        ("plans: { free: { requests: 9, per: 1h, burst: 9, strict: true } }", "", "must be less than requests"),
    ] {
        let error = with(plans, plan).unwrap_err();
        assert!(error.contains(reason), "{plans}{plan}: {error}");
        assert!(!error.contains("limits.plan") || reason.contains("limits.plan"), "one error for one mistake: {error}");
    }
}

#[test]
fn route_costs_no_more_than_the_burst_of_each_plan() {
    let plans = "plans: { free: { requests: 10, per: 1m }, pro: { requests: 50, per: 1h } }";
    let route = |cost: u32| format!("{plans}\nroutes: [{{ name: report, path: /x, cost: {cost} }}]\n");
    assert!(parse(&format!("{MINIMAL}{}", route(10))).is_ok());
    let problems = problems_with(&route(20));
    let expected =
        "`report` costs 20, more than the burst of `plans.free` (10); lower `cost`, or raise `plans.free.burst`";
    assert!(problems.len() == 1 && problems[0].contains(expected), "{problems:?}");
    assert_eq!(problems_with(&route(2000)).len(), 3, "that of `limits.key` and of both plans");
}

#[test]
fn only_spoofable_fields_can_be_let_through() {
    let upstream = |fields: &str| {
        let block = format!("  endpoints: [http://127.0.0.1:8081]\n  pass_fields: [{fields}]");
        parse(&MINIMAL.replace("  endpoints: [http://127.0.0.1:8081]", &block))
    };
    assert!(upstream("X-Real-IP, x-envoy-attempt-count").is_ok());
    for (field, reason) in [
        ("X-User-Id", "is set by the gateway"),
        ("Remote-User", "names the caller"),
        ("HTTP2-Settings", "one connection only"),
        ("Accept", "is forwarded anyway"),
        ("X_Real_IP", "is not the name of a field"),
    ] {
        let error = upstream(field).unwrap_err().to_string();
        assert!(error.contains("upstream.pass_fields[0]") && error.contains(reason), "{field}: {error}");
        assert!(error.contains(":8:"), "the line: {error}");
    }
}

#[test]
fn retries_and_bounds_of_the_upstream_are_read() {
    let upstream = |blocks: &str| {
        let text = MINIMAL.replace(
            "  endpoints: [http://127.0.0.1:8081]\n",
            &format!("  endpoints: [http://127.0.0.1:8081]\n{blocks}"),
        );
        parse(&text)
    };
    let given = "  retries: { budget: 0, attempts: 5, per_try_timeout: 2s, statuses: [502, 504], max_body: 0B }\n  \
                 limits: { requests: 7 }\n";
    let settings = upstream(given).unwrap().upstreams.remove(0).settings;
    let retries = settings.retries;
    assert_eq!((retries.budget, retries.attempts, retries.max_body), (0, 5, 0));
    assert_eq!((retries.per_try_timeout, settings.max_requests), (Some(Duration::from_secs(2)), Some(7)));
    let statuses = retries.statuses;
    assert_eq!((statuses.bad_gateway, statuses.unavailable, statuses.gateway_timeout), (true, false, true));
    let default = upstream("").unwrap().upstreams.remove(0).settings;
    assert_eq!((default.retries.budget, default.retries.attempts, default.retries.max_body), (20, 2, 64 * 1024));
    assert_eq!((default.retries.per_try_timeout, default.max_requests), (None, None));
    for wrong in [
        "budget: 101",
        "attempts: 0",
        "attempts: 6",
        "statuses: [500]",
        "per_try_timeout: 0s",
        "max_body: 17MiB",
        "on: true",
    ] {
        assert!(upstream(&format!("  retries: {{ {wrong} }}\n")).is_err(), "{wrong}");
    }
    assert!(upstream("  limits: { requests: 0 }\n").is_err());
}

/// A check that compares each endpoint with all others takes minutes.
#[test]
fn configuration_of_fifty_thousand_endpoints_is_checked_in_about_a_second() {
    let endpoints = |count: u32| -> String {
        let endpoint = |n: u32| format!("    - http://10.{}.{}.{}:80\n", n >> 16, n >> 8 & 255, n & 255);
        (0..count).map(endpoint).collect()
    };
    let text = |count| {
        MINIMAL.replace("  endpoints: [http://127.0.0.1:8081]\n", &format!("  endpoints:\n{}", endpoints(count)))
    };
    let begun = std::time::Instant::now();
    let config = parse(&text(50_000)).unwrap();
    let taken = begun.elapsed();
    assert_eq!(config.upstreams[0].settings.endpoints.len(), 50_000);
    // With work that grows with the square of their number it would be hours.
    assert!(taken < 6 * lenient(Duration::from_secs(1)), "{taken:?}");
    let twice = text(50_000).replace("http://10.0.195.79:80", "http://10.0.0.0:80");
    assert!(parse(&twice).unwrap_err().to_string().contains("is listed already"));
}
