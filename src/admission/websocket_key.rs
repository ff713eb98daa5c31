//! The key that a page offers among the subprotocols of a WebSocket (RFC 6455, section 4.1), because browsers set no
//! fields there: `Sec-WebSocket-Protocol: keygate.v1, keygate.key.<base64url of the key>`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use http::header::SEC_WEBSOCKET_PROTOCOL;
use http::request::Parts;

use super::bearer;
use domain::refusal::Refusal;

/// Beginning of the subprotocol that has the key.
const KEY_PREFIX: &[u8] = b"keygate.key.";

/// Key that was taken out of an offer; or why there is none. Among the extensions of the head, so that nothing that
/// logs or forwards fields meets it.
#[derive(Clone)]
pub struct OfferedKey(Result<Vec<u8>, Refusal>);

impl OfferedKey {
    /// The key.
    ///
    /// # Errors
    /// - [`Refusal::RepeatedCredential`]: there are several.
    /// - [`Refusal::EmptyToken`] and [`Refusal::MalformedKey`]: what is there cannot be a key.
    pub(super) fn key(&self) -> Result<&[u8], Refusal> {
        bearer::check_token(self.0.as_ref().map_err(|refusal| *refusal)?)
    }
}

/// Takes the subprotocols with a key out of an offer, and `marker`, the one by which the offer of a key is recognized.
/// Returns whether it was there: the response then names it, unless the upstream has chosen another one.
pub fn take(head: &mut Parts, marker: &str) -> bool {
    let is_key = |item: &[u8]| item.get(..KEY_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(KEY_PREFIX));
    let fields = head.headers.get_all(SEC_WEBSOCKET_PROTOCOL);
    let items = || fields.iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let mut keys = items().filter(|item| is_key(item)).map(|item| &item[KEY_PREFIX.len()..]);
    let Some(key) = keys.next() else { return false };
    let is_marked = items().any(|item| item == marker.as_bytes());
    let key = match keys.next() {
        Some(_) => Err(Refusal::RepeatedCredential),
        None => URL_SAFE_NO_PAD.decode(key).map_err(|_| Refusal::MalformedKey),
    };
    let rest: Vec<&[u8]> = items().filter(|item| !is_key(item) && *item != marker.as_bytes()).collect();
    let rest = (!rest.is_empty()).then(|| HeaderValue::from_bytes(&rest.join(&b", "[..])));
    match rest {
        Some(Ok(rest)) => drop(head.headers.insert(SEC_WEBSOCKET_PROTOCOL, rest)),
        _ => drop(head.headers.remove(SEC_WEBSOCKET_PROTOCOL)),
    }
    if is_marked {
        head.extensions.insert(OfferedKey(key));
    }
    is_marked
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const KEY: &str = "kg_abc";

    /// The rest of an offer, and its key.
    fn taken(fields: &[&str]) -> (Vec<String>, Option<Result<String, Refusal>>) {
        let encoded = URL_SAFE_NO_PAD.encode(KEY);
        let mut request = Request::get("/");
        for field in fields {
            request = request.header(SEC_WEBSOCKET_PROTOCOL, field.replace("KEY", &encoded));
        }
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        let is_marked = take(&mut head, "keygate.v1");
        let left = head.headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().map(|value| value.to_str().unwrap().to_owned());
        let key = head.extensions.get::<OfferedKey>();
        assert_eq!(is_marked, key.is_some());
        (left.collect(), key.map(|key| key.key().map(|key| String::from_utf8(key.to_vec()).unwrap())))
    }

    #[test]
    fn key_is_taken_and_the_upstream_sees_the_rest() {
        let key = || Some(Ok(KEY.to_owned()));
        for (fields, left) in [
            (&["keygate.v1, keygate.key.KEY"][..], &[][..]),
            (&["keygate.key.KEY,keygate.v1"], &[]),
            (&["chat, keygate.v1, keygate.key.KEY, superchat"], &["chat, superchat"]),
            (&["chat", "keygate.v1", "keygate.key.KEY"], &["chat"]),
            (&["keygate.v1, KeyGate.Key.KEY"], &[]),
        ] {
            assert_eq!(taken(fields), (left.iter().map(|left| (*left).to_owned()).collect(), key()), "{fields:?}");
        }
    }

    #[test]
    fn second_key_and_what_is_no_key_are_refused_and_gone() {
        for (field, refusal) in [
            ("keygate.v1, keygate.key.KEY, keygate.key.KEY", Refusal::RepeatedCredential),
            ("keygate.v1, keygate.key.KEY, keygate.key.", Refusal::RepeatedCredential),
            ("keygate.v1, keygate.key.", Refusal::EmptyToken),
            ("keygate.v1, keygate.key.KEY=", Refusal::MalformedKey),
            ("keygate.v1, keygate.key.a", Refusal::MalformedKey),
            ("keygate.v1, keygate.key.YSBi", Refusal::MalformedKey),
        ] {
            assert_eq!(taken(&[field]), (vec![], Some(Err(refusal))), "{field}");
        }
    }

    #[test]
    fn offer_without_the_marker_or_a_key_is_no_credential() {
        assert_eq!(taken(&["chat, keygate.key.KEY"]), (vec!["chat".to_owned()], None), "never forwarded");
        for field in ["chat", "keygate.v1, chat", "keygate.keys"] {
            assert_eq!(taken(&[field]), (vec![field.to_owned()], None));
        }
        assert_eq!(taken(&[]), (vec![], None));
    }
}
