//! The block `http`: sizes of requests, HTTP/2 windows, and numbers of connections.

use edge::transport::Settings;
use platform::settings::{Reported, Section, Value};

/// Largest number of connections that can be configured: more than the memory of any machine holds.
const MOST_CONNECTIONS: usize = 1 << 20;
/// Default number of connections in total: what each may hold fits into the memory of every server.
const CONNECTIONS: usize = 20_000;
/// Default number of connections from one address.
const CONNECTIONS_PER_ADDRESS: usize = 1000;

/// The block `http`.
pub(super) struct Http {
    /// The sizes; its time-outs are the defaults.
    pub(super) transport: Settings,
    pub(super) max_connections: usize,
    pub(super) max_connections_per_address: usize,
}

/// Reads the block `http`.
pub(super) fn http(section: &mut Section<'_>) -> Http {
    let transport = sizes(section);
    let mut connections = |name, most| section.value_or(name, most, |value| value.integer(1..=MOST_CONNECTIONS));
    let max_connections = connections("max_connections", CONNECTIONS);
    let per_address = connections("max_connections_per_address", CONNECTIONS_PER_ADDRESS.min(max_connections));
    if transport.max_target > transport.max_head {
        section.report("max_target", "is larger than `max_head`, of which it is a part; make it smaller");
    }
    Http { transport, max_connections, max_connections_per_address: per_address }
}

fn sizes(section: &mut Section<'_>) -> Settings {
    let default = Settings::default();
    let window =
        |value: &Value<'_>| value.size(65_535..=1 << 30).map(|size| u32::try_from(size).expect("at most 1 GiB"));
    Settings {
        // hyper reads no head into less than 8 KiB.
        max_head: section.value_or("max_head", default.max_head, |value| head_size(value, 8 << 10)),
        max_fields: section.value_or("max_fields", default.max_fields, |value| value.integer(1..=10_000)),
        max_target: section.value_or("max_target", default.max_target, |value| head_size(value, 1024)),
        max_body: section.value_or("max_body", default.max_body, |value| value.size(0..=1 << 50)),
        max_streams: section.value_or("max_streams", default.max_streams, |value| value.integer(1..=65_536)),
        stream_window: section.value_or("stream_window", default.stream_window, window),
        connection_window: section.value_or("connection_window", default.connection_window, window),
        min_body_rate: section.value_or("min_body_rate", default.min_body_rate, |value| value.size(0..=1 << 30)),
        ..default
    }
}

/// Bytes of a head or of a part of it: `least` to 1 MiB.
fn head_size(value: &Value<'_>, least: u64) -> Result<usize, Reported> {
    value.size(least..=1 << 20).map(|size| usize::try_from(size).expect("at most 1 MiB"))
}
