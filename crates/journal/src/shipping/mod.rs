//! Shipping of the audit: a shipper for each sink follows the journal, and delivers its records.
//!
//! ```text
//! journal --RecordStream--> Batch --Sink::deliver--> PostgreSQL, …
//!            ^                          |
//!            +------ position <---------+   kept by the sink, or in a file beside the journal
//! ```
//!
//! - **At least once, in order for each gateway, exactly once by id.** A position is made durable with the delivery, or
//!   after it: after a crash, records come again, and a sink that knows their ids changes nothing.
//! - **A request waits for the journal only.** A shipper runs on a thread of its own, reads the journal's files, and
//!   holds one batch in memory. When its sink is away, the journal keeps what it has not taken.
//! - **One record for each use**: when its outcome is known. PostgreSQL also gets uses that stay open, as
//!   `in_progress`, and their outcome later; the outcome `aborted` of a gateway that died comes from its next
//!   start, as in the journal.
//! - `steps`: what a shipper does next, without I/O; `shipper`: performs that for one sink; `running_shipper`: its end;
//!   `shippers`: all of them, through start, reload, hand-over and stop.
//! - `sink`: the sinks, and their failures (`sink_error`); `postgresql`: the tables; `files`: compressed objects;
//!   `webhook`: signed messages over HTTP; `otlp`: log records of OpenTelemetry; `syslog`: messages over TLS.
//! - `message_progress`: messages of a batch that fails in the midst of it; `isolation`: the record that a sink
//!   refuses, alone; `rejected_file`: what was refused.
//! - `trial`: one record that is no shipper's.
//! - `needs`: the segments for which retention waits.
//! - `position_file`: positions that sinks do not keep themselves.

mod settings;
mod position_file;
mod needs;
mod batch;
mod sink_error;
mod sink;
mod postgresql;
mod ndjson;
mod message;
mod rejected_file;
mod isolation;
mod message_progress;
mod files;
mod webhook;
mod otlp;
mod syslog;
mod status;
mod steps;
mod shipper;
mod running_shipper;
mod shippers;
mod trial;

// Decisions without I/O, which the simulation of many shippers drives.
pub use batch::OPEN_AFTER;
pub use platform::outbound::delivery::Retry;
pub use steps::{PartEnd, ShipAction, ShipEvent, ShipSteps};

pub use otlp::PATH as OTLP_PATH;
pub use postgresql::SCHEMA;
pub use settings::{
    Destination, FACILITIES, FilesSettings, OtlpSettings, PostgresqlSettings, Settings, ShippedRecords, SinkSettings,
    SyslogSettings, WebhookSettings,
};
pub use shippers::{Shippers, StartError};
pub use sink::OpenError;
pub use status::{SinkDefect, SinkReport, SinkState};
pub use trial::{TrialError, try_sink};
pub use webhook::{InvalidSecret, check_secret};
