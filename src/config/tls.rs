//! The block `tls` of a listener, and names of servers. The block of outgoing connections is read by `ClientSettings`.

use std::path::PathBuf;

use rustls::pki_types::ServerName;

use domain::secret::Secret;
use platform::outbound::HttpUrl;
use platform::settings::{Reported, Section, Value};
use platform::tls::{CertificateFiles, ClientAuth, ClientSettings, ServerSettings, ServerTls, Version};

/// Shortest ticket key in characters: 32 characters of base64 or hexadecimal are 128 bits at least.
const MIN_TICKET_KEY: usize = 32;

/// Reads the TLS settings of a listener. All files are loaded, so that an error is reported with its place in the file
/// and not first when the gateway starts.
pub(super) fn server(section: &mut Section<'_>) -> Result<ServerSettings, Reported> {
    let certificates = section.required("certificates", certificates);
    let client_auth = client_auth(section);
    let versions = [("1.2", Version::Tls12), ("1.3", Version::Tls13)];
    let minimum = section.value_or("minimum", Version::Tls12, |value| value.choice(&versions));
    let ticket_key = section.optional("ticket_key", ticket_key);
    let settings =
        ServerSettings { certificates: certificates?, client_auth: client_auth?, minimum, ticket_key: ticket_key? };
    match ServerTls::open(&settings) {
        Ok(_) => Ok(settings),
        Err(error) => Err(section.report("certificates", error.in_full())),
    }
}

fn certificates(value: &Value<'_>) -> Result<Vec<CertificateFiles>, Reported> {
    let pairs = value.list(|item| {
        let (chain, key) = item.section(|section| {
            let chain = section.required("chain", Value::path);
            let key = section.required("key", Value::path);
            Ok((chain?, key?))
        })?;
        let pair = CertificateFiles { chain, key };
        pair.check().map(|()| pair).map_err(|error| item.report(error.in_full()))
    })?;
    if pairs.is_empty() { value.reject("is empty; give at least one chain with its key") } else { Ok(pairs) }
}

/// Reads the settings of client certificates; none when clients are not asked for one.
fn client_auth(section: &mut Section<'_>) -> Result<Option<ClientAuth>, Reported> {
    let ca = section.optional("client_ca", client_ca);
    let choices = [("required", true), ("optional", false)];
    let required = section.value_or("client_certificates", true, |value| value.choice(&choices));
    if section.contains("client_certificates") && ca == Ok(None) {
        return Err(section.report("client_certificates", "has no effect without `client_ca`; give both, or neither"));
    }
    Ok(ca?.map(|ca| ClientAuth { ca, required }))
}

fn client_ca(value: &Value<'_>) -> Result<PathBuf, Reported> {
    let clients = ClientAuth { ca: value.path()?, required: true };
    clients.check().map_err(|error| value.report(error.in_full()))?;
    Ok(clients.ca)
}

fn ticket_key(value: &Value<'_>) -> Result<Secret, Reported> {
    let secret = value.secret()?;
    if secret.expose().len() < MIN_TICKET_KEY {
        return value.reject(format_args!(
            "has less than {MIN_TICKET_KEY} characters; make one with `openssl rand -base64 32`"
        ));
    }
    Ok(secret)
}

/// Loads the files of the TLS settings for an address, so that an error is reported with its place. `name` is
/// the key of the address.
pub(super) fn check_for(
    section: &Section<'_>,
    name: &str,
    url: &HttpUrl,
    tls: ClientSettings,
) -> Result<ClientSettings, Reported> {
    if !url.is_encrypted() {
        if section.contains("tls") {
            let what = format_args!("has no effect without `https` in `{name}`; remove one");
            return Err(section.report("tls", what));
        }
        return Ok(tls);
    }
    match tls.config() {
        Ok(_) => Ok(tls),
        Err(error) => Err(section.report("tls", error.in_full())),
    }
}

/// Reads a name that a certificate can be issued for.
pub(super) fn server_name(value: &Value<'_>) -> Result<ServerName<'static>, Reported> {
    let text = value.text()?;
    let name = ServerName::try_from(text.clone());
    name.map_err(|_| value.report(format_args!("`{text}` is not a DNS name or an IP address")))
}
