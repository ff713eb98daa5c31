//! Reasons why no signature of a provider's key is accepted.

/// Bits of an RSA key's modulus at least (RFC 7518, section 3.3; NIST SP 800-131A).
pub(super) const MIN_RSA_BITS: usize = 2048;
/// Bits of an RSA key's modulus at most, which bounds the work of a verification.
pub(super) const MAX_RSA_BITS: usize = 4096;

/// Reason why no signature of a key is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnfitKey {
    /// The modulus is too short, or too long.
    #[error("it is an RSA key of {0} bits; {MIN_RSA_BITS} to {MAX_RSA_BITS} are accepted")]
    Size(usize),
    /// With a public exponent of 1, every text is its own signature.
    #[error("it is an RSA key whose public exponent is not odd and at least 3")]
    Exponent,
    /// The curve is not that of the algorithm (RFC 7518, section 3.4).
    #[error("its curve does not fit its algorithm")]
    Curve,
    /// `key_ops` lacks `verify`.
    #[error("its `key_ops` lacks `verify`")]
    Operations,
    /// Anyone who reads the key set can sign.
    #[error("its private part is in the key set, so that anyone can sign with it; replace it")]
    Private,
    /// It is no key for the algorithm of the token, or is on no point of its curve.
    #[error("it is no key for the algorithm of the token")]
    Algorithm,
}
