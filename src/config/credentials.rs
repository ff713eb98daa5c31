//! The block `credentials`: places, beside `Authorization: Bearer`, in which clients may send their API key.

use domain::head_fields::{CredentialField, CredentialFields, MAX_CREDENTIAL_FIELDS};
use platform::settings::{Reported, Section, Value};

/// Reads the block `credentials`; no fields when there is none.
pub(super) fn credentials(section: &mut Section<'_>) -> Result<CredentialFields, Reported> {
    let fields = section.optional("headers", headers).map(Option::unwrap_or_default);
    let has_basic = section.value_or("basic", false, |value| value.boolean());
    Ok(CredentialFields::with_basic(fields?, has_basic))
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
