//! What the demo prints: where everything is, the keys, and lines to paste.

use std::net::SocketAddr;
use std::path::Path;

use super::super::health::local_address;
use super::{ADMIN, Keys, LISTEN, QUERIES};
use crate::app::App;
use crate::identity::OrgId;

/// What the demo prints: where everything is, the keys, and lines to paste.
pub(super) fn page(app: &App, dir: &Path, listen: SocketAddr, keys: &Keys, link: Option<&str>) -> String {
    let (gateway, admin) = (local_address(app.addresses[0]), app.admin_address);
    let (reader, writer) = (keys.reader.expose(), keys.writer.expose());
    let keygate = std::env::current_exe().map_or_else(|_| "keygate".into(), |path| quoted(&path));
    let (shown, config, quoted) = (dir.display(), quoted(&dir.join("keygate.yaml")), quoted(dir));
    let dashboard = dashboard(&keygate, &config, keys.org, link);
    let listen = if listen.to_string() == LISTEN { String::new() } else { format!(" --listen {listen}") };
    format!(
        r#"keygate demo: gateway and query-store are running, with {QUERIES} queries of one organization

  gateway     http://{gateway}
  admin       http://{admin}   (/metrics /live /ready)
  directory   {shown}
              configuration, state and audit; go on with them later: {keygate} demo --dir {quoted}{listen}

Keys, one for each user:
  may read             {reader}
  may read and write   {writer}

{dashboard}The first page:
curl -s -H 'Authorization: Bearer {reader}' 'http://{gateway}/api/queries?limit=2'

The next page, by the cursor of the first:
curl -s -H 'Authorization: Bearer {reader}' "http://{gateway}/api/queries?limit=2&cursor=$(curl -s -H 'Authorization: Bearer {reader}' 'http://{gateway}/api/queries?limit=2' | sed -E 's/.*"nextCursor":"([^"]+)".*/\1/')"

A new query, by the one who may write:
curl -s -i -H 'Authorization: Bearer {writer}' -H 'Content-Type: application/json' -d '{{"name":"mine","sql":"select 1"}}' http://{gateway}/api/queries

A refused request, by the one who may not:
curl -s -i -H 'Authorization: Bearer {reader}' -H 'Content-Type: application/json' -d '{{"name":"mine","sql":"select 1"}}' http://{gateway}/api/queries

The metrics:
curl -s http://{admin}/metrics

Who did what:
{keygate} audit list --config {config}

Ctrl-C stops the demo."#
    )
}

/// A path as one word of a shell's line.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// What the demo prints of the dashboard.
fn dashboard(keygate: &str, config: &str, org: OrgId, link: Option<&str>) -> String {
    let Some(link) = link else { return String::new() };
    format!(
        r"The dashboard, as the organization's admin; the link is good once, for five minutes:
{link}
Another one:
{keygate} session link --config {config} --org {org} {ADMIN}

"
    )
}
