//! `tracestate`: what tracing systems say to themselves, passed on as it came (section 3.3 of the Recommendation).

use http::{HeaderMap, HeaderValue};

use super::{TRACESTATE, trim};

/// Members at most.
const MAX_MEMBERS: usize = 32;
/// Characters of a key, and of a value, at most.
const MAX_TEXT: usize = 256;
/// Characters of the two parts of a key with `@`, at most.
const MAX_TENANT: usize = 241;
const MAX_SYSTEM: usize = 14;

/// A valid `tracestate` of at least one member. Several fields are one list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceState(String);

impl TraceState {
    /// Reads the fields of a head; none when there is no member, or the list is invalid.
    pub(super) fn read(headers: &HeaderMap) -> Option<Self> {
        let fields: Vec<&[u8]> = headers.get_all(TRACESTATE).iter().map(HeaderValue::as_bytes).collect();
        Self::parse(&fields.join(&b','))
    }

    fn parse(list: &[u8]) -> Option<Self> {
        // An empty member is allowed, and says nothing.
        let members: Vec<&[u8]> =
            list.split(|byte| *byte == b',').map(trim).filter(|member| !member.is_empty()).collect();
        let mut keys = Vec::with_capacity(members.len());
        for member in &members {
            let (key, value) = split_member(member)?;
            if !is_key(key) || !is_value(value) || keys.contains(&key) {
                return None;
            }
            keys.push(key);
        }
        let is_valid = !members.is_empty() && members.len() <= MAX_MEMBERS;
        let text = is_valid.then(|| String::from_utf8(members.join(&b',')).ok())?;
        text.map(Self)
    }

    /// The members, separated by commas.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value of the field.
    pub fn header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.0).expect("keys and values are printable ASCII")
    }
}

fn split_member(member: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = member.iter().position(|byte| *byte == b'=')?;
    Some((&member[..at], &member[at + 1..]))
}

/// `simple-key / multi-tenant-key`.
fn is_key(key: &[u8]) -> bool {
    match key.iter().position(|byte| *byte == b'@') {
        None => is_name(key, MAX_TEXT, false),
        Some(at) => is_name(&key[..at], MAX_TENANT, true) && is_name(&key[at + 1..], MAX_SYSTEM, false),
    }
}

/// A part of a key, which begins with a letter, or also with a digit.
fn is_name(name: &[u8], longest: usize, may_begin_with_digit: bool) -> bool {
    let is_start = |byte: &u8| byte.is_ascii_lowercase() || may_begin_with_digit && byte.is_ascii_digit();
    let is_rest = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/".contains(byte);
    name.len() <= longest && name.first().is_some_and(is_start) && name.iter().all(is_rest)
}

/// Printable ASCII without commas and equals signs. The spaces at its end were cut off.
fn is_value(value: &[u8]) -> bool {
    let is_character = |byte: &u8| matches!(byte, b' '..=b'~') && !b",=".contains(byte);
    (1..=MAX_TEXT).contains(&value.len()) && value.iter().all(is_character)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(fields: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(TRACESTATE, field.parse().unwrap());
        }
        TraceState::read(&headers).map(|state| state.0)
    }

    #[test]
    fn members_are_passed_on_in_their_order() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read(&["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"]), some("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"));
        assert_eq!(read(&["a=1", "b=2 , ,\tc=3"]), some("a=1,b=2,c=3"), "several fields are one list");
        assert_eq!(
            read(&["fw529a3039@dt=FfAAAAABAAAA,0t@s/*-_=!~ x"]),
            some("fw529a3039@dt=FfAAAAABAAAA,0t@s/*-_=!~ x")
        );
        assert_eq!(read(&["", " ,"]), None);
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn invalid_list_is_none() {
        let long = |length| "x".repeat(length);
        for member in
            ["a", "=1", "a=", "A=1", "1=1", "a=b=c", "a@=1", "@a=1", "a@1=1", "a@b@c=1", "a b=1", "a=1,a=2", "a =1"]
        {
            assert_eq!(read(&["ok=1", member]), None, "{member}");
        }
        for (longest, longer) in [
            (format!("{}=1", long(256)), format!("{}=1", long(257))),
            (format!("a={}", long(256)), format!("a={}", long(257))),
            (format!("{}@{}=1", long(241), long(14)), format!("{}@{}=1", long(242), long(14))),
            (format!("{}@{}=1", long(241), long(14)), format!("{}@{}=1", long(241), long(15))),
        ] {
            assert_eq!(read(&[&longest]), Some(longest.clone()));
            assert_eq!(read(&[&longer]), None);
        }
        let members = |count: usize| (0..count).map(|n| format!("k{n}=1")).collect::<Vec<_>>().join(",");
        assert_eq!(read(&[&members(32)]), Some(members(32)));
        assert_eq!(read(&[&members(33)]), None);
    }

    proptest! {
        #[test]
        fn list_of_valid_members_comes_back(
            members in prop::collection::btree_map(
                "[a-z][a-z0-9_*/-]{0,20}|[a-z0-9][a-z0-9_*/-]{0,20}@[a-z][a-z0-9_*/-]{0,13}",
                    "[ -+.-<>-~]{0,20}[!-+.-<>-~]", 1..32),
        ) {
            let list: Vec<String> = members.iter().map(|(key, value)| format!("{key}={value}")).collect();
            prop_assert_eq!(read(&[&list.join(" ,\t")]), Some(list.join(",")));
        }

        #[test]
        fn any_list_is_valid_as_it_was_read(list in "[a-zA-Z0-9@=,;~_* \t/-]{0,60}") {
            if let Some(text) = read(&[&list]) {
                prop_assert_eq!(read(&[&text]), Some(text.clone()));
            }
        }
    }
}
