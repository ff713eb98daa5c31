//! Fields of a head, and changes of them: `envoy/config/core/v3/base.proto`.
//!
//! A field has two places for its value, and each protocol reads one: `ext_authz` reads `value` of an answer,
//! `ext_proc` reads `raw_value`, and fails when both are set. They differ as well in the place that says to add a field
//! to others of its name. The constructors of the protocols fill the right ones.

use std::fmt;

use bytes::Bytes;

/// One field of a head. `Debug` shows its name, and lengths in place of values.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct HeaderValue {
    /// Name; Envoy sends it in lower case, pseudo-fields with their colon.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Value as text.
    #[prost(string, tag = "2")]
    pub value: String,
    /// Value as bytes.
    #[prost(bytes = "bytes", tag = "3")]
    pub raw_value: Bytes,
}

/// The fields of a head in their order, each as often as it is there.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HeaderMap {
    /// The fields.
    #[prost(message, repeated, tag = "1")]
    pub headers: Vec<HeaderValue>,
}

/// One field to set.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HeaderValueOption {
    /// The field.
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderValue>,
    /// Addition to fields of the same name; deprecated, and the only one that `ext_proc` reads: without it, the field
    /// replaces them. When it is there, `ext_authz` joins values by commas.
    #[prost(message, optional, tag = "2")]
    pub append: Option<bool>,
    /// Relation to fields of the same name, for `ext_authz`.
    #[prost(enumeration = "HeaderAppendAction", tag = "3")]
    pub append_action: i32,
    /// Keeps a field whose value is empty.
    #[prost(bool, tag = "4")]
    pub keep_empty_value: bool,
}

/// Relation of a field to set to fields of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum HeaderAppendAction {
    /// One more field.
    AppendIfExistsOrAdd = 0,
    /// Nothing when there is one.
    AddIfAbsent = 1,
    /// In place of all others.
    OverwriteIfExistsOrAdd = 2,
    /// Nothing when there is none.
    OverwriteIfExists = 3,
}

impl HeaderValue {
    /// A field as `ext_authz` reads it.
    pub(crate) fn text(key: String, value: String) -> Self {
        Self { key, value, raw_value: Bytes::new() }
    }

    /// A field as `ext_proc` reads it.
    pub(crate) fn raw(key: String, raw_value: Bytes) -> Self {
        Self { key, value: String::new(), raw_value }
    }
}

impl HeaderMap {
    /// Names and values, as Envoy sends them: in `raw_value`.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers.iter().map(|field| (field.key.as_str(), field.raw_value.as_ref()))
    }
}

impl HeaderValueOption {
    /// The name of the field.
    pub fn name(&self) -> &str {
        self.header.as_ref().map_or("", |header| &header.key)
    }

    /// Instructions that leave exactly `fields` of their names: the first of a name replaces what is there, further
    /// ones are added. `append` of those is what the protocol needs.
    pub(crate) fn replacing(fields: impl Iterator<Item = HeaderValue>, append: Option<bool>) -> Vec<Self> {
        let mut options: Vec<Self> = Vec::with_capacity(fields.size_hint().0);
        for header in fields {
            let keep_empty_value = header.value.is_empty() && header.raw_value.is_empty();
            let is_repeated = options.iter().any(|option| option.name().eq_ignore_ascii_case(&header.key));
            let option = Self { keep_empty_value, header: Some(header), ..Self::default() };
            options.push(if is_repeated {
                Self { append, append_action: HeaderAppendAction::AppendIfExistsOrAdd.into(), ..option }
            } else {
                Self { append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(), ..option }
            });
        }
        options
    }
}

impl fmt::Debug for HeaderValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeaderValue")
            .field("key", &self.key)
            .field("value", &format_args!("{} bytes", self.value.len()))
            .field("raw_value", &format_args!("{} bytes", self.raw_value.len()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_field_of_a_name_replaces_and_further_ones_are_added() {
        let fields = [("RateLimit", "a"), ("www-authenticate", "b"), ("ratelimit", "c"), ("x-tag", "")];
        let fields = fields.map(|(key, value)| HeaderValue::text(key.to_owned(), value.to_owned()));
        let options = HeaderValueOption::replacing(fields.into_iter(), Some(true));
        let actions: Vec<_> =
            options.iter().map(|option| (option.name(), option.append_action, option.append)).collect();
        let expected =
            [("RateLimit", 2, None), ("www-authenticate", 2, None), ("ratelimit", 0, Some(true)), ("x-tag", 2, None)];
        assert_eq!(actions, expected);
        assert_eq!(
            options.iter().map(|option| option.keep_empty_value).collect::<Vec<_>>(),
            [false, false, false, true]
        );
    }

    #[test]
    fn debug_hides_values() {
        let text = HeaderValue::text("authorization".to_owned(), "Bearer secret".to_owned());
        let raw = HeaderValue::raw("cookie".to_owned(), Bytes::from_static(b"secret"));
        let shown = format!("{:?}", HeaderMap { headers: vec![text, raw] });
        assert!(shown.contains("authorization") && shown.contains("cookie"), "{shown}");
        assert!(!shown.contains("secret") && !shown.contains("115"), "{shown}");
    }
}
