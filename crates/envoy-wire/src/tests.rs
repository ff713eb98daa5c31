//! Tests of the crate as a whole: the bytes of Envoy and of its `.proto` files, and bytes of anybody.

mod envoy;
mod golden;
mod hostile_bytes;
