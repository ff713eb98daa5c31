//! One worker's access to an upstream.

use edge::forward::PassedFields;
use upstream::Pool;

/// One worker's access to an upstream.
pub struct Upstream {
    /// Connections.
    pub pool: Pool,
    /// Spoofable fields of clients that reach the upstream.
    pub passed_fields: PassedFields,
}
