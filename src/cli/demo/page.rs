//! Text that the demo prints: addresses, keys, and commands to paste.

use std::net::SocketAddr;
use std::path::Path;

use super::super::health::local_address;
use super::backend::Backend;
use super::{ADMIN, Keys, LISTEN, QUERIES};
use crate::app::App;
use domain::identity::OrgId;

/// Takes the cursor of the next page out of a response.
const NEXT_CURSOR: &str = r#"sed -E 's/.*"nextCursor":"([^"]+)".*/\1/'"#;
/// Arguments of `curl` that create a query.
const NEW_QUERY: &str = r#"-H 'Content-Type: application/json' -d '{"name":"mine","sql":"select 1"}'"#;

/// The text that the demo prints: addresses, keys, and commands to paste.
pub(super) fn page(
    app: &App,
    dir: &Path,
    listen: SocketAddr,
    backend: &Backend,
    keys: &Keys,
    link: Option<&str>,
) -> String {
    let gateway = local_address(app.addresses[0]);
    let admin = app.admin_address;
    let reader = keys.reader.expose();
    let writer = keys.writer.expose();
    let keygate = std::env::current_exe().map_or_else(|_| "keygate".into(), |path| quote(&path));
    let shown = dir.display();
    let config = quote(&dir.join("keygate.yaml"));
    let quoted = quote(dir);
    let dashboard = dashboard(&keygate, &config, keys.org, link);
    let listen = if listen.to_string() == LISTEN { String::new() } else { format!(" --listen {listen}") };
    if let Backend::Server(url) = backend {
        let resume = format!("{keygate} demo --upstream {} --dir {quoted}{listen}", quote_text(url));
        let addresses = format!(
            "  gateway     http://{gateway}\n  admin       http://{admin}   (/metrics /live /ready)\n  \
             directory   {shown}"
        );
        return server_page(url, &addresses, &resume, &dashboard, writer, gateway);
    }
    let first = format!("curl -s -H 'Authorization: Bearer {reader}' 'http://{gateway}/api/queries?limit=2'");
    format!(
        r#"keygate demo: gateway and query-store are running, with {QUERIES} queries of one organization

  gateway     http://{gateway}
  admin       http://{admin}   (/metrics /live /ready)
  directory   {shown}
              configuration, state and audit; to continue later: {keygate} demo --dir {quoted}{listen}

Keys, one for each user:
  may read             {reader}
  may read and write   {writer}

{dashboard}The first page:
{first}

The next page, with the cursor of the first:
curl -s -H 'Authorization: Bearer {reader}' "http://{gateway}/api/queries?limit=2&cursor=$({first} | {NEXT_CURSOR})"

Create a query, with the key that may write:
curl -s -i -H 'Authorization: Bearer {writer}' {NEW_QUERY} http://{gateway}/api/queries

A request that is refused, because the key may not write:
curl -s -i -H 'Authorization: Bearer {reader}' {NEW_QUERY} http://{gateway}/api/queries

Metrics:
curl -s http://{admin}/metrics

Audit records:
{keygate} audit list --config {config}

Ctrl-C stops the demo."#
    )
}

/// The text of a demo in front of a server of the caller: one key, and one command to paste.
fn server_page(url: &str, addresses: &str, resume: &str, dashboard: &str, key: &str, gateway: SocketAddr) -> String {
    format!(
        r"keygate demo: the gateway is running, in front of {url}

{addresses}
              configuration, state and audit; to continue later: {resume}

Key:
  {key}

{dashboard}A request through the gateway; your server sees X-User-Id and X-Org-Id, and no key:
curl -s -i -H 'Authorization: Bearer {key}' http://{gateway}/

Ctrl-C stops the demo."
    )
}

/// Quotes a path for the shell.
fn quote(path: &Path) -> String {
    quote_text(&path.display().to_string())
}

/// Quotes a text for the shell.
pub(in crate::cli) fn quote_text(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// The part about the dashboard; empty without one.
fn dashboard(keygate: &str, config: &str, org: OrgId, link: Option<&str>) -> String {
    let Some(link) = link else { return String::new() };
    format!(
        r"Dashboard, as the organization's admin; the link is valid once, for five minutes:
{link}
Another link:
{keygate} session link --config {config} --org {org} {ADMIN}

"
    )
}
