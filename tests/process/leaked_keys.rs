//! Keys that were leaked: found by id, by the whole key and by its SHA-256 among 100,000 keys, and revoked.

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use domain::clock::{self, Micros};
use domain::identity::{OrgId, UserId};
use domain::key::{KeyDigest, KeyId, OrgTag, PlainKey};
use domain::quota::Quota;
use state::migration::file::Writer;
use state::{Key, KeyActors, KeyExport, Org, StateRecord, User, UserExport, bucket::Bucket};

use super::reload::ok;
use crate::support::redis::Redis;
use crate::support::{Response, Setup, lenient};

/// Keys of the organization.
const KEYS: usize = 100_000;
/// Time of a look-up by the id, over the processes that it takes.
const LOOK_UP: Duration = Duration::from_millis(50);
/// Time in which a page of the list is shown.
const LIST: Duration = Duration::from_millis(150);
/// A key of another system.
const OTHER: &str = "legacy-7f3a";

/// Installation with many keys, and the oldest of them.
struct Installation {
    setup: Setup,
    oldest: PlainKey,
}

impl Installation {
    fn new(state: &str) -> Self {
        let upstream = ok();
        let setup = Setup::with_state(upstream.address, state, "session: { origin: http://127.0.0.1:8080 }");
        let tag = OrgTag::generate().unwrap();
        let oldest = PlainKey::generate(KeyId::generate(tag).unwrap()).unwrap();
        let file = setup.path().join("keys.jsonl");
        fs::write(&file, export(tag, &oldest)).unwrap();
        setup.ok(&["state", "import", file.to_str().unwrap()]);
        Self { setup, oldest }
    }

    /// Runs a command with this text as its standard input; returns its exit code and all that it printed.
    fn run(&self, arguments: &[&str], input: &str) -> (i32, String) {
        let output = self.setup.keygate_reading(arguments, input);
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    }
}

/// An export of an organization with an administrator and so many keys, each a second younger than the one before.
fn export(tag: OrgTag, oldest: &PlainKey) -> Vec<u8> {
    let (org, user) = (OrgId::generate(), UserId::generate());
    let created = clock::now().before(Duration::from_secs(200_000));
    let record = Org::new(org, tag, "acme", created);
    let permissions = vec!["org:admin".parse().unwrap()];
    let owner = User { permissions, ..User::new(user, org, "ada@example.com", created) };
    let mut records = vec![StateRecord::Org(record)];
    records.push(StateRecord::User(Box::new(UserExport { user: owner, creation: None })));
    // Of so many ids two are the same now and then, and a file with an id twice is refused.
    let mut taken = HashSet::from([oldest.id()]);
    let mut new_id = || loop {
        let id = KeyId::generate(tag).unwrap();
        if taken.insert(id) {
            return id;
        }
    };
    records.extend((0..KEYS).map(|number| {
        let id = if number == 0 { oldest.id() } else { new_id() };
        let digest = if number == 0 { oldest.digest() } else { KeyDigest::of(id.as_bytes()) };
        let key = Key::new(id, org, user, format!("key {number}"), Micros(created.0 + number as u64 * 1_000_000));
        let bucket = Bucket::full(Quota::DEFAULT, created);
        let quota = Quota::DEFAULT;
        let export = KeyExport {
            key,
            digest,
            previous: None,
            replaced: Vec::new(),
            bucket,
            quota,
            actors: KeyActors::default(),
        };
        StateRecord::Key(Box::new(export))
    }));
    let (mut writer, mut text) = Writer::begin(created, "embedded");
    text.extend(writer.lines(&records));
    text.extend(writer.end());
    text
}

