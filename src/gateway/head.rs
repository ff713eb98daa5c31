//! Validation of request heads, with the sizes that the HTTP library does not limit.

use http::Version;
use http::request::Parts;

use super::rejection::HeadRefusal;
use domain::head_fields::FieldSet;
use domain::refusal::Refusal;
use edge::forward::ValidatedHead;
use edge::transport::Settings;

/// Bytes that HTTP/1.1 adds to a field: colon, space and line end. HTTP/2 heads are measured as if they had them.
const FIELD_OVERHEAD: usize = 4;

/// Validates a head. `fields` are those of a head that transport has scanned strictly: it is not read again.
pub(super) fn validate(
    head: Parts,
    fields: Option<FieldSet>,
    settings: &Settings,
) -> Result<ValidatedHead, HeadRefusal> {
    match fields {
        Some(fields) => Ok(ValidatedHead::from_scanned(head, fields)?),
        None => {
            check_size(&head, settings)?;
            Ok(ValidatedHead::validate(head, &settings.credentials)?)
        }
    }
}

/// Checks the size of a head that was not scanned. On HTTP/2 the library accepts up to twice as many bytes, so that an
/// oversized head gets a response instead of a reset stream.
fn check_size(head: &Parts, settings: &Settings) -> Result<(), Refusal> {
    if head.uri.path_and_query().is_some_and(|target| target.as_str().len() > settings.max_target) {
        return Err(Refusal::TargetTooLong);
    }
    if head.headers.len() > settings.max_fields || size(head) > settings.max_head {
        return Err(Refusal::HeadTooLarge);
    }
    Ok(())
}

fn size(head: &Parts) -> usize {
    match head.version {
        Version::HTTP_2 => {
            head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_OVERHEAD).sum()
        }
        _ => 0,
    }
}
