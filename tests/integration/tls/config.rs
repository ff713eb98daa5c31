//! The blocks `tls` of the configuration.

use std::fs;
use std::path::Path;

use keygate::config::Config;
use platform::settings::SettingsErrors;
use platform::tls::{ClientAuth, Version};
use tempfile::TempDir;

use super::authority::Authority;

/// A directory with a certificate and its key, another certificate, and an authority.
fn files() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    authority.certify(&["a.test"]).write(dir.path(), "a");
    authority.certify(&["b.test"]).write(dir.path(), "b");
    authority.write(&dir.path().join("ca.pem"));
    fs::write(dir.path().join("empty"), "").unwrap();
    fs::write(dir.path().join("tickets"), format!("{}\n", uuid::Uuid::new_v4().simple())).unwrap();
    dir
}

fn parse(dir: &Path, listen: &str, upstream: &str) -> Result<Config, SettingsErrors> {
    let text = format!(
        "listen:\n{listen}upstream:\n{upstream}\
         admin: {{ socket: s }}\nstate: {{ embedded: {{ path: p }} }}\naudit: {{ path: a }}\n"
    );
    Config::parse(&dir.join("x.yaml"), &text)
}

const PLAIN: &str = "  - address: 127.0.0.1:8080\n";
const STORE: &str = "  endpoints: [http://127.0.0.1:8081]\n";

/// The problems of a listener whose block `tls` has these lines. The directory is cut from their paths.
fn problems_of(dir: &Path, lines: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("      {line}\n")).collect();
    let problems = parse(dir, &format!("{PLAIN}    tls:\n{lines}"), STORE).unwrap_err();
    problems.to_string().replace(&format!("{}/", dir.display()), "")
}

#[test]
fn listener_tls_is_read_as_configured() {
    let dir = files();
    let listen = "  - address: 127.0.0.1:8443
    tls:
      certificates: [{ chain: a.pem, key: a.key }, { chain: b.pem, key: b.key }]
      client_ca: ca.pem
      client_certificates: optional
      minimum: 1.3
      ticket_key: { file: tickets }
  - address: 127.0.0.1:8444
    tls: { certificates: [{ chain: a.pem, key: a.key }], client_ca: ca.pem }
  - address: 127.0.0.1:8445
    tls: { certificates: [{ chain: a.pem, key: a.key }] }
  - address: 127.0.0.1:8080
";
    let config = parse(dir.path(), listen, STORE).unwrap();
    let [Some(full), Some(asking), Some(least), None] = [0, 1, 2, 3].map(|number| config.listen[number].tls.clone())
    else {
        panic!("three are encrypted: {config:?}")
    };
    let chains: Vec<_> = full.certificates.iter().map(|pair| pair.chain.clone()).collect();
    assert_eq!(chains, [dir.path().join("a.pem"), dir.path().join("b.pem")], "relative to the file");
    let ca = dir.path().join("ca.pem");
    assert_eq!(full.client_auth, Some(ClientAuth { ca: ca.clone(), required: false }));
    assert_eq!(full.minimum, Version::Tls13);
    let key = full.ticket_key.as_ref().unwrap().expose();
    assert_eq!(key.len(), 32);
    assert!(!format!("{config:?}").contains(key));
    assert_eq!(asking.client_auth, Some(ClientAuth { ca, required: true }));
    assert_eq!((least.client_auth, least.minimum, least.ticket_key), (None, Version::Tls12, None));
}

