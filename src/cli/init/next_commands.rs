//! Text that `keygate init` prints: the next four commands, each with what it prints.

use std::path::Path;

use super::super::demo::quote_text;
use super::super::health::local_address;
use super::super::installation::default_file;
use super::{Answers, ORG, PERMISSION, USER};

/// The text. A line of output is indented, and `…` stands for what differs from run to run.
pub(super) fn text(answers: &Answers, file: &Path) -> String {
    let program = std::env::args_os().next().map_or_else(|| "keygate".into(), |name| name.display().to_string());
    let keygate = quote_text(&program);
    let config = if default_file() == file {
        String::new()
    } else {
        format!(" --config {}", quote_text(&file.display().to_string()))
    };
    let Answers { upstream, listen, .. } = answers;
    let gateway = local_address(*listen);
    let file = file.display();
    format!(
        r#"{file}: http://{gateway} forwards to {upstream}
organization {ORG}: user {USER}, permission {PERMISSION}

1. Start the gateway:
{keygate} serve{config}
    … INFO … serving address={listen} …

2. In another terminal, in the same directory, create a key:
KEY=$({keygate} key create --org {ORG} --user {USER} first{config})
    key … `first` of {USER}; the key is shown only once:

3. Send a request with it; without the header, the response is 401:
curl -i -H "Authorization: Bearer $KEY" http://{gateway}/
    HTTP/1.1 …
    ratelimit: "key";r=999;t=…

4. Open the dashboard in a browser, by the link that this prints:
{keygate} session link --org {ORG} {USER}{config}
    http://{gateway}/settings/link/…"#
    )
}
