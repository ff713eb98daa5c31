//! The smallest Pingora proxy with the job: what it costs on another library than hyper.
//!
//! Bearer key, SHA-256, look-up, a rate per key by one script call on Redis, a concurrency per organization, identity
//! headers replaced, and one buffered log line. Reads the settings file of the smallest proxies, and needs its Redis.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error, Result};
use pingora_http::RequestHeader;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use redis::Script;
use redis::aio::MultiplexedConnection;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

/// Requests of an organization in flight, as of the other peers.
const CONCURRENT: u32 = 1000;
/// Bytes of log lines that are written together.
const LOG_BUFFER: usize = 64 << 10;

#[derive(Deserialize)]
struct Settings {
    address: SocketAddr,
    upstream: SocketAddr,
    workers: usize,
    redis: u16,
    limit: u32,
    job: PathBuf,
    log: PathBuf,
}

struct Gate {
    settings: Settings,
    keys: HashMap<[u8; 32], Arc<Key>>,
    script: Script,
    /// Connected by the first request: it belongs to the runtime that the server makes.
    redis: OnceCell<MultiplexedConnection>,
    log: Arc<Mutex<Log>>,
}

struct Key {
    user: String,
    /// Name of the bucket on Redis.
    bucket: String,
    org: Arc<Org>,
}

struct Org {
    name: String,
    in_flight: AtomicU32,
}

struct Log {
    file: File,
    buffer: Vec<u8>,
}

/// A request, from its head to its log line.
struct Exchange {
    /// The key, whose organization has a slot taken.
    admitted: Option<Arc<Key>>,
    begun: Instant,
}

fn main() {
    let path = std::env::args().nth(1).expect("a file of settings");
    let settings: Settings = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let configuration = ServerConf {
        threads: settings.workers,
        upstream_keepalive_pool_size: 512,
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(0),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, configuration);
    server.bootstrap();
    let address = settings.address.to_string();
    let mut service = http_proxy_service(&server.configuration, Gate::new(settings));
    service.add_tcp(&address);
    server.add_service(service);
    server.run_forever();
}

impl Gate {
    fn new(settings: Settings) -> Self {
        let file = File::options().create(true).append(true).open(&settings.log).unwrap();
        let log = Arc::new(Mutex::new(Log { file, buffer: Vec::with_capacity(2 * LOG_BUFFER) }));
        let flushed = Arc::clone(&log);
        thread::spawn(move || {
            loop {
                thread::sleep(Duration::from_secs(1));
                flushed.lock().unwrap().flush();
            }
        });
        let keys = read_keys(&settings.job.join("keys.txt"));
        let script = Script::new(include_str!("../../bucket.lua"));
        Self { settings, keys, script, redis: OnceCell::new(), log }
    }

    /// Admits a request, or returns the status of its refusal.
    async fn admit(&self, head: &RequestHeader, exchange: &mut Exchange) -> Result<(), u16> {
        let field = head.headers.get("authorization").ok_or(401_u16)?;
        let text = field.as_bytes().strip_prefix(b"Bearer ").ok_or(401_u16)?;
        let digest: [u8; 32] = Sha256::digest(text).into();
        let key = self.keys.get(&digest).ok_or(401_u16)?;
        let in_flight = key.org.in_flight.fetch_add(1, Ordering::Relaxed);
        exchange.admitted = Some(Arc::clone(key));
        if in_flight >= CONCURRENT {
            return Err(429);
        }
        let mut connection = self.redis.get_or_try_init(|| self.connect()).await.map_err(|_| 503_u16)?.clone();
        let limit = self.settings.limit;
        let call = self.script.key(&key.bucket).arg(limit).arg(limit).invoke_async(&mut connection).await;
        let (taken, _): (u32, i64) = call.map_err(|_| 503_u16)?;
        if taken == 1 { Ok(()) } else { Err(429) }
    }

    async fn connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.settings.redis))?;
        client.get_multiplexed_async_connection().await
    }
}

#[async_trait]
impl ProxyHttp for Gate {
    type CTX = Exchange;

    fn new_ctx(&self) -> Exchange {
        Exchange { admitted: None, begun: Instant::now() }
    }

    async fn request_filter(&self, session: &mut Session, exchange: &mut Exchange) -> Result<bool> {
        match self.admit(session.req_header(), exchange).await {
            Ok(()) => Ok(false),
            Err(status) => session.respond_error(status).await.map(|()| true),
        }
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut Exchange) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.settings.upstream, false, String::new())))
    }

    async fn upstream_request_filter(
        &self,
        _: &mut Session,
        head: &mut RequestHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let key = exchange.admitted.as_ref().expect("a request that was admitted");
        head.remove_header("authorization");
        head.insert_header("X-User-Id", &key.user)?;
        head.insert_header("X-Org-Id", &key.org.name)
    }

    async fn logging(&self, session: &mut Session, _: Option<&Error>, exchange: &mut Exchange) {
        let status = session.response_written().map_or(0, |head| head.status.as_u16());
        let (user, org) = exchange.admitted.as_ref().map_or(("", ""), |key| (&key.user, &key.org.name));
        let head = session.req_header();
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let (method, path, milliseconds) = (&head.method, head.uri.path(), exchange.begun.elapsed().as_millis());
        let mut log = self.log.lock().unwrap();
        writeln!(
            log.buffer,
            "{{\"time\":{time},\"user\":\"{user}\",\"org\":\"{org}\",\"method\":\"{method}\",\"path\":\"{path}\",\
             \"status\":{status},\"ms\":{milliseconds}}}"
        )
        .unwrap();
        if log.buffer.len() > LOG_BUFFER {
            log.flush();
        }
    }
}

impl Log {
    fn flush(&mut self) {
        self.file.write_all(&self.buffer).unwrap();
        self.buffer.clear();
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(key) = &self.admitted {
            key.org.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn read_keys(path: &Path) -> HashMap<[u8; 32], Arc<Key>> {
    let mut orgs: HashMap<String, Arc<Org>> = HashMap::new();
    let text = fs::read_to_string(path).unwrap();
    let key = |line: &str| {
        let [digest, user, org] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("a line of keys") };
        let new = || Arc::new(Org { name: org.to_owned(), in_flight: AtomicU32::new(0) });
        let org = Arc::clone(orgs.entry(org.to_owned()).or_insert_with(new));
        let mut bytes = [0; 32];
        for (byte, hex) in bytes.iter_mut().zip(digest.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap();
        }
        (bytes, Arc::new(Key { user: user.to_owned(), bucket: format!("bucket:pingora:{user}"), org }))
    };
    text.lines().map(key).collect()
}