#[test]
fn problems_of_a_listener_have_line_and_column() {
    let dir = files();
    let dir = dir.path();
    let lines = "certificates:
  - { chain: a.pem, key: b.key }
  - { chain: a.pem, key: a.key }
  - { chain: none.pem, key: a.key }
  - { chain: a.pem, key: empty }
  - { chain: a.pem }
client_ca: empty
client_certificates: sometimes
minimum: 1.1
ticket_key: short";
    let expected = "\
x.yaml:5:11: listen[0].tls.certificates[0]: a.pem and b.key do not belong together: \
the key is not that of the first certificate; name its key, and put the certificate before those that certify it
x.yaml:7:11: listen[0].tls.certificates[2]: none.pem cannot be read: No such file or directory (os error 2)
x.yaml:8:11: listen[0].tls.certificates[3]: empty has no private key in it; it must be PEM, and not encrypted
x.yaml:9:11: listen[0].tls.certificates[4].key: is required
x.yaml:10:18: listen[0].tls.client_ca: empty has no certificate in it; it must be PEM, the certificate itself first
x.yaml:11:28: listen[0].tls.client_certificates: `sometimes` is not one of the choices; give required or optional
x.yaml:12:16: listen[0].tls.minimum: `1.1` is not one of the choices; give 1.2 or 1.3
x.yaml:13:19: listen[0].tls.ticket_key: has less than 32 characters; make one with `openssl rand -base64 32`";
    assert_eq!(problems_of(dir, lines), expected);

    let first = problems_of(dir, "certificates: []");
    assert!(first.contains(":4:21: listen[0].tls.certificates: is empty; give at least one"), "{first}");
    let missing = problems_of(dir, "minimum: 1.3");
    assert!(missing.contains("listen[0].tls.certificates: is required"), "{missing}");
    let alone = problems_of(dir, "certificates: [{ chain: a.pem, key: a.key }]\nclient_certificates: optional");
    assert!(alone.contains(":5:28: listen[0].tls.client_certificates: has no effect without `client_ca`"), "{alone}");
    Authority::new().certify(&["192.0.2.1"]).write(dir, "ip");
    let nameless = problems_of(dir, "certificates: [{ chain: a.pem, key: a.key }, { chain: ip.pem, key: ip.key }]");
    assert!(
        nameless.contains("listen[0].tls.certificates: ip.pem holds a certificate without a DNS name"),
        "{nameless}"
    );
}

#[test]
fn endpoint_tls_is_read_as_configured() {
    let dir = files();
    let read = |endpoints: &str, tls: &str| {
        let upstream = format!("  endpoints: [{endpoints}]\n  tls: {{ ca: ca.pem{tls} }}\n");
        parse(dir.path(), PLAIN, &upstream).unwrap().upstreams.remove(0).settings
    };
    let upstream = read("'https://store.test', 'https://[::1]:8443', 'http://plain.test'", "");
    let name = |number: usize| upstream.endpoints[number].tls.as_ref().map(|name| name.to_str().into_owned());
    assert_eq!((name(0).as_deref(), name(1).as_deref(), name(2)), (Some("store.test"), Some("::1"), None));
    assert_eq!((upstream.endpoints[0].port, upstream.endpoints[2].port), (443, 80));
    assert_eq!(upstream.tls.ca, Some(dir.path().join("ca.pem")));
    let named = read("'https://store.test', 'https://192.0.2.1'", ", server_name: other.test");
    let other = |number: usize| named.endpoints[number].tls.as_ref().unwrap().to_str() == "other.test";
    assert!(other(0) && other(1), "{named:?}");
}

#[test]
fn problems_of_the_upstream_have_line_and_column() {
    let dir = files();
    for (upstream, told) in [
        (
            "  endpoints: ['http://b:1']\n  tls: {}\n",
            "5:8: upstream.tls: is given, and no endpoint is encrypted; write",
        ),
        (
            "  endpoints: ['https://b:1']\n  tls: { certificate: a.pem, key: b.key }\n",
            "5:8: upstream.tls: a.pem and b.key do not belong together",
        ),
        ("  endpoints: ['https://b:1']\n  tls: { ca: empty }\n", "5:8: upstream.tls: empty has no certificate in it"),
        ("  endpoints: ['https://b:1']\n  tls: { ca: none }\n", "5:14: upstream.tls.ca: none cannot be read"),
        ("  endpoints: ['https://b:1']\n  tls: { key: a.key }\n", "5:15: upstream.tls.key: has no effect without"),
        (
            "  endpoints: ['https://b:1']\n  tls: { server_name: 'a b' }\n",
            "5:23: upstream.tls.server_name: `a b` is not a DNS name or an IP address",
        ),
        ("  endpoints: ['https://-a:1']\n", "4:15: upstream.endpoints[0]: `https://-a:1/` is not an endpoint such as"),
        ("  endpoints: ['http://b:1', 'https://b:1']\n", "4:29: upstream.endpoints[1]: is listed already; remove one"),
        ("  endpoints: ['https://b/api']\n", "4:15: upstream.endpoints[0]: `https://b/api` is more than scheme"),
    ] {
        let problems = parse(dir.path(), PLAIN, upstream).unwrap_err().to_string();
        let problems = problems.replace(&format!("{}/", dir.path().display()), "");
        assert!(problems.starts_with(&format!("x.yaml:{told}")), "{upstream}: {problems}");
    }
}

