//! Redaction of query strings: the values of parameters that are known to hold secrets, and API keys anywhere.

use std::borrow::Cow;

use domain::key;

/// Shown in the place of a secret, as in the semantic conventions of OpenTelemetry.
const REDACTED: &[u8] = b"REDACTED";

/// Names of parameters whose values are secrets: credentials of RFC 6750, OAuth and OpenID Connect, of common APIs, and
/// signatures of links to object stores. In lower case, without `-` and `_`.
const SECRET: &[&str] = &[
    "accesskey",
    "accesstoken",
    "apikey",
    "apitoken",
    "auth",
    "authorization",
    "authtoken",
    "awsaccesskeyid",
    "bearer",
    "clientassertion",
    "clientsecret",
    "code",
    "codeverifier",
    "idtoken",
    "idtokenhint",
    "jwt",
    "key",
    "password",
    "passwd",
    "privatekey",
    "pwd",
    "refreshtoken",
    "secret",
    "session",
    "sessionid",
    "sid",
    "sig",
    "signature",
    "token",
    "xamzcredential",
    "xamzsecuritytoken",
    "xamzsignature",
    "xapikey",
    "xgoogcredential",
    "xgoogsignature",
];

/// Redacts a query string. Parameters keep their names, their order and their encoding.
pub(crate) fn redact(query: &str) -> Cow<'_, [u8]> {
    if !query.split('&').any(has_secret) {
        return key::redact(query.as_bytes());
    }
    let parameters: Vec<Cow<'_, [u8]>> = query.split('&').map(redact_parameter).collect();
    let joined = parameters.join(&b'&');
    Cow::Owned(key::redact(&joined).into_owned())
}

fn redact_parameter(parameter: &str) -> Cow<'_, [u8]> {
    match parameter.split_once('=') {
        Some((name, _)) if is_secret(name) => [name.as_bytes(), b"=", REDACTED].concat().into(),
        _ => parameter.as_bytes().into(),
    }
}

fn has_secret(parameter: &str) -> bool {
    parameter.split_once('=').is_some_and(|(name, _)| is_secret(name))
}

/// Returns whether a name is one of [`SECRET`], in any case, with `-` or `_` between its words, and percent-encoded.
fn is_secret(name: &str) -> bool {
    let decoded = percent_encoding::percent_decode_str(name);
    let letters: Vec<u8> =
        decoded.filter(|byte| byte.is_ascii_alphanumeric()).map(|byte| byte.to_ascii_lowercase()).collect();
    SECRET.iter().any(|secret| secret.as_bytes() == letters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secret_parameters_and_keys_are_redacted() {
        let cases = [
            ("limit=20&cursor=abc", "limit=20&cursor=abc"),
            ("api_key=abc&limit=20", "api_key=REDACTED&limit=20"),
            ("limit=1&API-Key=abc=def", "limit=1&API-Key=REDACTED"),
            ("%61ccess%5Ftoken=abc", "%61ccess%5Ftoken=REDACTED"),
            ("token", "token"),
            ("tokens=3&X-Amz-Signature=ab", "tokens=3&X-Amz-Signature=REDACTED"),
            ("", ""),
            ("&&a=1", "&&a=1"),
        ];
        for (query, shown) in cases {
            assert_eq!(String::from_utf8(redact(query).into_owned()).unwrap(), shown);
        }
        let secret = "a".repeat(43);
        let shown = redact("q=sk_live_abcDEF123_SECRET").into_owned();
        assert_eq!(shown, b"q=sk_live_abcDEF123_SECRET", "too short to be a key");
        let shown = String::from_utf8(redact(&format!("q=sk_live_abcDEF123_{secret}&token=x")).into_owned()).unwrap();
        assert_eq!(shown, "q=sk_live_abcDEF123_…&token=REDACTED");
    }
}
