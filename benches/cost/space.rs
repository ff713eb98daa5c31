//! Bytes of journal for each use, and bytes of memory for each idle connection.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use crate::load;
use crate::proxies::Proxy;

/// Bytes that a proxy takes.
pub(crate) struct Space {
    /// Bytes of journal or log for each use.
    pub(crate) journal: f64,
    /// Resident bytes for each idle keep-alive connection that has had one request.
    pub(crate) idle_connection: f64,
}

#[allow(clippy::cast_precision_loss, reason = "counts below 2^52")]
pub(crate) fn measure(proxy: &Proxy, key: &str, requests: usize, connections: usize) -> Space {
    load::run(proxy.address, key, requests / 10 + 1);
    let before = size(&proxy.journal);
    load::run(proxy.address, key, requests);
    let journal = (size(&proxy.journal) - before) as f64 / requests as f64;
    let before = resident(proxy.id());
    let held: Vec<TcpStream> = (0..connections).map(|_| used_connection(proxy, key)).collect();
    let idle_connection = (resident(proxy.id()) - before) as f64 / connections as f64;
    drop(held);
    Space { journal, idle_connection }
}

/// Bytes of the segments or of the log.
fn size(path: &Path) -> i64 {
    let length = |path: &Path| i64::try_from(path.metadata().unwrap().len()).unwrap();
    if path.is_file() {
        return length(path);
    }
    let files = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|extension| extension == "jsonl")).map(|file| length(&file)).sum()
}

fn used_connection(proxy: &Proxy, key: &str) -> TcpStream {
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    stream.write_all(load::request(key).as_bytes()).unwrap();
    assert!(stream.read(&mut [0; 4096]).unwrap() > 0, "the proxy closed");
    stream
}

/// Resident bytes of a process.
fn resident(process: u32) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<i64>().unwrap() * 1024
}
