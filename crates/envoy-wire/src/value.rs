//! Values without a schema, as metadata is: `google/protobuf/struct.proto`; and times: `timestamp.proto` and
//! `duration.proto` there.

use std::collections::BTreeMap;
use std::time;

/// Object of named values.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Struct {
    /// The values by their names.
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, Value>,
}

/// Value of any kind of JSON.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Value {
    /// The value.
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    pub kind: Option<Kind>,
}

/// Kind of a value.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    /// `null`: always 0.
    #[prost(int32, tag = "1")]
    NullValue(i32),
    /// Number.
    #[prost(double, tag = "2")]
    NumberValue(f64),
    /// Text.
    #[prost(string, tag = "3")]
    StringValue(String),
    /// Truth value.
    #[prost(bool, tag = "4")]
    BoolValue(bool),
    /// Object.
    #[prost(message, tag = "5")]
    StructValue(Struct),
    /// List.
    #[prost(message, tag = "6")]
    ListValue(ListValue),
}

/// List of values.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListValue {
    /// The values.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Value>,
}

/// Moment, since the begin of 1970.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Timestamp {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds after them.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// Span of time.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Duration {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds after them.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl<N: Into<String>, V: Into<Value>> FromIterator<(N, V)> for Struct {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(members: I) -> Self {
        Self { fields: members.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self { kind: Some(Kind::StringValue(text)) }
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self { kind: Some(Kind::NumberValue(number)) }
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self { kind: Some(Kind::BoolValue(truth)) }
    }
}

impl From<Struct> for Value {
    fn from(object: Struct) -> Self {
        Self { kind: Some(Kind::StructValue(object)) }
    }
}

impl From<Vec<Value>> for Value {
    fn from(values: Vec<Value>) -> Self {
        Self { kind: Some(Kind::ListValue(ListValue { values })) }
    }
}

/// Spans over the range of the type, 292 thousand million years, are cut to it.
impl From<time::Duration> for Duration {
    fn from(span: time::Duration) -> Self {
        let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
        Self { seconds, nanos: span.subsec_nanos().cast_signed() }
    }
}
