//! gRPC over HTTP/2, the parts that differ from plain HTTP/2: length-prefixed messages, the status in trailers, and the
//! checks of a call's head (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).

mod call;
mod message;
mod status;

pub use call::{InvalidCall, rpc_path};
pub use message::{MessageError, MessageReader, encode_message};
/// A message of Protocol Buffers.
pub use prost::Message;
pub use status::{Code, response_headers, trailers, trailers_only};
