//! The real gateway, with one worker, over this Redis.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::free_address;
use crate::support::redis::Redis;

/// A running gateway, ended with the benchmark.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    child: Child,
    _dir: tempfile::TempDir,
}

impl Gateway {
    pub(crate) fn start(server: &Redis, upstream: SocketAddr) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (address, admin, url) = (free_address(), free_address(), server.url());
        let text = format!(
            "listen: [{{ address: '{address}' }}]\nworkers: 1\n\
             admin: {{ socket: admin.sock, address: '{admin}' }}\n\
             upstream: {{ endpoints: ['http://{upstream}'] }}\n\
             state: {{ redis: {{ url: '{url}', deadline: 2s }} }}\n\
             limits: {{ key: {{ requests: 1000000000, per: 1s, burst: 1000000000 }}, org: {{ concurrent: 1000 }} }}\n\
             audit: {{ path: audit, durability: written }}\n"
        );
        let config = dir.path().join("keygate.yaml");
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_keygate"));
        command.args(["serve", "--config"]).arg(config).stdin(Stdio::null()).stderr(Stdio::null());
        let gateway = Self { address, child: command.spawn().unwrap(), _dir: dir };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "the gateway does not start");
        }
        gateway
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
