//! The key in a field of its own, such as `X-API-Key`: one that the configuration lists (`credentials.headers`).

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::bearer;
use domain::head_fields::CredentialFields;
use domain::http_syntax::trim_whitespace;
use domain::refusal::Refusal;

/// Returns the key of the one field that carries it, in a head that has one of `credentials` at least. With
/// `pass_authorization`, `Authorization` is no such field.
///
/// # Errors
/// - [`Refusal::RepeatedCredential`]: there are several fields, with whatever values: a server behind the gateway could
///   read another one.
/// - [`Refusal::EmptyToken`]: the field is empty.
/// - [`Refusal::MalformedKey`]: its value cannot be a key.
pub fn parse_key<'a>(
    headers: &'a HeaderMap,
    credentials: &CredentialFields,
    pass_authorization: bool,
) -> Result<&'a [u8], Refusal> {
    let mut fields = headers.iter().filter(|(name, _)| credentials.contains(name.as_str().as_bytes()));
    let (_, value) = fields.next().expect("the scan has found a field in this head");
    let is_repeated = fields.next().is_some() || !pass_authorization && headers.contains_key(AUTHORIZATION);
    if is_repeated {
        return Err(Refusal::RepeatedCredential);
    }
    bearer::check_token(trim_whitespace(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn parse(fields: &[(&str, &str)], pass_authorization: bool) -> Result<String, Refusal> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let credentials = CredentialFields::new(["X-API-Key", "apikey"].map(|name| name.parse().unwrap()).to_vec());
        parse_key(&headers, &credentials, pass_authorization).map(|key| String::from_utf8(key.to_vec()).unwrap())
    }

    #[test]
    fn key_of_one_field_is_read_in_every_spelling_of_its_name() {
        for name in ["x-api-key", "X-API-KEY", "X_API_Key", "x.api.key", "apikey", "APIKEY"] {
            assert_eq!(parse(&[("accept", "x"), (name, " \tabc\t ")], false), Ok("abc".into()), "{name}");
        }
        assert_eq!(parse(&[("apikey", "")], false), Err(Refusal::EmptyToken));
        assert_eq!(parse(&[("apikey", " \t")], false), Err(Refusal::EmptyToken));
        assert_eq!(parse(&[("apikey", "a b")], false), Err(Refusal::MalformedKey));
        assert_eq!(parse(&[("apikey", "a,b")], false), Ok("a,b".into()), "one value is one key");
        assert_eq!(parse(&[("apikey", &"x".repeat(512))], false), Ok("x".repeat(512)));
        assert_eq!(parse(&[("apikey", &"x".repeat(513))], false), Err(Refusal::MalformedKey));
        assert_eq!(parse(&[("apikey", "k\u{e4}y")], false), Err(Refusal::MalformedKey));
    }

    #[test]
    fn second_field_is_refused_whatever_it_has() {
        for second in
            [("apikey", "abc"), ("apikey", "other"), ("apikey", ""), ("x-api-key", "abc"), ("X_API_KEY", "abc")]
        {
            let fields = [("x-api-key", "abc"), second];
            for pass_authorization in [false, true] {
                assert_eq!(parse(&fields, pass_authorization), Err(Refusal::RepeatedCredential), "{second:?}");
            }
        }
        for authorization in ["Bearer abc", "Bearer other", "Bearer ", "Basic YTpi", ""] {
            let fields = [("x-api-key", "abc"), ("authorization", authorization)];
            assert_eq!(parse(&fields, false), Err(Refusal::RepeatedCredential), "{authorization}");
            assert_eq!(parse(&fields, true), Ok("abc".into()), "{authorization}");
        }
    }
}
