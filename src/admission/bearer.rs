//! The bearer credential (RFC 6750, section 2.1).

use http::HeaderMap;
use http::header::AUTHORIZATION;

use domain::key;
use domain::refusal::Refusal;

/// Returns the token of the one `Authorization: Bearer` field.
///
/// # Errors
/// - [`Refusal::NoCredential`]: there is no `Authorization` field, or its scheme is another one.
/// - [`Refusal::RepeatedCredential`]: there are several, of which a server behind the gateway
///   could read another one.
/// - [`Refusal::EmptyToken`]: the scheme comes without a token.
/// - [`Refusal::MalformedKey`]: the token cannot be a key.
pub fn parse_token(headers: &HeaderMap) -> Result<&[u8], Refusal> {
    let mut fields = headers.get_all(AUTHORIZATION).into_iter();
    let field = fields.next().ok_or(Refusal::NoCredential)?.as_bytes();
    if fields.next().is_some() {
        return Err(Refusal::RepeatedCredential);
    }
    let (scheme, rest) = field.split_at_checked(6).ok_or(Refusal::NoCredential)?;
    if !scheme.eq_ignore_ascii_case(b"bearer") || rest.first().is_some_and(|byte| *byte != b' ') {
        return Err(Refusal::NoCredential);
    }
    check_token(rest.trim_ascii())
}

/// Returns a token that can be a key.
///
/// # Errors
/// - [`Refusal::EmptyToken`]: there is none.
/// - [`Refusal::MalformedKey`]: it cannot be a key.
pub(super) fn check_token(token: &[u8]) -> Result<&[u8], Refusal> {
    if token.is_empty() {
        return Err(Refusal::EmptyToken);
    }
    // The hash is computed of nothing else.
    key::has_key_characters(token).then_some(token).ok_or(Refusal::MalformedKey)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(values: &[&str]) -> Result<String, Refusal> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, value.parse().unwrap());
        }
        parse_token(&headers).map(|token| String::from_utf8(token.to_vec()).unwrap())
    }

    #[test]
    fn one_bearer_token_is_read() {
        assert_eq!(parse(&["Bearer abc"]), Ok("abc".into()));
        assert_eq!(parse(&["bEARER   abc"]), Ok("abc".into()));
        assert_eq!(parse(&[]), Err(Refusal::NoCredential));
        assert_eq!(parse(&["Basic abc"]), Err(Refusal::NoCredential));
        assert_eq!(parse(&["Bearerabc"]), Err(Refusal::NoCredential));
        assert_eq!(parse(&["Bearer"]), Err(Refusal::EmptyToken));
        assert_eq!(parse(&["Bearer abc", "Bearer abc"]), Err(Refusal::RepeatedCredential));
        assert_eq!(parse(&["Bearer a b"]), Err(Refusal::MalformedKey));
        assert_eq!(parse(&[&format!("Bearer {}", "x".repeat(513))]), Err(Refusal::MalformedKey));
    }
}
