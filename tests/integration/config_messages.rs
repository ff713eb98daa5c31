//! Messages of the usual mistakes in a configuration file: `messages.txt` has what is written and what is answered.
//!
//! `KEYGATE_RENEW=1 cargo test --test integration config_messages` writes the table anew, so that a change of a message
//! shows in the diff.

use std::fmt::Write as _;
use std::path::Path;

use keygate::config::Config;

/// The table.
const TABLE: &str = "tests/integration/config_messages/messages.txt";

/// A complete file, in which each mistake is made by itself.
const FILE: &str = "\
listen:
  - address: 127.0.0.1:8080
admin:
  socket: data/admin.sock
  address: 127.0.0.1:9464
upstream:
  endpoints: [http://127.0.0.1:8081]
state:
  embedded: { path: data/state.db }
limits:
  key: { requests: 1000, per: 1h }
  org: { concurrent: 100 }
routes:
  - { name: reports, methods: [GET], path: /reports/**, permission: 'reports:read' }
audit: { path: data/audit, durability: written }
";

/// The part of the file from the first listener to the first endpoint.
const LISTENER_AND_UPSTREAM: &str = "127.0.0.1:8080
admin:
  socket: data/admin.sock
  address: 127.0.0.1:9464
upstream:
  endpoints: [http://127.0.0.1:8081]";

/// A mistake: its title, the text of the file that it replaces (none: it is added at the end), and the text written.
type Mistake = (&'static str, &'static str, &'static str);

/// Mistakes of YAML, and of the file as a whole.
const YAML: &[Mistake] = &[
    ("tab as indentation", "  socket: data/admin.sock", "\tsocket: data/admin.sock"),
    ("unclosed list", "[http://127.0.0.1:8081]", "[http://127.0.0.1:8081"),
    ("no space after the colon", "durability: written", "durability:written"),
    ("wrong indentation", "  address: 127.0.0.1:9464", " address: 127.0.0.1:9464"),
    ("unclosed quotation", "path: data/audit", "path: \"data/audit"),
    ("alias", "data/state.db }", "&state data/state.db }\ngateway: *state"),
    ("tag", "requests: 1000", "requests: !!int 1000"),
    ("second document", "", "---\ngateway: other\n"),
    ("list as the file", FILE, "- listen\n"),
    ("empty file", FILE, ""),
    ("key given twice", "per: 1h", "per: 1h, per: 2h"),
    ("block given twice", "", "admin: { socket: other.sock }\n"),
    ("merge key", "embedded: { path", "embedded: { <<: {}, path"),
];

/// Mistakes of keys and of kinds of values.
const KINDS: &[Mistake] = &[
    ("misspelled block", "limits:", "limit:"),
    ("misspelled key", "requests: 1000", "request: 1000"),
    ("hyphen in a key", "", "http: { max-head: 16KiB }\n"),
    ("key of another program", "", "identity: { user: X-User }\n"),
    ("key in the wrong block", "durability: written", "durability: written, max_head: 1KiB"),
    ("required block is missing", "audit: { path: data/audit, durability: written }\n", ""),
    ("required key is missing", "path: data/audit, ", ""),
    ("value is missing", "path: data/audit", "path:"),
    ("list instead of a value", "durability: written", "durability: [written]"),
    ("block instead of a value", "requests: 1000", "requests: { of: 1000 }"),
    ("value instead of a list", "[http://127.0.0.1:8081]", "http://127.0.0.1:8081"),
    ("cost above the burst", "/reports/**,", "/reports/**, cost: 1001,"),
    ("cost of the response without a budget", "/reports/**,", "/reports/**, cost: { at_most: 8000, from: X-Cost },"),
    ("cost of a response that says it nowhere", "/reports/**,", "/reports/**, cost: { at_most: 8000 },"),
    ("member of no document", "/reports/**,", "/reports/**, cost: { at_most: 8, from_body: usage total },"),
    ("marker that looks like a key", "", "credentials: { websocket_protocol: keygate.key.v1 }\n"),
    ("cost of nothing", "/reports/**,", "/reports/**, cost: 0,"),
    ("value instead of a block", "limits:\n  key: { requests: 1000, per: 1h }", "limits:\n  key: 1000"),
    ("list instead of a block", "admin:\n  socket:", "admin:\n  - socket:"),
    ("yes for true", "", "session: { origin: 'https://a.example', links: yes }\n"),
    ("word of another choice", "durability: written", "durability: fsync"),
    ("former name of a choice", "durability: written", "on_unavailable: drop"),
    ("several mistakes in one block", "requests: 1000, per: 1h", "requests: 0, per: 1, bursts: 5"),
    ("mistakes in several blocks", "path: data/state.db }\nlimits:", "paths: data/state.db }\nlimits:\n  keys: {}"),
    ("mistakes in several items", "127.0.0.1:8080", "localhost\n  - address: 1\n  - { adress: '127.0.0.1:8080' }"),
];

/// Mistakes of numbers and units.
const NUMBERS: &[Mistake] = &[
    ("duration without a unit", "per: 1h", "per: 3600"),
    ("duration with a fraction", "per: 1h", "per: 1.5h"),
    ("duration with a word", "", "timeouts: { head: 10 seconds }\n"),
    ("duration out of range", "", "timeouts: { drain: 2d }\n"),
    ("size of a decimal unit", "", "http: { max_body: 10MB }\n"),
    ("size out of range", "", "http: { max_head: 1KiB }\n"),
    ("size with a comma", "", "http: { max_body: '1,000' }\n"),
    ("negative number", "requests: 1000", "requests: -1"),
    ("number with an underscore", "requests: 1000", "requests: 1_000"),
    ("number out of range", "", "workers: 0\n"),
    ("word instead of a number", "", "workers: auto\n"),
    ("number with a unit", "requests: 1000", "requests: 1000/h"),
    ("quota that is too large to compute", "per: 1h", "per: 366d, burst: 1000000000"),
    ("burst above a strict quota", "per: 1h", "per: 1h, burst: 1000, strict: true"),
    ("part that is larger than the whole", "", "http: { max_head: 8KiB, max_target: 16KiB }\n"),
];

/// Mistakes of addresses.
const ADDRESSES: &[Mistake] = &[
    ("address without a port", "127.0.0.1:8080", "127.0.0.1"),
    ("name as an address", "127.0.0.1:8080", "localhost:8080"),
    ("port alone", "127.0.0.1:8080", ":8080"),
    ("port out of range", "127.0.0.1:8080", "127.0.0.1:80800"),
    ("address given twice", "127.0.0.1:8080", "127.0.0.1:8080\n  - address: 127.0.0.1:8080"),
    ("address of metrics taken by `listen`", "127.0.0.1:9464", "127.0.0.1:8080"),
    ("address of metrics without a port", "127.0.0.1:9464", "0.0.0.0"),
    ("IPv6 address without a port", "127.0.0.1:8080", "'::1'"),
    ("address of metrics for every network", "127.0.0.1:9464", "0.0.0.0:9464"),
    (
        "path of a socket that is too long",
        "data/admin.sock",
        "/var/lib/keygate/of/a/very/long/path/that/no/socket/can/\
         ever/have/because/the/system/keeps/few/bytes/for/it/admin.sock",
    ),
    ("endpoint without a scheme", "http://127.0.0.1:8081", "127.0.0.1:8081"),
    ("endpoint with a path", "http://127.0.0.1:8081", "http://127.0.0.1:8081/api"),
    ("page of errors with a fragment", "", "problems: { base: 'https://docs.example/errors#rate_limited' }\n"),
    ("page of errors without a scheme", "", "problems: { base: docs.example/errors }\n"),
    ("endpoint given twice", "[http://127.0.0.1:8081]", "[http://b:1, http://b:1]"),
    ("no endpoints", "[http://127.0.0.1:8081]", "[]"),
    ("endpoint that is a listener", "http://127.0.0.1:8081", "http://127.0.0.1:8080"),
    ("endpoint that is a listener, by name", "http://127.0.0.1:8081", "http://localhost:8080"),
    ("endpoint that is a listener of every network", "127.0.0.1:8080", "0.0.0.0:8081"),
    (
        "endpoint of IPv6 beside a listener of IPv4",
        LISTENER_AND_UPSTREAM,
        "0.0.0.0:8080\nadmin: { socket: data/admin.sock }\nupstream:\n  endpoints: ['http://[::1]:8080']",
    ),
    (
        "endpoint of IPv4 at a listener of IPv6",
        LISTENER_AND_UPSTREAM,
        "'[::]:8080'\nadmin: { socket: data/admin.sock }\nupstream:\n  endpoints: ['http://127.0.0.1:8080']",
    ),
    (
        "endpoint that is a listener of IPv6",
        LISTENER_AND_UPSTREAM,
        "'[::1]:8080'\nadmin: { socket: data/admin.sock }\nupstream:\n  endpoints: ['http://[::1]:8080']",
    ),
    ("endpoint at the port of a listener on another machine", "http://127.0.0.1:8081", "http://10.0.0.9:8080"),
    ("network with bits beyond its prefix", "", "trusted_proxies: [10.1.0.0/8]\n"),
    ("IPv4 network written as IPv6", "", "trusted_proxies: ['::ffff:10.0.0.0/104']\n"),
    ("name as a network", "", "trusted_proxies: [proxy.internal]\n"),
    ("network of everybody", "", "trusted_proxies: [0.0.0.0/0]\n"),
    ("IPv4 address written as IPv6", "", "trusted_proxies: ['::ffff:10.0.0.1']\n"),
    ("TLS without an encrypted endpoint", "8081]", "8081]\n  tls: { ca: ca.pem }"),
];

/// Mistakes of routes.
const ROUTES: &[Mistake] = &[
    ("method in lower case", "[GET]", "[get]"),
    ("path without a slash", "/reports/**", "reports"),
    ("wildcard of another router", "/reports/**", "/reports/*"),
    ("parameter of another router", "/reports/**", "/reports/:id"),
    ("parameter with an expression", "/reports/**", "'/reports/{id:[0-9]+}'"),
    ("parameter with a hyphen", "/reports/**", "'/reports/{report-id}'"),
    ("parameter with a dot", "/reports/**", "'/reports/{report.id}'"),
    ("parameter without a name", "/reports/**", "'/reports/{}'"),
    ("permission with a capital", "'reports:read'", "Reports:Read"),
    ("upstream without its block", "path: /reports/**", "path: /reports/**, upstream: store"),
    ("prefix that is not the path's", "path: /reports/**", "path: /reports/**, strip_prefix: /api"),
    ("permission of a public route", "path: /reports/**", "path: /reports/**, access: public"),
    ("upgrade past the gateway", "path: /reports/**", "path: /reports/**, upgrade: [h2c]"),
    ("two routes of one path", "audit:", "  - { name: b, methods: [GET], path: /reports/** }\naudit:"),
    ("two routes of one name", "audit:", "  - { name: reports, path: /b }\naudit:"),
    ("route where keys revoke themselves", "audit:", "  - { name: b, path: /v1/self-revoke }\nleaks: {}\naudit:"),
    ("route of reports", "audit:", "  - { name: b, path: /v1/leaks }\nleaks: { github: true }\naudit:"),
    ("reports where keys revoke themselves", "", "leaks: { github: true, path: /v1/self-revoke }\n"),
];

/// Mistakes of files, secrets and other servers.
const OTHERS: &[Mistake] = &[
    (
        "certificate that cannot be read",
        "127.0.0.1:8080",
        "127.0.0.1:8080\n    tls: { certificates: [{ chain: c, key: k }] }",
    ),
    ("secret in a file that cannot be read", "embedded: { path: data/state.db }", "redis: { url: { file: none } }"),
    (
        "secret in a variable that is not set",
        "embedded: { path: data/state.db }",
        "redis: { url: { env: KEYGATE_NONE } }",
    ),
    ("url of another database", "embedded: { path: data/state.db }", "redis: { url: 'postgres://a' }"),
    ("both states", "embedded:", "redis: { url: 'redis://a' }\n  embedded:"),
    ("no state", "  embedded: { path: data/state.db }\n", ""),
    (
        "lease shorter than its deadlines",
        "embedded: { path: data/state.db }",
        "redis: { url: 'redis://a', lease: 1s, deadline: 1s }",
    ),
    ("origin with a path", "", "cors: { origins: ['https://a.example/'] }\n"),
    ("origin of the dashboard without https", "", "session: { origin: 'http://a.example' }\n"),
    ("health check without a path", "8081]", "8081]\n  health: { interval: 5s }"),
    ("retries of another status", "8081]", "8081]\n  retries: { statuses: [500] }"),
    ("credential in a field of the gateway", "", "credentials: { headers: [X-User-Id] }\n"),
    ("sink of two kinds", "written }", "written, ship: [{ files: { path: a }, syslog: { server: 'tls://a' } }] }"),
    ("directory below a file", "path: data/audit", "path: ../Cargo.toml/audit"),
    ("state below a file", "path: data/state.db", "path: ../Cargo.toml/state.db"),
];

#[test]
fn usual_mistakes_are_answered_as_the_table_says() {
    let mut table = String::from("The usual mistakes, and the answers. The test writes it with KEYGATE_RENEW=1.\n");
    for (title, from, to) in [YAML, KINDS, NUMBERS, ADDRESSES, ROUTES, OTHERS].concat() {
        let text = if from.is_empty() { format!("{FILE}{to}") } else { FILE.replacen(from, to, 1) };
        assert!(text != FILE, "{title}: the file has no `{from}`");
        writeln!(table, "\n## {title}").unwrap();
        to.lines().for_each(|line| writeln!(table, "    {}", line.replace('\t', "→")).unwrap());
        match Config::parse(Path::new("tests/keygate.yaml"), &text) {
            Ok(config) => {
                writeln!(table, "accepted").unwrap();
                config.warnings().iter().for_each(|warning| writeln!(table, "warning: {warning}").unwrap());
            }
            Err(errors) => writeln!(table, "{errors}").unwrap(),
        }
    }
    if std::env::var_os("KEYGATE_RENEW").is_some() {
        std::fs::write(TABLE, &table).unwrap();
    }
    let written = std::fs::read_to_string(TABLE).unwrap_or_default();
    let first = table.lines().zip(written.lines()).find(|(new, old)| new != old);
    assert!(table == written, "{TABLE} differs, first at {first:?}; set KEYGATE_RENEW=1 to write it anew");
}
