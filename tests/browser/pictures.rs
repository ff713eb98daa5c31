//! Screenshots of the pages for the documentation: `make screenshots` writes them to `docs/screenshots`.
//!
//! They contain no keys: the key on its page is covered before the screenshot is taken. With `KEYGATE_SCREENSHOTS=DIR`,
//! every page is written to that directory, at every width and in both colour schemes, for review.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::browser::Browser;
use crate::gateway::Gateway;
use crate::page_checks::{SCHEMES, WIDTHS};
use crate::support::free_address;

const ORG: &str = "Acme Analytics";
const ADA: &str = "ada@acme.example";
const GRACE: &str = "grace@acme.example";
const LINUS: &str = "linus@acme.example";

/// The screenshots of the documentation.
const SHOWN: &[(&str, u64, &str)] = &[
    ("overview", 1280, "light"),
    ("keys", 1280, "light"),
    ("keys", 1280, "dark"),
    ("keys", 390, "light"),
    ("key", 1280, "light"),
    ("key", 390, "dark"),
    ("new-key", 1280, "light"),
    ("no-keys", 1280, "dark"),
    ("error", 390, "light"),
    ("provider-away", 390, "dark"),
    ("sign-in", 1280, "light"),
];

/// Realistic keys: owner, name, user agent, number of requests, and number of refused requests.
const KEYS: &[(&str, &str, &str, usize, usize)] = &[
    (GRACE, "Old importer", "importer/0.9", 3, 0),
    (LINUS, "Status page", "curl/8.14.1", 12, 0),
    (ADA, "Terraform", "", 0, 0),
    (GRACE, "Data science notebooks", "python-requests/2.32.5", 9, 0),
    (LINUS, "CI: integration tests", "Go-http-client/2.0", 31, 0),
    (ADA, "Grafana", "Grafana/12.2.1", 46, 0),
    (GRACE, "Mobile app (staging)", "okhttp/5.2.0", 17, 2),
    (LINUS, "Spreadsheet sync", "Google-Apps-Script", 8, 14),
    (GRACE, "Billing export", "node-fetch/3.3.2", 22, 0),
    (ADA, "Nightly warehouse snapshots, Europe", "airflow/3.1.0", 60, 0),
    (ADA, "Ada’s laptop", "curl/8.14.1", 5, 1),
    (LINUS, "Audit of the quarter", "", 0, 0),
];

#[test]
#[ignore = "it writes files of the repository; make screenshots"]
fn screenshots_of_the_pages_are_written() {
    let (gateway, browser) = (Gateway::demo(), Browser::start());
    create_people(&gateway);
    let album = Album::new(&browser);
    sign_in(&gateway, &browser);
    album.take("no-keys");
    let ids = create_keys(&gateway);
    browser.go(&gateway.page("/overview"));
    album.take("overview");
    browser.go(&gateway.page("/keys"));
    album.take("keys");
    browser.go(&gateway.page("/keys?selected=all"));
    browser.click(".menu summary");
    album.take("keys-menu");
    browser.go(&gateway.page(&format!("/keys/{}", ids[7])));
    album.take("key");
    browser.go(&gateway.page(&format!("/keys/{}/policy", ids[7])));
    album.take("policy");
    browser.go(&gateway.page(&format!("/keys/selected?action=disable&key={}&key={}", ids[7], ids[8])));
    album.take("selected");
    browser.go(&gateway.page("/keys/new"));
    browser.click(".rest summary");
    album.take("create");
    browser.go(&gateway.page(&format!("/keys/{}/revoke", ids[6])));
    browser.fill("#name", "Mobile app");
    browser.press("Revoke this key");
    album.take("error");
    browser.go(&gateway.page("/sessions"));
    album.take("sessions");
    browser.go(&gateway.page("/audit"));
    album.take("audit");
    browser.go(&gateway.page("/users"));
    let suspend = browser.script("return document.querySelector('main a.danger').href");
    browser.go(suspend.as_str().unwrap());
    album.take("suspend");
    browser.go(&gateway.page(&format!("/keys/{}/rotate", ids[6])));
    album.take("rotate");
    let (key, _) = gateway.make_key(&browser, "Quarterly report");
    mask_secret(&browser, &key);
    album.take("new-key");
    pictures_of_tokens(&gateway, &browser, &album);
    gateway.end(&browser);

    let provider = format!(
        "  providers:\n    - {{ name: acme, label: Acme Login, issuer: 'http://{}', client_id: keygate }}\n",
        free_address()
    );
    let gateway = Gateway::with_sessions(free_address(), &provider);
    browser.go(&gateway.page("/keys"));
    album.take("sign-in");
    browser.press("Continue with Acme Login");
    album.take("provider-away");
}

