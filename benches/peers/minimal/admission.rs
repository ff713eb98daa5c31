//! The decision: bearer key, SHA-256, look-up, rate and concurrency.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use redis::Script;
use redis::aio::MultiplexedConnection;
use sha2::{Digest as _, Sha256};

use super::{Settings, log};
use crate::peers::job::CONCURRENT;

/// Microseconds in which the limit's tokens flow in.
const HOUR: u64 = 3_600_000_000;

/// All keys by the SHA-256 of their text, shared by the threads.
pub(super) struct Directory(HashMap<[u8; 32], Arc<Key>>);

pub(super) struct Key {
    user: String,
    pub(super) user_value: HeaderValue,
    pub(super) org_value: HeaderValue,
    /// Name of the bucket on Redis.
    bucket: String,
    /// Microseconds at which the bucket is full, as of the last request.
    full_at: AtomicU64,
    org: Arc<Org>,
}

struct Org {
    name: String,
    in_flight: AtomicU32,
}

/// The decision of one thread.
pub(super) struct Admission {
    directory: Arc<Directory>,
    limit: u32,
    redis: Option<(MultiplexedConnection, Script)>,
}

/// A request in flight; its end is logged, and gives its slot back.
pub(super) struct Permit {
    pub(super) key: Arc<Key>,
    method: http::Method,
    path: String,
    pub(super) status: u16,
    begun: Instant,
}

impl Directory {
    pub(super) fn read(path: &Path) -> Self {
        let mut orgs: HashMap<String, Arc<Org>> = HashMap::new();
        let text = std::fs::read_to_string(path).unwrap();
        let key = |line: &str| {
            let [digest, user, org] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("a line of keys") };
            let new = || Arc::new(Org { name: org.to_owned(), in_flight: AtomicU32::new(0) });
            let key = Key {
                user: user.to_owned(),
                user_value: HeaderValue::from_str(user).unwrap(),
                org_value: HeaderValue::from_str(org).unwrap(),
                bucket: format!("bucket:minimal:{user}"),
                full_at: AtomicU64::new(0),
                org: Arc::clone(orgs.entry(org.to_owned()).or_insert_with(new)),
            };
            let mut bytes = [0; 32];
            for (byte, hex) in bytes.iter_mut().zip(digest.as_bytes().chunks(2)) {
                *byte = u8::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap();
            }
            (bytes, Arc::new(key))
        };
        Self(text.lines().map(key).collect())
    }
}

impl Admission {
    pub(super) async fn new(directory: Arc<Directory>, settings: &Settings) -> Self {
        let redis = match settings.redis {
            None => None,
            Some(port) => {
                let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
                let connection = client.get_multiplexed_async_connection().await.unwrap();
                Some((connection, Script::new(include_str!("../bucket.lua"))))
            }
        };
        Self { directory, limit: settings.limit, redis }
    }

    /// Admits a request, or returns the status of its refusal.
    pub(super) async fn admit(
        &self,
        authorization: Option<&[u8]>,
        method: &http::Method,
        path: &str,
    ) -> Result<Permit, u16> {
        let text = authorization.and_then(|value| value.strip_prefix(b"Bearer ")).ok_or(401_u16)?;
        let digest: [u8; 32] = Sha256::digest(text).into();
        let key = self.directory.0.get(&digest).ok_or(401_u16)?;
        let permit = Permit {
            key: Arc::clone(key),
            method: method.clone(),
            path: path.to_owned(),
            status: 0,
            begun: Instant::now(),
        };
        if key.org.in_flight.fetch_add(1, Ordering::Relaxed) >= CONCURRENT {
            return Err(429);
        }
        let taken = match &self.redis {
            None => key.take_token(self.limit),
            Some((connection, script)) => {
                let mut connection = connection.clone();
                let call = script.key(&key.bucket).arg(self.limit).arg(self.limit).invoke_async(&mut connection).await;
                let (taken, _): (u32, i64) = call.map_err(|_| 503_u16)?;
                taken == 1
            }
        };
        if taken { Ok(permit) } else { Err(429) }
    }
}

impl Key {
    /// Takes a token of a bucket that holds as many as flow in during an hour.
    fn take_token(&self, limit: u32) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let token = HOUR / u64::from(limit);
        let taken = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            let full_at = full_at.max(now) + token;
            (full_at <= now + HOUR).then_some(full_at)
        });
        taken.is_ok()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.key.org.in_flight.fetch_sub(1, Ordering::Relaxed);
        log::line(&self.key.user, &self.key.org.name, self.method.as_str(), &self.path, self.status, self.begun);
    }
}
