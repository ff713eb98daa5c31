//! Bytes of journal for each use, and bytes of memory for each idle connection.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::load::{self, Idle, Load, Protocol, Shape};
use crate::peers::job::Job;
use crate::peers::{Frontend, Peer, Proxy, Setup};
use crate::{CONNECTIONS, Size};

/// Uses that fill several of the smallest segments.
const USES_OF_SEGMENTS: usize = 40_000;

/// Bytes that a proxy takes.
#[derive(Default)]
pub(crate) struct Space {
    /// Bytes of journal or log for each use, where it has one.
    pub(crate) journal: Option<f64>,
    /// Bytes of a closed segment for each use, of a gateway.
    pub(crate) closed_segment: Option<f64>,
    /// Resident bytes of each idle keep-alive connection that has had one request: HTTP/1.1, the same over TLS, HTTP/2
    /// over TLS. None where the peer does not offer it.
    pub(crate) idle: [Option<f64>; 3],
}

pub(crate) const IDLE_KINDS: [&str; 3] = ["plain", "TLS", "HTTP/2 over TLS"];

pub(crate) fn measure(peer: Peer, job: &Job, size: &Size) -> Space {
    let open = journal(peer, job, size.requests * 4);
    let closed_segment = (peer == Peer::Keygate).then(|| closed_segment(job, size, open.unwrap_or_default()));
    let protocols = [Protocol::Http1, Protocol::Tls(job.trust.clone()), Protocol::Http2(1)];
    let idle = protocols.map(|protocol| idle_connection(peer, job, size, &protocol));
    Space { journal: open, closed_segment, idle }
}

/// Bytes of journal or log for each use. Logs are written in steps, so the whole log is read after a proper end.
fn journal(peer: Peer, job: &Job, requests: usize) -> Option<f64> {
    let mut proxy = Proxy::start(peer, job, &Setup::default());
    let path = proxy.journal.clone()?;
    load::run(proxy.address, &job.keys[0], requests / 10);
    // Longer than the buffers of logs are kept.
    sleep(Duration::from_millis(1200));
    let before: u64 = journal_files(&path).iter().map(|(_, bytes)| bytes).sum();
    load::run(proxy.address, &job.keys[0], requests);
    sleep(Duration::from_millis(1200));
    let after: u64 = journal_files(&path).iter().map(|(_, bytes)| bytes).sum();
    proxy.terminate();
    Some(per(after - before, requests))
}

/// Bytes of the closed segments for each use that they have, of many keys on many connections at once.
fn closed_segment(job: &Job, size: &Size, open: f64) -> f64 {
    let proxy = Proxy::start(Peer::Keygate, job, &Setup { segment: "1MiB", ..Setup::default() });
    let requests = if size.keys < job.keys.len() { 5_000 } else { USES_OF_SEGMENTS };
    let load =
        Load { keys: &job.keys, protocol: Protocol::Http1, shape: Shape::Small, connections: CONNECTIONS, requests };
    load.run(proxy.address);
    let files = || journal_files(proxy.journal.as_deref().expect("a gateway has a journal"));
    let (mut segments, deadline) = (files(), Instant::now() + Duration::from_secs(60));
    // Segments are closed and compressed in the background.
    loop {
        sleep(size.silence + Duration::from_millis(500));
        let now = files();
        if now == segments || Instant::now() > deadline {
            break;
        }
        segments = now;
    }
    let (_, last) = segments.pop().expect("an open segment");
    let closed: u64 = segments.iter().map(|(_, bytes)| bytes).sum();
    #[allow(clippy::cast_precision_loss, reason = "counts below 2^52")]
    let uses = requests as f64 - last as f64 / open;
    #[allow(clippy::cast_precision_loss, reason = "counts below 2^52")]
    let bytes = closed as f64 / uses;
    bytes
}

/// Files of a journal or the one of a log, in order, each with its bytes.
fn journal_files(path: &Path) -> Vec<(PathBuf, u64)> {
    if path.is_file() {
        return vec![(path.to_owned(), path.metadata().unwrap().len())];
    }
    let is_segment = |name: &str| name.starts_with(|first: char| first.is_ascii_digit()) && name.contains(".jsonl");
    let files = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<(PathBuf, u64)> = files
        .filter(|file| file.file_name().and_then(|name| name.to_str()).is_some_and(is_segment))
        // A file may be replaced by its compressed form meanwhile.
        .filter_map(|file| fs::read(&file).ok().map(|content| (file, written(&content))))
        .collect();
    segments.sort();
    segments
}

/// Bytes of a file without the zeros at its end, which are space that was allocated ahead.
fn written(content: &[u8]) -> u64 {
    content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

/// Resident bytes for each idle connection, after a silence. The first connections leave memory behind that they needed
/// while they were busy, and that later ones use again: so the growth by later ones is measured.
fn idle_connection(peer: Peer, job: &Job, size: &Size, protocol: &Protocol) -> Option<f64> {
    let frontend = if matches!(protocol, Protocol::Http1) { Frontend::Plain } else { Frontend::Tls };
    if peer == Peer::Direct && frontend == Frontend::Tls {
        return None;
    }
    let proxy = Proxy::start(peer, job, &Setup { frontend, ..Setup::default() });
    let mut idle = Idle::new();
    let mut resident_after_silence = |connections: usize| {
        idle.open(proxy.address, protocol, &job.trust, &job.keys[0], connections);
        sleep(size.silence);
        resident(proxy.id())
    };
    let before = resident_after_silence(size.idle_connections);
    resident_after_silence(size.idle_connections);
    let after = resident_after_silence(size.idle_connections);
    Some(per(after.saturating_sub(before), 2 * size.idle_connections))
}

/// Resident bytes of a process.
fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[allow(clippy::cast_precision_loss, reason = "counts below 2^52")]
fn per(bytes: u64, count: usize) -> f64 {
    bytes as f64 / count as f64
}
