//! Keys whose secrets were made offline: created, rotated and put by their digests, at gateways on both states.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use control::management;
use control::management::{
    ErrorKind, GivenSecret, KeyStatus, Management, ManagementError, NewKey, NewKeyRequest, Org, PolicyUpdate, PutKey,
    Rotation, SecretSource,
};
use domain::clock;
use domain::key::{KeyDigest, KeyId, OrgTag, PlainKey};
use futures_util::future::join_all;

use crate::support::gateway::OPERATOR;
use crate::support::redis::Redis;
use crate::support::{Client, Gateway, Upstream};

const ADA: &str = "ada@example.com";

/// A gateway on one of the two states, with the organizations acme and globex, and Ada in both.
struct Office {
    gateway: Gateway,
    redis: Option<Redis>,
    upstream: Upstream,
}

impl Office {
    fn embedded() -> Self {
        let upstream = Upstream::start();
        Self::new(Gateway::start(&upstream), None, upstream)
    }

    fn on_redis() -> Self {
        let upstream = Upstream::start();
        let redis = Redis::options().appendonly().start();
        Self::new(gateway_on(&redis, &upstream), Some(redis), upstream)
    }

    fn both() -> [Self; 2] {
        [Self::embedded(), Self::on_redis()]
    }

    fn new(gateway: Gateway, redis: Option<Redis>, upstream: Upstream) -> Self {
        for name in ["acme", "globex"] {
            gateway.create_org(name);
            gateway.create_user(name, ADA, &[]);
        }
        Self { gateway, redis, upstream }
    }

    fn org(&self, name: &str) -> Org {
        self.gateway.perform(async |to, now| management::show_org(to, OPERATOR, name, now).await)
    }

    /// A key that is made offline for an organization.
    fn offline_key(&self, org: &str) -> PlainKey {
        offline_key(self.org(org).tag)
    }

    fn create(&self, key: &PlainKey) -> NewKey {
        self.try_create("acme", key.id(), key).unwrap()
    }

    /// Creates a key with this id and this secret.
    fn try_create(&self, org: &str, id: KeyId, secret: &PlainKey) -> Result<NewKey, ManagementError> {
        self.gateway.try_perform(async |to, now| {
            let given = GivenSecret::new(id, &secret.digest().to_hex())?;
            management::create_key(to, OPERATOR, org, deploy(), SecretSource::Given(given), now).await
        })
    }

    /// Gives a key this secret.
    fn rotate(&self, key: KeyId, overlap: Option<Duration>, secret: &PlainKey) -> Result<NewKey, ManagementError> {
        self.gateway.try_perform(async |to, now| {
            let rotation = Rotation::new(overlap).with_digest(Some(&secret.digest().to_hex()))?;
            management::rotate_key(to, OPERATOR, key, rotation, now).await
        })
    }

    /// Puts a key into acme, with its id or without.
    fn put(&self, org: &str, key: &PlainKey, id: Option<KeyId>) -> Result<PutKey, ManagementError> {
        block_on(put_at(self.gateway.management(), org, &key.digest(), id, 0))
    }

    fn status(&self, key: &PlainKey) -> u16 {
        Client::connect(self.gateway.address).get("/x", key.expose().expose()).status
    }

    /// Ids of the keys of acme.
    fn keys(&self) -> Vec<KeyId> {
        self.gateway.list_keys("acme").iter().map(|key| key.id).collect()
    }

    /// The files in which the gateway and its Redis keep what they know.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = files_below(self.gateway.dir.path());
        if let Some(redis) = &self.redis {
            let dir: Vec<String> = redis.cli(&["CONFIG", "GET", "dir"]);
            files.extend(files_below(Path::new(&dir[1])));
        }
        files
    }
}

fn gateway_on(redis: &Redis, upstream: &Upstream) -> Gateway {
    let state = format!("\nstate: {{ redis: {{ url: '{}', deadline: 2s }} }}\n", redis.url());
    Gateway::with(&[upstream.address], &state)
}

fn offline_key(tag: OrgTag) -> PlainKey {
    PlainKey::generate(KeyId::generate(tag).unwrap()).unwrap()
}

