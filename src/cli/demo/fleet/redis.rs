//! Redis of a demo with two gateways: a server of its own, in memory, which nothing but the demo can use.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context as _, anyhow};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use uuid::Uuid;

use super::process::Process;
use crate::cli::{CliError, ExitStatus};

const PROGRAM: &str = "redis-server";

/// A running server.
pub(super) struct Redis {
    /// Its URL, password included.
    pub(super) url: String,
    _process: Process,
}

/// Finds `redis-server`.
///
/// # Errors
/// It is not installed: says how to get it, and what can be seen without it.
pub(super) fn find_program() -> Result<PathBuf, CliError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join(PROGRAM)).find(|file| file.is_file());
    found.ok_or_else(|| {
        let message = anyhow!(
            "{PROGRAM} is not in PATH, and two gateways share their state in it; install Redis 7.0 or newer (Debian \
             and Ubuntu: apt install redis-server; Fedora: dnf install redis; macOS: brew install redis). Without it, \
             `keygate demo` shows one gateway with its state in a file: keys, pages, refusals, dashboard, metrics and \
             audit records"
        );
        CliError::new(ExitStatus::Unreachable, message)
    })
}

impl Redis {
    /// Starts it in a directory below this one, and waits until it answers.
    pub(super) async fn start(program: &Path, dir: &Path, address: SocketAddr) -> anyhow::Result<Self> {
        let dir = dir.join("redis");
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let password = Uuid::new_v4().simple();
        // In a file: arguments are shown to every user of the machine.
        let text = format!(
            "bind {}\nport {}\nrequirepass {password}\nsave \"\"\nappendonly no\nmaxmemory-policy noeviction\n",
            address.ip(),
            address.port()
        );
        fs::write(dir.join("redis.conf"), text).with_context(|| format!("cannot write into {}", dir.display()))?;
        let mut process = Process::start(PROGRAM, &dir, program, &[OsStr::new("redis.conf")])?;
        process.until_ready(async || answers(address).await.is_ok()).await?;
        Ok(Self { url: format!("redis://:{password}@{address}"), _process: process })
    }
}

/// Any answer will do: without the password it is an error.
async fn answers(address: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"PING\r\n").await?;
    stream.read_u8().await.map(|_| ())
}
