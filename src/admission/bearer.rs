//! The bearer credential (RFC 6750, section 2.1).

use http::HeaderMap;
use http::header::AUTHORIZATION;

/// A longer token is no key of any system worth importing from, and is not worth hashing.
const MAX_TOKEN: usize = 512;

/// Why there is no token to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BearerError {
    /// No `Authorization`, or another scheme.
    Missing,
    /// Two `Authorization` fields, of which a server behind could read the other one.
    Repeated,
    /// The scheme without a token.
    Empty,
    /// A token that cannot be a key.
    Malformed,
}

/// The token of the one `Authorization: Bearer` field.
pub fn parse_token(headers: &HeaderMap) -> Result<&[u8], BearerError> {
    let mut fields = headers.get_all(AUTHORIZATION).into_iter();
    let field = fields.next().ok_or(BearerError::Missing)?.as_bytes();
    if fields.next().is_some() {
        return Err(BearerError::Repeated);
    }
    let (scheme, rest) = field.split_at_checked(6).ok_or(BearerError::Missing)?;
    if !scheme.eq_ignore_ascii_case(b"bearer") || rest.first().is_some_and(|byte| *byte != b' ') {
        return Err(BearerError::Missing);
    }
    let token = rest.trim_ascii();
    if token.is_empty() {
        return Err(BearerError::Empty);
    }
    let plausible = token.len() <= MAX_TOKEN && token.iter().all(u8::is_ascii_graphic);
    plausible.then_some(token).ok_or(BearerError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(values: &[&str]) -> Result<String, BearerError> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, value.parse().unwrap());
        }
        parse_token(&headers).map(|token| String::from_utf8(token.to_vec()).unwrap())
    }

    #[test]
    fn reads_one_bearer_token() {
        assert_eq!(parsed(&["Bearer abc"]), Ok("abc".into()));
        assert_eq!(parsed(&["bEARER   abc"]), Ok("abc".into()));
        assert_eq!(parsed(&[]), Err(BearerError::Missing));
        assert_eq!(parsed(&["Basic abc"]), Err(BearerError::Missing));
        assert_eq!(parsed(&["Bearerabc"]), Err(BearerError::Missing));
        assert_eq!(parsed(&["Bearer"]), Err(BearerError::Empty));
        assert_eq!(parsed(&["Bearer abc", "Bearer abc"]), Err(BearerError::Repeated));
        assert_eq!(parsed(&["Bearer a b"]), Err(BearerError::Malformed));
        assert_eq!(parsed(&[&format!("Bearer {}", "x".repeat(513))]), Err(BearerError::Malformed));
    }
}