/// The cookie of an administrator's session.
pub(super) fn sign_in(setup: &Setup) -> String {
    let link = setup.ok(&["session", "link", "--org", "acme", "ada@example.com"]);
    let path = link.split_once("127.0.0.1:8080").unwrap().1.split_whitespace().next().unwrap().to_owned();
    let signed_in = setup.client().request("POST", &path, "", &[("Sec-Fetch-Site", "same-origin")], b"");
    assert_eq!(signed_in.status, 303, "{signed_in:?}");
    signed_in.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

/// Searches as the form of the dashboard does; returns the address that it leads to, and the page.
fn search(setup: &Setup, cookie: &str, text: &str) -> (String, Response) {
    let form = form_urlencoded::Serializer::new(String::new()).append_pair("q", text).finish();
    let fields =
        [("Sec-Fetch-Site", "same-origin"), ("Cookie", cookie), ("Content-Type", "application/x-www-form-urlencoded")];
    let led = setup.client().request("POST", "/settings/keys", "", &fields, form.as_bytes());
    assert_eq!(led.status, 303, "{led:?}");
    let address = led.header("location").unwrap().to_owned();
    let page = setup.client().request("GET", &address, "", &fields[..2], b"");
    assert_eq!(page.status, 200);
    (address, page)
}

fn find_and_revoke(installation: &Installation, what: &str) {
    let Installation { setup, oldest } = installation;
    let gateway = setup.start();
    let (id, secret, hex) = (oldest.id(), oldest.expose().expose(), oldest.digest().to_hex());

    // On the command line.
    let begun = Instant::now();
    let found = setup.ok(&["key", "find", id.as_str()]);
    let elapsed = begun.elapsed();
    println!("{what}: keygate key find ID among {KEYS} keys: {elapsed:.1?}");
    assert!(elapsed < lenient(LOOK_UP), "{elapsed:?}");
    assert!(found.contains(id.as_str()) && found.contains("key 0") && found.contains("active"), "{found}");
    for argument in [secret, &hex] {
        assert_eq!(setup.ok(&["key", "find", argument]), found);
        assert_eq!(installation.run(&["key", "find", "--stdin"], &format!("{argument}\n")), (0, format!("{found}\n")));
    }
    let (code, said) = installation.run(&["key", "find", "--stdin"], OTHER);
    assert!(code == 1 && said.starts_with("keygate: no key has or had this secret or SHA-256;"), "{said}");

    // In the dashboard.
    let cookie = sign_in(setup);
    for text in [id.as_str(), secret, &hex] {
        let begun = Instant::now();
        let (address, page) = search(setup, &cookie, text);
        let elapsed = begun.elapsed();
        println!("{what}: search in the dashboard among {KEYS} keys: {elapsed:.1?}");
        assert!(elapsed < lenient(LOOK_UP), "{elapsed:?}");
        let page = String::from_utf8(page.body).unwrap();
        assert!(page.contains("1 key found, newest first") && page.contains(">key 0</a>"), "{page}");
        assert!(!address.contains(&secret[18..40]) && !page.contains(&secret[18..40]), "{address}");
    }
    let (_, page) = search(setup, &cookie, &KeyDigest::of(b"no key").to_hex());
    assert!(String::from_utf8(page.body).unwrap().contains("No key matches"));
    lists_are_fast(setup, &cookie, what);
    let (address, _) = search(setup, &cookie, &secret[..40]);
    assert!(!address.contains(&secret[18..40]), "a part of a secret is one: {address}");
    let (address, _) = search(setup, &cookie, "key 99999");
    assert_eq!(address, "/settings/keys?q=key+99999");

    // A key of another format is found by its SHA-256 alone, and neither is seen in what is printed.
    let import = ["key", "import", "--org", "acme", "--user", "ada@example.com", "--sha256"];
    setup.ok(&[&import[..], &[&KeyDigest::of(OTHER.as_bytes()).to_hex(), "old"]].concat());
    let (address, page) = search(setup, &cookie, OTHER);
    assert!(!address.contains(OTHER) && String::from_utf8(page.body).unwrap().contains(">old</a>"), "{address}");
    let (code, revoked) = installation.run(&["key", "revoke", "--stdin"], OTHER);
    assert!(code == 0 && revoked.contains("old") && revoked.contains("revoked"), "{revoked}");
    let begun = Instant::now();
    let (code, revoked) = installation.run(&["key", "revoke", "--stdin"], secret);
    println!("{what}: keygate key revoke --stdin among {KEYS} keys: {:.1?}", begun.elapsed());
    assert!(code == 0 && revoked.contains("key 0") && revoked.contains("revoked"), "{revoked}");
    assert_eq!(setup.client().get("/", secret).status, 401);

    // Lists.
    let list = |filter: &[&str]| setup.ok(&[&["key", "list"], filter].concat());
    let revoked = list(&["--state", "revoked"]);
    assert!(revoked.contains(id.as_str()) && revoked.contains("ORG") && revoked.lines().count() == 3, "{revoked}");
    let named = list(&["--org", "acme", "--name", "KEY 9999", "--user", "ADA@example.com"]);
    assert_eq!(named.lines().count(), 12, "{named}");
    assert!(list(&["--org", "acme", "--name", "key 12345", "--unused-for", "1h"]).contains("key 12345"));
    assert!(list(&["--org", "acme", "--name", "key 99999", "--unused-for", "60h"]).is_empty());
    gateway.stop();
}

/// The list says how many keys there are, as far as it has looked, and is never sorted in part.
fn lists_are_fast(setup: &Setup, cookie: &str, what: &str) {
    let sorted_by_creation_only = ". A list of more than 10,000 keys is sorted by creation only";
    for (query, summary) in [
        ("", "100,000 keys, newest first"),
        ("?sort=created", "100,000 keys, oldest first"),
        ("?q=key+9", "More than 1,000 keys found, newest first"),
        ("?q=key+1", "Not all keys counted, newest first"),
    ] {
        let begun = Instant::now();
        let page = setup.client().request("GET", &format!("/settings/keys{query}"), "", &[("Cookie", cookie)], b"");
        let elapsed = begun.elapsed();
        println!("{what}: /settings/keys{query} of {KEYS} keys: {elapsed:.1?}");
        assert!(elapsed < lenient(LIST), "{query}: {elapsed:?}");
        let page = String::from_utf8(page.body).unwrap();
        assert!(page.contains(&format!("{summary}{sorted_by_creation_only}")), "{query}: {page}");
    }
    let sorted = setup.client().request("GET", "/settings/keys?sort=name", "", &[("Cookie", cookie)], b"");
    assert_eq!(sorted.status, 409, "{sorted:?}");
}

#[test]
fn oldest_of_many_keys_is_found_and_revoked() {
    find_and_revoke(&Installation::new("{ embedded: { path: state.db } }"), "embedded");
}

#[test]
fn oldest_of_many_keys_is_found_and_revoked_on_redis() {
    let server = Redis::start();
    let state = format!("{{ redis: {{ url: 'redis://127.0.0.1:{}', deadline: 2s }} }}", server.port());
    find_and_revoke(&Installation::new(&state), "Redis");
}
