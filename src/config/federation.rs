//! The block `federation`: the endpoint where CIs exchange tokens of their own identity for keys.

use super::{configured, session};
use crate::admission::RouteSettings;
use control::dashboard;
use control::federation::Settings;
use platform::settings::{Reported, Section};
use platform::tls::ClientSettings;

/// Default path of the endpoint.
const PATH: &str = "/v1/token";

/// Reads the block `federation` of the file, where there is one, beside what the others were read as.
pub(super) fn of_file(
    file: &mut Section<'_>,
    routes: &[RouteSettings],
    session: &Result<Option<dashboard::Settings>, Reported>,
) -> Result<Option<Settings>, Reported> {
    let dashboard = configured(session);
    file.optional("federation", |block| block.section(|section| federation(section, routes, dashboard)))
}

/// Reads the block. No route may be for the endpoint's path alone, and the dashboard not above it.
fn federation(
    section: &mut Section<'_>,
    routes: &[RouteSettings],
    dashboard: Option<&dashboard::Settings>,
) -> Result<Settings, Reported> {
    let path = own_path(section, PATH, routes, dashboard);
    let tls = section.optional("tls", |value| value.section(|section| Ok(ClientSettings::read(section))));
    Ok(Settings { path, tls: tls?.unwrap_or_default() })
}

/// Reads the path of an endpoint of the gateway's own, which neither a route nor the dashboard may have.
pub(super) fn own_path(
    section: &mut Section<'_>,
    default: &str,
    routes: &[RouteSettings],
    dashboard: Option<&dashboard::Settings>,
) -> String {
    let path = section.value_or("path", default.to_owned(), session::path);
    if let Some(route) = routes.iter().find(|route| route.path == path) {
        let name = &route.name;
        section.report("path", format_args!("is that of route `{name}`, which would get no request; choose another"));
    }
    if dashboard.is_some_and(|dashboard| dashboard.contains_path(&path)) {
        section.report("path", "is below that of the dashboard; choose another");
    }
    path
}
