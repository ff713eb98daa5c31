//! Configuration of a demo's gateway.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

use anyhow::Context as _;

use super::super::health::local_address;
use super::backend::Backend;
use crate::config::Config;

/// Preferred port of `/metrics`.
const ADMIN_PORT: u16 = 9464;

/// Writes the gateway's configuration into the directory, where other commands find it, and parses it.
pub(super) fn write_config(dir: &Path, listen: SocketAddr, backend: &Backend) -> anyhow::Result<Config> {
    let admin = free_address(IpAddr::V4(Ipv4Addr::LOCALHOST), ADMIN_PORT)?;
    let session = session_block(listen);
    // A JSON string is one of YAML, whatever was given as the address.
    let endpoint = serde_json::to_string(&backend.endpoint())?;
    let routes = backend.routes();
    let text = format!(
        r#"# Written by `keygate demo` at every start. config/keygate.yaml of the project documents every key.
listen:
  - address: "{listen}"
admin:
  socket: admin.sock
  address: "{admin}"
upstream:
  endpoints: [{endpoint}]
state:
  embedded: {{ path: state.db }}
limits:
  key: {{ requests: 1000, per: 1h, burst: 1000 }}
  org: {{ concurrent: 100 }}
# A disk that is nearly full is no reason to hide the demo's refusals in counts.
audit: {{ low_water: 0%, path: audit }}
{session}routes:{routes}"#
    );
    let path = dir.join("keygate.yaml");
    fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Config::parse(&path, &text)?)
}

/// The block `session`; none when the gateway does not listen on loopback, because browsers keep session cookies
/// without TLS only for this machine.
fn session_block(listen: SocketAddr) -> String {
    let gateway = local_address(listen);
    if !gateway.ip().is_loopback() {
        return "# No dashboard: without TLS, browsers keep session cookies for this machine only.\n".into();
    }
    format!("session: {{ origin: \"http://{gateway}\" }}\n")
}

/// An address with a free port, the preferred one if possible.
pub(in crate::cli) fn free_address(ip: IpAddr, preferred: u16) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((ip, preferred)).or_else(|_| TcpListener::bind((ip, 0)));
    Ok(listener.context("there is no free port")?.local_addr()?)
}
