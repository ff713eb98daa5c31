//! HTTP/2 frames (RFC 9113, section 4.1), scanned before the HTTP library reads them.

mod scanner;

pub use scanner::{Flood, FrameScanner};