fn pictures_of_tokens(gateway: &Gateway, browser: &Browser, album: &Album<'_>) {
    gateway.keygate(&["token", "create", "--org", ORG, "Terraform", "--allow", "keys:read,keys:create,keys:set"]);
    browser.go(&gateway.page("/tokens/new"));
    album.take("create-token");
    browser.press("Create token");
    album.take("create-token-error");
    let id = gateway.make_token(browser, "Pipeline of the warehouse");
    mask_secret(browser, &browser.text("#token"));
    album.take("new-token");
    browser.go(&gateway.page("/tokens"));
    album.take("tokens");
    browser.go(&gateway.page(&format!("/tokens/{id}/revoke")));
    album.take("revoke-token");
}

/// The directory of the screenshots.
struct Album<'a> {
    browser: &'a Browser,
    dir: PathBuf,
    all: bool,
}

impl<'a> Album<'a> {
    fn new(browser: &'a Browser) -> Self {
        let output_dir = std::env::var_os("KEYGATE_SCREENSHOTS");
        let dir = output_dir.as_ref().map_or_else(|| Path::new("docs/screenshots").to_owned(), PathBuf::from);
        fs::create_dir_all(&dir).unwrap();
        Self { browser, dir, all: output_dir.is_some() }
    }

    fn take(&self, name: &str) {
        for (width, scheme) in WIDTHS.into_iter().flat_map(|width| SCHEMES.map(|scheme| (width, scheme))) {
            if self.all || SHOWN.contains(&(name, width, scheme)) {
                self.browser.view(width, scheme);
                let picture = picture(self.browser, width);
                fs::write(self.dir.join(format!("{name}-{width}-{scheme}.png")), picture).unwrap();
            }
        }
    }
}

/// A screenshot of the current page from its top; long pages are cut off, to keep files small.
fn picture(browser: &Browser, width: u64) -> Vec<u8> {
    let height = browser.script("return document.documentElement.scrollHeight").as_u64().unwrap();
    let most = if width > 1000 { 1000 } else { 1200 };
    let clip = json!({ "x": 0, "y": 0, "width": width, "height": height.min(most), "scale": 1 });
    let parameters = json!({ "format": "png", "captureBeyondViewport": true, "optimizeForSpeed": false, "clip": clip });
    let taken = browser.devtools("Page.captureScreenshot", parameters);
    STANDARD.decode(taken["data"].as_str().unwrap()).unwrap()
}

fn create_people(gateway: &Gateway) {
    gateway.keygate(&["org", "create", ORG]);
    let user = ["user", "create", "--org", ORG];
    let read = ["--permission", "queries:read"];
    gateway.keygate(&[&user[..], &[ADA, "--permission", "org:admin"], &read].concat());
    gateway.keygate(&[&user[..], &[GRACE], &read].concat());
    gateway.keygate(&[&user[..], &[LINUS], &read].concat());
}

fn sign_in(gateway: &Gateway, browser: &Browser) {
    browser.go(&gateway.keygate(&["session", "link", "--org", ORG, ADA]));
    browser.click_link_or_submit("main button");
}

/// Creates the keys and sends requests with each; returns their ids.
fn create_keys(gateway: &Gateway) -> Vec<String> {
    let ids: Vec<String> = KEYS
        .iter()
        .map(|(owner, name, agent, requests, refused)| {
            let key = gateway.keygate(&["key", "create", "--org", ORG, "--user", owner, name]);
            let id = key["sk_live_".len()..][..9].to_owned();
            if *refused > 2 {
                let few = requests.to_string();
                gateway.keygate(&["key", "limits", &id, "--requests", &few, "--per", "1h", "--burst", &few]);
                use_key(gateway, &key, agent, "GET", requests + refused);
            } else {
                use_key(gateway, &key, agent, "GET", *requests);
                use_key(gateway, &key, agent, "POST", *refused);
            }
            id
        })
        .collect();
    gateway.keygate(&["key", "revoke", &ids[0]]);
    ids
}

fn use_key(gateway: &Gateway, key: &str, agent: &str, method: &str, times: usize) {
    if times == 0 {
        return;
    }
    let url = format!("{}/api/queries?limit=[1-{times}]", gateway.origin);
    let mut curl = Command::new("curl");
    curl.args(["-s", "-o", "/dev/null", "-X", method, "-A", agent, "-H"]).arg(format!("Authorization: Bearer {key}"));
    assert!(curl.arg(url).status().unwrap().success());
}

/// Replaces the secret of the key or token on the page by dots.
fn mask_secret(browser: &Browser, key: &str) {
    browser.script(
        "for (const code of document.querySelectorAll('#api-key, #curl, #exports, #token')) {
           code.textContent = code.textContent.replace(/(sk_live_|kgm_)\\w+/, '$1' + '•'.repeat(30));
         }",
    );
    assert!(!browser.source().contains(key));
}
