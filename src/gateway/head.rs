//! What can be refused by a request's head alone, before anybody is asked who sent it.

use http::header::HOST;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, Method, Version};

use super::rejection::Reason;
use crate::transport::Settings;

/// Sizes that the HTTP library leaves to us, and requests that a server behind us could read otherwise than we do.
pub(super) fn check(head: &Parts, settings: &Settings) -> Result<(), Reason> {
    let Some(target) = head.uri.path_and_query() else { return Err(Reason::Malformed) };
    if head.method == Method::CONNECT || head.method == Method::TRACE {
        return Err(Reason::Malformed);
    }
    if target.as_str().len() > settings.max_target {
        return Err(Reason::TargetTooLong);
    }
    if head.headers.len() > settings.max_fields || size(head) > settings.max_head {
        return Err(Reason::HeadTooLarge);
    }
    if !has_one_host(head) {
        return Err(Reason::Malformed);
    }
    Ok(())
}

/// About the bytes of the head. On HTTP/1 the library has counted them; on HTTP/2 it counts up to twice as many.
fn size(head: &Parts) -> usize {
    match head.version {
        Version::HTTP_2 => head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum(),
        _ => 0,
    }
}

/// Exactly one valid host (RFC 9112, section 3.2): of the target where that has one, else of the field. HTTP/1.0 may do
/// without.
fn has_one_host(head: &Parts) -> bool {
    let mut fields = head.headers.get_all(HOST).into_iter();
    let field = fields.next();
    if fields.next().is_some() || !field.is_none_or(is_host) {
        return false;
    }
    match head.version {
        Version::HTTP_11 => field.is_some(),
        Version::HTTP_2 => field.is_some() || head.uri.authority().is_some(),
        _ => true,
    }
}

fn is_host(value: &HeaderValue) -> bool {
    let authority = Authority::try_from(value.as_bytes());
    authority.is_ok_and(|authority| !authority.host().is_empty() && !authority.as_str().contains('@'))
}
