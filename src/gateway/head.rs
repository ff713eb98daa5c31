//! The sizes of a head, which the HTTP library leaves to us.

use http::Version;
use http::request::Parts;

use crate::refusal::Refusal;
use crate::transport::Settings;

/// Whether a head is within its limits. On HTTP/1 its bytes were; on HTTP/2 the library takes up to twice as many, so
/// that the refusal can be in words.
pub(super) fn check(head: &Parts, settings: &Settings) -> Result<(), Refusal> {
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
        Version::HTTP_2 => head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum(),
        _ => 0,
    }
}
