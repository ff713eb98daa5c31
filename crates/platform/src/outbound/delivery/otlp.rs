//! Parts that all messages of OTLP have: resource, scope and attributes.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

/// Type of the content.
pub const PROTOBUF: &str = "application/x-protobuf";

/// The resource that messages are of: this program, as a service and an instance of it.
pub fn resource(service: &str, instance: &str) -> Resource {
    let attributes = vec![
        text("service.name", service),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("service.instance.id", instance),
    ];
    Resource { attributes, ..Resource::default() }
}

/// The scope of this program.
pub fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "keygate".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

/// An attribute that is a text.
pub fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

/// An attribute that is a number.
pub fn number(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