/// The shipped file with the blocks `tls` of the listener and of the upstream uncommented.
fn shipped() -> String {
    let text = fs::read_to_string("config/keygate.yaml").unwrap();
    let mut shipped = String::new();
    let mut inside = false;
    for line in text.lines() {
        let opens = matches!(line, "    # tls:" | "  # tls:");
        inside = opens || (inside && line.trim_start().starts_with('#'));
        shipped.push_str(&if inside { line.replacen("# ", "", 1) } else { line.to_owned() });
        shipped.push('\n');
    }
    shipped.replace("http://127.0.0.1:8081", "https://127.0.0.1:8081")
}

#[test]
fn shipped_file_shows_the_defaults_of_tls() {
    let dir = files();
    fs::create_dir(dir.path().join("tls")).unwrap();
    let (a, ca) = (dir.path().join("a"), dir.path().join("ca.pem"));
    for name in ["example.com", "keygate"] {
        fs::copy(a.with_extension("pem"), dir.path().join(format!("tls/{name}.pem"))).unwrap();
        fs::copy(a.with_extension("key"), dir.path().join(format!("tls/{name}-key.pem"))).unwrap();
    }
    for name in ["clients-ca", "upstream-ca"] {
        fs::copy(&ca, dir.path().join(format!("tls/{name}.pem"))).unwrap();
    }
    fs::copy(dir.path().join("tickets"), dir.path().join("tls/ticket-key")).unwrap();
    let shown = Config::parse(&dir.path().join("x.yaml"), &shipped()).unwrap_or_else(|problems| panic!("{problems}"));
    let shown_tls = shown.listen[0].tls.as_ref().unwrap();
    let least =
        "  - address: 127.0.0.1:8080\n    tls: { certificates: [{ chain: a.pem, key: a.key }], client_ca: ca.pem }\n";
    let least = parse(dir.path(), least, STORE).unwrap();
    let least = least.listen[0].tls.as_ref().unwrap();
    assert_eq!(shown_tls.minimum, least.minimum);
    assert_eq!(shown_tls.client_auth.as_ref().unwrap().required, least.client_auth.as_ref().unwrap().required);
    assert!(shown_tls.ticket_key.is_some() && shown.upstreams[0].settings.tls.identity.is_some());
    assert_eq!(shown.upstreams[0].settings.endpoints[0].tls.as_ref().unwrap().to_str(), "store.internal");
}

#[test]
fn shipped_file_shows_every_key_of_tls() {
    let dir = files();
    let shipped = shipped();
    let shown: Vec<&str> = shipped
        .lines()
        .filter_map(|line| line.trim_start_matches([' ', '-']).split_once(':').map(|(key, _)| key))
        .collect();
    // The problem of an unknown key lists all known keys.
    let listener = problems_of(dir.path(), "zzzzzzzzzzzzzzzzzzzz: 1");
    let pair = problems_of(dir.path(), "certificates: [{ zzzzzzzzzzzzzzzzzzzz: 1 }]");
    let upstream = "  endpoints: ['https://b']\n  tls: { zzzzzzzzzzzzzzzzzzzz: 1 }\n";
    let upstream = parse(dir.path(), PLAIN, upstream).unwrap_err().to_string();
    for (problems, least) in [(listener, 5), (pair, 2), (upstream, 4)] {
        let known =
            problems.lines().find_map(|line| line.split_once("known here: ")).expect("the known keys are listed").1;
        let known: Vec<&str> = known.split(", ").collect();
        assert!(known.len() >= least, "{known:?}");
        let hidden: Vec<_> = known.iter().filter(|key| !shown.contains(key)).collect();
        assert!(hidden.is_empty(), "config/keygate.yaml does not show {hidden:?}");
    }
}
