//! The keys of a database in a settings file: `url`, `password`, `tls`.

use super::settings::{InvalidUrl, Settings};
use crate::settings::{Reported, Section, Value};
use crate::tls::ClientSettings;
use domain::secret::Secret;

/// Reads `url`, `password` and `tls` of a section.
///
/// - The URL is read as a secret, because it may contain a password: inline, `{file: …}` or `{env: …}`.
/// - TLS files are loaded, so that an error is reported with its place in the file.
///
/// # Errors
/// [`Reported`].
pub fn read_database(section: &mut Section<'_>) -> Result<Settings, Reported> {
    let password = section.optional("password", Value::secret);
    let tls = section.optional("tls", |value| value.section(|section| Ok(ClientSettings::read(section))));
    let url = section.required("url", Value::secret)?;
    read_settings(section, "url", &url, password?.as_ref(), tls?)
}

fn read_settings(
    section: &Section<'_>,
    name: &str,
    url: &Secret,
    password: Option<&Secret>,
    tls: Option<ClientSettings>,
) -> Result<Settings, Reported> {
    if let Some(Err(error)) = tls.as_ref().map(ClientSettings::config) {
        return Err(section.report("tls", error.in_full()));
    }
    let parsed = Settings::parse(url.expose(), tls);
    let mut settings = parsed.map_err(|error: InvalidUrl| section.report(name, error))?;
    if let Some(password) = password {
        if settings.has_password() {
            return Err(section.report("password", "is given twice, here and in `url`; remove one"));
        }
        settings.set_password(password);
    }
    Ok(settings)
}
