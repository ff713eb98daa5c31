//! The harness that all test binaries share: waiting, ports, random numbers, clients, upstreams, gateways, Redis
//! and PostgreSQL servers.
//!
//! - Everything runs on real sockets of loopback, in directories of its own, and ends with its handle.
//! - A condition is awaited ([`eventually`], [`until`]), never slept for.
//! - [`Gateway`] runs in the test's process, [`process`] starts the binary.

pub mod wait;
pub mod ports;
pub mod listeners;
pub mod random;
pub mod strict;
pub mod client;
pub mod updates;
pub mod http2;
pub mod upstream;
pub mod upstream_blocks;
pub mod hyper_upstream;
pub mod traffic;
pub mod load;
pub mod decide;
pub mod dns;
pub mod gate;
pub mod collector;
pub mod gateway;
pub mod process;
pub mod ended;
pub mod files;
pub mod page;
pub mod shell;
pub mod small_disk;
pub mod story;
pub mod redis;
pub mod postgresql;
pub mod stepped_clock;

pub use client::{Client, Response, head, mistyped};
pub use collector::{Collector, ReceivedSpan};
pub use dns::NameServer;
pub use ended::Ended;
pub use gate::GatedUpstream;
pub use gateway::{Gateway, Key, metric};
pub use http2::{fetch_http2, over_http2, over_http2_on};
pub use hyper_upstream::{HyperOptions, HyperUpstream};
pub use listeners::{await_refusal, listen_at};
pub use load::Load;
pub use ports::{free_address, free_port};
pub use postgresql::Postgresql;
pub use process::{KEYGATE, Running, Setup};
pub use random::Random;
pub use shell::Shell;
pub use small_disk::SmallDisk;
pub use stepped_clock::SteppedClock;
pub use story::Story;
pub use strict::{is_strict, lenient};
pub use traffic::{Answer, part_of, traffic, traffic_of};
pub use upstream::Upstream;
pub use wait::{SetOnDrop, eventually, eventually_by, exit_status, until};
