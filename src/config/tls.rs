//! The blocks `tls`: of a listener, of the upstream, of Redis.

use std::path::PathBuf;

use rustls::pki_types::ServerName;

use crate::secret::Secret;
use crate::settings::{Section, Value};
use crate::tls::{CertificateFiles, ClientAuth, ClientSettings, ServerSettings, ServerTls, Version};

/// Characters that a ticket key must have: 32 of base64 or hexadecimal are 128 bits at least.
const MIN_TICKET_KEY: usize = 32;

/// How a listener is encrypted. Whatever could fail when it starts is tried here, where its place is known.
pub(super) fn server(section: &mut Section<'_>) -> Option<ServerSettings> {
    let certificates = section.required("certificates", certificates);
    let clients = clients(section);
    let versions = [("1.2", Version::Tls12), ("1.3", Version::Tls13)];
    let minimum = section.optional("minimum", Version::Tls12, |value| value.choice(&versions));
    let ticket_key = section.maybe("ticket_key", |value| Some(ticket_key(value)));
    let settings = ServerSettings {
        certificates: certificates?,
        client_auth: clients?,
        minimum,
        ticket_key: ticket_key.flatten(),
    };
    match ServerTls::open(&settings) {
        Ok(_) => Some(settings),
        Err(error) => {
            section.report("certificates", error.in_full());
            None
        }
    }
}

fn certificates(value: &Value<'_>) -> Option<Vec<CertificateFiles>> {
    let pairs = value.list(|item| {
        let (chain, key) = item.section(|section| {
            let (chain, key) = (section.required("chain", Value::path), section.required("key", Value::path));
            chain.zip(key)
        })?;
        let pair = CertificateFiles { chain, key };
        pair.check().map_or_else(|error| item.reject(error.in_full()), |()| Some(pair))
    })?;
    if pairs.is_empty() { value.reject("is empty; give at least one chain with its key") } else { Some(pairs) }
}

/// Who clients must be certified by; nothing at all after a problem.
#[allow(clippy::option_option, reason = "the inner one is a value, the outer one says whether it could be read")]
fn clients(section: &mut Section<'_>) -> Option<Option<ClientAuth>> {
    let given = section.contains("client_ca");
    let ca = section.maybe("client_ca", |value| client_ca(value));
    let choices = [("required", true), ("optional", false)];
    let required = section.optional("client_certificates", true, |value| value.choice(&choices));
    if section.contains("client_certificates") && !given {
        section.report("client_certificates", "is of no use without `client_ca`; give both, or neither");
        return None;
    }
    match ca {
        Some(ca) => Some(Some(ClientAuth { ca, required })),
        None => (!given).then_some(None),
    }
}

fn client_ca(value: &Value<'_>) -> Option<PathBuf> {
    let clients = ClientAuth { ca: value.path()?, required: true };
    clients.check().map_or_else(|error| value.reject(error.in_full()), |()| Some(clients.ca))
}

fn ticket_key(value: &Value<'_>) -> Option<Secret> {
    let secret = value.secret()?;
    if secret.expose().len() < MIN_TICKET_KEY {
        return value.reject(format_args!(
            "has less than {MIN_TICKET_KEY} characters; make one with `openssl rand -base64 32`"
        ));
    }
    Some(secret)
}

/// Whom we believe and who we are.
pub(super) fn client(section: &mut Section<'_>) -> ClientSettings {
    let ca = section.maybe("ca", Value::readable_file);
    let certificate = section.maybe("certificate", Value::readable_file);
    let key = section.maybe("key", Value::readable_file);
    for (name, other) in [("certificate", "key"), ("key", "certificate")] {
        if section.contains(name) && !section.contains(other) {
            section.report(name, format_args!("is of no use without `{other}`; give both, or neither"));
        }
    }
    let identity = certificate.zip(key).map(|(chain, key)| CertificateFiles { chain, key });
    ClientSettings { ca, identity }
}

/// A name that a certificate can be for.
pub(super) fn server_name(value: &Value<'_>) -> Option<ServerName<'static>> {
    let text = value.text()?;
    let name = ServerName::try_from(text.clone());
    name.map_or_else(|_| value.reject(format_args!("`{text}` is not a DNS name or an IP address")), Some)
}
