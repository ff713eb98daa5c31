//! Metrics of exchanges that were ended because their credential was revoked.

metrics! {
    /// Open exchanges that a revocation has ended.
    pub struct TerminationMetrics {
        /// Open exchanges that were ended because their credential was revoked, by what was revoked
        counter "exchanges_terminated_total" { reason } =>
            pub key("key"), pub secret("secret"), pub user("user"), pub org("org"), pub session("session");
    }
}
