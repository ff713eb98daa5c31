//! The block `leaks`: reports of leaked keys, and keys that revoke themselves.

use super::configured;
use super::federation::own_path;
use crate::admission::RouteSettings;
use control::leaks::{KEYS, SELF_REVOKE_PATH, Settings};
use control::management::LeakAction;
use control::{dashboard, federation as token_exchange, oidc};
use platform::settings::{Reported, Section, Value};
use platform::tls::ClientSettings;

/// Default path of reports.
const PATH: &str = "/v1/leaks";
const ACTIONS: [(&str, LeakAction); 3] =
    [("disable", LeakAction::Disable), ("revoke", LeakAction::Revoke), ("notify", LeakAction::Notify)];

/// Reads the block `leaks` of the file, where there is one, beside what the others were read as.
pub(super) fn of_file(
    file: &mut Section<'_>,
    routes: &[RouteSettings],
    session: &Result<Option<dashboard::Settings>, Reported>,
    federation: &Result<Option<token_exchange::Settings>, Reported>,
) -> Result<Option<Settings>, Reported> {
    let own = routes.iter().find(|route| route.path == SELF_REVOKE_PATH);
    if let Some(RouteSettings { name, .. }) = own.filter(|_| file.contains("leaks")) {
        let what = "where keys revoke themselves; choose another path for the route";
        file.report("leaks", format_args!("the path of route `{name}` is {SELF_REVOKE_PATH}, {what}"));
    }
    let taken = configured(federation).map(|federation| federation.path.as_str());
    file.optional("leaks", |block| block.section(|section| leaks(section, routes, configured(session), taken)))
}

fn leaks(
    section: &mut Section<'_>,
    routes: &[RouteSettings],
    dashboard: Option<&dashboard::Settings>,
    taken: Option<&str>,
) -> Result<Settings, Reported> {
    let github = section.value_or("github", None, keys_of_github);
    // Without reports, the path is the upstream's.
    let (beside, above) = if github.is_some() { (routes, dashboard) } else { (&[][..], None) };
    let path = own_path(section, PATH, beside, above);
    if path == SELF_REVOKE_PATH || taken == Some(&path) {
        section.report("path", "is that of another endpoint of the gateway; choose another");
    }
    let action = section.value_or("action", LeakAction::default(), |value| value.choice(&ACTIONS));
    let tls = section.optional("tls", |value| value.section(|section| Ok(ClientSettings::read(section))));
    Ok(Settings { path, github, action, tls: tls?.unwrap_or_default() })
}

/// The address of GitHub's keys: `true` for that of github.com, or another for a server of one's own.
fn keys_of_github(value: &Value<'_>) -> Result<Option<String>, Reported> {
    match value.text()?.as_str() {
        "false" => Ok(None),
        "true" => Ok(Some(KEYS.to_owned())),
        text => match oidc::Settings::check_issuer(text) {
            Ok(()) => Ok(Some(text.to_owned())),
            Err(_) => value.reject("give true or false, or the https address of the keys of your own GitHub server"),
        },
    }
}
