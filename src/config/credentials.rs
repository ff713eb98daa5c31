//! The block `credentials`: places, beside `Authorization: Bearer`, in which clients may send their API key.

use domain::head_fields::{CredentialField, CredentialFields, MAX_CREDENTIAL_FIELDS};
use platform::settings::{Reported, Section, Value};

/// Reads the block `credentials`; no fields when there is none.
pub(super) fn credentials(section: &mut Section<'_>) -> Result<CredentialFields, Reported> {
    let fields = section.optional("headers", headers).map(Option::unwrap_or_default);
    let has_basic = section.value_or("basic", false, |value| value.boolean());
    let websocket_protocol = section.optional("websocket_protocol", websocket_protocol);
    Ok(CredentialFields::of(fields?, has_basic, websocket_protocol?))
}

/// Reads a subprotocol of WebSockets, which is a token (RFC 6455, section 4.1).
fn websocket_protocol(value: &Value<'_>) -> Result<Box<str>, Reported> {
    let text = value.text()?;
    let is_token = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if !is_token || text.to_ascii_lowercase().starts_with("keygate.key.") {
        return value.reject(format_args!("`{text}` is not the name of a subprotocol, such as keygate.v1"));
    }
    Ok(text.into())
}

fn headers(value: &Value<'_>) -> Result<Vec<CredentialField>, Reported> {
    let mut seen: Vec<CredentialField> = Vec::new();
    let fields = value.list(|item| {
        let name = item.text()?;
        let field: CredentialField = name.parse().or_else(|error| item.reject(format_args!("`{name}` {error}")))?;
        if CredentialFields::new(seen.clone()).contains(name.as_bytes()) {
            return item.reject(format_args!("`{name}` is listed already; remove one"));
        }
        seen.push(field.clone());
        Ok(field)
    })?;
    if fields.len() > MAX_CREDENTIAL_FIELDS {
        return value
            .reject(format_args!("has more than {MAX_CREDENTIAL_FIELDS} fields; list those that clients send"));
    }
    Ok(fields)
}
