//! Text of a first configuration: the blocks that every gateway has, and one route with a permission.

use std::net::SocketAddr;

use super::super::health::local_address;
use super::directory::{AUDIT, SOCKET, STATE_FILE};
use super::{Answers, PERMISSION};

/// The text of the file. `admin` is the address of `/metrics`.
pub(super) fn text(answers: &Answers, admin: SocketAddr) -> anyhow::Result<String> {
    let Answers { upstream, listen, .. } = answers;
    // A JSON string is one of YAML, whatever the URL has in it.
    let upstream = serde_json::to_string(upstream)?;
    let gateway = local_address(*listen);
    Ok(format!(
        r#"# Written by `keygate init`. `keygate check` reports errors; a running gateway reloads it after a change.
# config/keygate.yaml of the project documents every key. Relative paths start at the directory of this file.

# Address for clients, without TLS.
listen:
  - address: "{listen}"

# Socket of the management commands, and address of /metrics, /live and /ready. Both are for this machine only.
admin: {{ socket: {SOCKET}, address: "{admin}" }}

# Server that requests are forwarded to. It trusts X-User-Id and X-Org-Id, so only the gateway may be able to reach it.
upstream:
  endpoints: [{upstream}]

# Organizations, users, limits and hashes of keys. Several gateways share a Redis instead.
state:
  embedded: {{ path: {STATE_FILE} }}

# Audit records of every use of a key, written before the request is forwarded: `keygate audit list`.
audit: {{ path: {AUDIT} }}

# Paths that are served. The user of a key needs the permission; without it, the response is 403.
routes:
  - {{ name: api, path: "/**", permission: "{PERMISSION}" }}

# Dashboard at /settings, where users manage their keys. `origin` is what their browsers' address bar begins with.
session: {{ origin: "http://{gateway}" }}
"#
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    #[test]
    fn first_config_is_valid_for_every_kind_of_upstream_and_has_no_warning() {
        for upstream in ["http://127.0.0.1:3000", "http://localhost/", "http://[::1]:81", "unix:/run/a b'\"#.sock"] {
            let listen = "[::1]:8080".parse().unwrap();
            let answers = Answers { upstream: upstream.into(), listen, dir: "keygate".into() };
            let text = text(&answers, "127.0.0.1:9464".parse().unwrap()).unwrap();
            let config = Config::parse(Path::new("keygate/keygate.yaml"), &text).unwrap();
            assert!(config.warnings().is_empty() && config.listen[0].address == listen, "{text}");
            assert!((20..=33).contains(&text.lines().count()), "{} lines", text.lines().count());
        }
    }
}