/// A key of Ada.
fn deploy() -> NewKeyRequest<'static> {
    NewKeyRequest { user: ADA, name: "deploy", policy: PolicyUpdate::default(), plan: None }
}

/// Puts a key, at a time of its own for each number.
async fn put_at(
    management: &Management,
    org: &str,
    digest: &KeyDigest,
    id: Option<KeyId>,
    number: usize,
) -> Result<PutKey, ManagementError> {
    let now = clock::now().after(Duration::from_micros(number as u64));
    management::put_key_by_digest(management, OPERATOR, org, &digest.to_hex(), id, deploy(), now).await
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] });
    // Not the admin socket.
    files.filter(|path| path.is_file()).collect()
}

#[test]
fn key_made_offline_is_admitted_and_its_secret_is_kept_nowhere() {
    for office in Office::both() {
        let key = office.offline_key("acme");
        let created = office.create(&key);
        assert!(created.api_key.is_none() && created.key.id == key.id() && !created.key.imported, "{created:?}");
        assert_eq!(office.status(&key), 200);
        let next = PlainKey::generate(key.id()).unwrap();
        let rotated = office.rotate(key.id(), None, &next).unwrap();
        assert_eq!((rotated.key.id, office.status(&key), office.status(&next)), (key.id(), 401, 200));
        let put = office.offline_key("acme");
        assert!(office.put("acme", &put, Some(put.id())).unwrap().created);
        assert_eq!(office.status(&put), 200);
        let replies =
            format!("{}{}", serde_json::to_string(&created).unwrap(), serde_json::to_string(&rotated).unwrap());
        assert_eq!(replies.matches(r#""key":null"#).count(), 2, "{replies}");
        assert_eq!(office.gateway.records().len(), 4);
        let mut contents = Vec::new();
        for file in office.files() {
            contents.extend(fs::read(file).unwrap());
        }
        contents.extend(replies.into_bytes());
        let has = |text: &str| contents.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(has(key.id().as_str()) && has("deploy"), "there is something to find");
        for secret in [&key, &next, &put] {
            // Its prefix and its id are public.
            assert!(!has(&secret.expose().expose()[18..40]));
        }
    }
}

#[test]
fn wrong_id_or_taken_digest_is_refused_and_tells_nothing_of_others() {
    for office in Office::both() {
        let key = office.offline_key("acme");
        office.create(&key);
        let foreign = office.offline_key("globex");
        let code = |error: &ManagementError| (error.kind().status().as_u16(), error.code());
        let refused = office.try_create("acme", foreign.id(), &foreign).unwrap_err();
        assert_eq!(code(&refused), (422, "key_id_of_another_org"));
        let same_id = PlainKey::generate(key.id()).unwrap();
        let refused = office.try_create("acme", key.id(), &same_id).unwrap_err();
        assert_eq!(code(&refused), (409, "key_id_taken"));
        // A digest of another organization is not named, one of the same is.
        office.try_create("globex", foreign.id(), &foreign).unwrap();
        let own = office.offline_key("acme");
        for (taken, named) in [(&key, true), (&foreign, false)] {
            for refused in [office.try_create("acme", own.id(), taken), office.rotate(key.id(), None, taken)] {
                let refused = refused.unwrap_err();
                assert_eq!(code(&refused), (409, "digest_taken"));
                let text = refused.to_string();
                let ids = [key.id(), foreign.id()].map(|id| text.contains(id.as_str()));
                assert_eq!(ids, [named, false], "{text}");
            }
        }
        // Refused requests have taken nothing.
        office.create(&own);
        assert_eq!((office.status(&own), office.status(&key)), (200, 200));
        let documented = Rotation::new(None).with_digest(Some(&"0".repeat(64))).unwrap_err();
        let half = SecretSource::from_operands(Some(own.id()), None).unwrap_err();
        assert_eq!([&documented, &half].map(code), [(400, "invalid_digest"); 2]);
    }
}

#[test]
fn key_is_put_once_and_found_again_as_it_is() {
    for office in Office::both() {
        let key = office.offline_key("acme");
        let code = |put: Result<PutKey, ManagementError>| put.unwrap_err().code();
        let first = office.put("acme", &key, Some(key.id())).unwrap();
        let again = office.put("acme", &key, Some(key.id())).unwrap();
        assert!(first.created && !again.created);
        assert_eq!((first.key.id, &again.key), (key.id(), &first.key), "nothing was changed");
        assert_eq!(office.put("acme", &key, None).unwrap().key.id, key.id(), "whose id need not be given");
        // Not another key's digest, nor one of another organization.
        let other = office.offline_key("acme");
        assert_eq!(code(office.put("acme", &key, Some(other.id()))), "digest_taken");
        let of_globex = office.put("globex", &key, None).unwrap_err();
        assert_eq!((of_globex.code(), of_globex.kind()), ("digest_taken", ErrorKind::Conflict));
        assert!(!of_globex.to_string().contains(key.id().as_str()), "{of_globex}");
        assert_eq!(code(office.put("acme", &office.offline_key("globex"), Some(key.id()))), "key_id_taken");
        let foreign = office.offline_key("globex");
        assert_eq!(code(office.put("acme", &foreign, Some(foreign.id()))), "key_id_of_another_org");
        // A secret that was replaced is not said to be there, one that is valid for a while is.
        let next = PlainKey::generate(key.id()).unwrap();
        let overlap = Some(Duration::from_secs(3600));
        office.rotate(key.id(), overlap, &next).unwrap();
        assert_eq!(office.put("acme", &key, None).unwrap().key.id, key.id());
        let last = PlainKey::generate(key.id()).unwrap();
        office.rotate(key.id(), None, &last).unwrap();
        assert_eq!(code(office.put("acme", &key, None)), "digest_taken");
        assert_eq!(code(office.put("acme", &next, None)), "digest_taken");
        assert!(!office.put("acme", &last, None).unwrap().created);
        office.gateway.revoke_key(key.id());
        let revoked = office.put("acme", &last, None).unwrap();
        assert_eq!((revoked.created, revoked.key.status), (false, KeyStatus::Revoked), "it does not come back");
    }
}

/// A gateway looks a key of keygate's own format up by the id in its text, and then by its digest.
#[test]
fn key_that_is_put_without_its_id_is_found_by_its_digest() {
    for office in Office::both() {
        let key = office.offline_key("acme");
        let put = office.put("acme", &key, None).unwrap().key;
        assert!(put.imported && put.id != key.id());
        // The id in the text is that of another key.
        let same_id = PlainKey::generate(key.id()).unwrap();
        office.create(&same_id);
        assert_eq!((office.status(&key), office.status(&same_id)), (200, 200));
        let used: HashSet<_> = office.gateway.records().into_iter().filter_map(|record| record.key_id).collect();
        assert_eq!(used, HashSet::from([put.id, key.id()]));
    }
}

#[test]
fn parallel_puts_make_one_key() {
    const PUTS: usize = 1000;
    for office in Office::both() {
        let gateways: Vec<Gateway> = office.redis.iter().map(|redis| gateway_on(redis, &office.upstream)).collect();
        let all: Vec<&Management> = gateways.iter().chain([&office.gateway]).map(Gateway::management).collect();
        for (keys, has_id) in [(1, true), (2, false)] {
            let key = office.offline_key("acme");
            let (digest, id) = (key.digest(), has_id.then_some(key.id()));
            let count = PUTS / all.len();
            let puts = |(place, management): (usize, &Management)| {
                let one = |number| put_at(management, "acme", &digest, id, number);
                block_on(join_all((place * count..(place + 1) * count).map(one)))
            };
            let made: Vec<PutKey> = thread::scope(|scope| {
                let puts = &puts;
                let threads: Vec<_> =
                    all.iter().enumerate().map(|(place, to)| scope.spawn(move || puts((place, to)))).collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).map(Result::unwrap).collect()
            });
            assert_eq!((made.len(), made.iter().filter(|put| put.created).count()), (PUTS, 1));
            let ids: HashSet<KeyId> = made.iter().map(|put| put.key.id).collect();
            assert_eq!((ids.len(), office.keys().len()), (1, keys));
            assert_eq!((ids.contains(&key.id()), office.status(&key)), (has_id, 200));
        }
    }
}
