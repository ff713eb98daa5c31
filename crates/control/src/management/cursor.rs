//! Cursors of lists: the position at which the next page begins, sealed so that clients can neither read nor change it.
//!
//! - It is a [`sealed text`](super::sealed_text) whose subject are the list, the organization and the filters, so that
//!   it opens only for the query that it was made for.
//! - A cursor does not expire: its position is valid whatever was added or removed since.

use std::fmt::Display;
use std::str::FromStr;

use serde::Serialize;

use super::sealed_text::TextSealer;
use super::{Management, ManagementError};
use domain::page::{InvalidCursor, Page};
use state::CursorSecret;

/// Purpose of the sealed texts; a change of the positions gets the next number.
const PURPOSE: &str = "keygate list cursors 1";
/// Characters of a token at most: a position with a name has up to 450 bytes, others have up to 100.
const MAX_TEXT: usize = 700;

/// Seals and opens the cursors of one query.
pub(super) struct CursorSealer(TextSealer);

/// The sealer for a query: the name of the list, and all that decides which entries it has in which order.
pub(super) async fn cursor_sealer(
    management: &Management,
    query: &impl Serialize,
) -> Result<CursorSealer, ManagementError> {
    Ok(CursorSealer::new(&management.state.cursor_secret().await?, query))
}

impl CursorSealer {
    fn new(secret: &CursorSecret, query: &impl Serialize) -> Self {
        Self(TextSealer::new(secret, PURPOSE, query))
    }

    /// The page with a cursor in place of the position of the next page.
    pub(super) fn seal<T, P: Display>(&self, page: Page<T, P>) -> Result<Page<T>, ManagementError> {
        let next = page.next.map(|position| self.0.seal(&position.to_string())).transpose()?;
        Ok(Page { items: page.items, next })
    }

    /// The position in a cursor; none without a cursor.
    pub(super) fn open<P: FromStr>(&self, cursor: Option<&str>) -> Result<Option<P>, InvalidCursor> {
        let open =
            |token| self.0.open(token, MAX_TEXT).and_then(|text| text.expose().parse().ok()).ok_or(InvalidCursor);
        cursor.map(open).transpose()
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;
    use domain::clock::Micros;
    use state::KeyPosition;

    fn sealer(query: &impl Serialize) -> CursorSealer {
        CursorSealer::new(&CursorSecret::from_bytes([7; 32]), query)
    }

    fn position() -> KeyPosition {
        KeyPosition { created: Micros(u64::MAX), id: "abcDEF123".parse().unwrap() }
    }

    fn token(sealer: &CursorSealer) -> String {
        sealer.seal(Page { items: vec![()], next: Some(position()) }).unwrap().next.unwrap()
    }

    #[test]
    fn cursor_opens_for_its_query_alone() {
        let own = sealer(&("keys", "org_1", "filter"));
        let cursor = token(&own);
        assert_eq!(own.open(Some(&cursor)), Ok(Some(position())));
        assert_eq!(own.open::<KeyPosition>(None), Ok(None));
        assert_ne!(token(&own), cursor, "nonces are fresh");
        for other in [("keys", "org_2", "filter"), ("keys", "org_1", "other"), ("users", "org_1", "filter")] {
            assert_eq!(sealer(&other).open::<KeyPosition>(Some(&cursor)), Err(InvalidCursor), "{other:?}");
        }
        let secret = CursorSecret::from_bytes([8; 32]);
        let elsewhere = CursorSealer::new(&secret, &("keys", "org_1", "filter"));
        assert_eq!(elsewhere.open::<KeyPosition>(Some(&cursor)), Err(InvalidCursor));
    }

    #[test]
    fn changed_cursor_is_invalid() {
        let own = sealer(&"keys");
        let cursor = token(&own);
        assert!(cursor.len() <= MAX_TEXT, "{}", cursor.len());
        let bytes = URL_SAFE_NO_PAD.decode(&cursor).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(own.open::<KeyPosition>(Some(&URL_SAFE_NO_PAD.encode(flipped))), Err(InvalidCursor), "{bit}");
        }
        for end in 0..cursor.len() {
            assert_eq!(own.open::<KeyPosition>(Some(&cursor[..end])), Err(InvalidCursor), "{end}");
        }
        for text in [format!("{cursor}="), format!("{cursor}A"), "1-2".to_owned(), "é".to_owned()] {
            assert_eq!(own.open::<KeyPosition>(Some(&text)), Err(InvalidCursor), "{text}");
        }
    }
}
