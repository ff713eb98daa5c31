//! Settings of the journal.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use platform::outbound::HttpUrl;
use platform::tls::ClientSettings;
use tlog::key::PublicKey;

/// Settings of the journal.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory of the segments and the index; created when missing, mode 0700.
    pub path: PathBuf,
    /// Durability of a use event before its request is forwarded.
    pub durability: Durability,
    /// Treatment of requests while the journal cannot be written.
    pub on_unavailable: OnUnavailable,
    /// Size in bytes at which a segment is closed.
    pub segment_size: u64,
    /// Age at which a segment is closed.
    pub segment_age: Duration,
    /// Age beyond which closed segments are removed; `None`: never.
    pub retention_age: Option<Duration>,
    /// Total size in bytes of all files of the journal beyond which the oldest closed segments are removed; `None`:
    /// none of its own.
    pub retention_size: Option<u64>,
    /// Limits the total size of all files by the size of their volume: the default, when neither an age nor
    /// a size is configured.
    pub retention_by_volume: bool,
    /// Total size in bytes up to which segments that a sink has not taken are kept beyond these limits, while there is
    /// more free space than the low-water mark.
    pub retention_unshipped: u64,
    /// Free space on the volume below which the journal saves space.
    pub low_water: LowWater,
    /// Maximum number of attempts with unknown keys that are recorded per second; further ones are only counted.
    pub unknown_per_second: u32,
    /// Records of refusals of known keys.
    pub refusals: RefusalRecords,
    /// Addresses of clients in records.
    pub addresses: Addresses,
    /// Name of this gateway in its records.
    pub gateway: String,
    /// Signed checkpoints of the journal; `None`: none, and nothing is hashed.
    pub checkpoints: Option<Checkpoints>,
}

/// Signed checkpoints of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoints {
    /// File of the private key.
    pub key_file: PathBuf,
    /// Name of the tree, which must be that of the key; `None`: that of the key.
    pub origin: Option<String>,
    /// Witnesses that cosign.
    pub witnesses: Vec<Witness>,
}

/// A witness that cosigns checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Prefix of its address, `http` or `https`.
    pub url: HttpUrl,
    /// The key of its cosignatures.
    pub public_key: PublicKey,
    /// TLS by which its certificate is verified.
    pub tls: ClientSettings,
}

impl Witness {
    /// The address to which checkpoints are sent.
    pub(crate) fn target(&self) -> HttpUrl {
        let prefix = self.url.uri().to_string();
        format!("{}/add-checkpoint", prefix.trim_end_matches('/')).parse().unwrap_or_else(|_| self.url.clone())
    }
}

/// Durability of a use event before its request is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Survives the death of the process: the event is in the kernel's page cache.
    Written,
    /// Survives the death of the machine: the event is on disk, by `fdatasync` with group commit.
    Synced,
}

/// Free space on the journal's volume below which records of refusals shrink to counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LowWater {
    /// Part of the volume's size, in percent.
    Percent(u8),
    /// Number of bytes.
    Bytes(u64),
}

impl LowWater {
    /// The mark in bytes, on a volume of this size.
    pub fn bytes(self, total: u64) -> u64 {
        match self {
            Self::Percent(percent) => total / 100 * u64::from(percent),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// Records of refusals of known keys and sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalRecords {
    /// The first ten of a key and outcome within a second are records of their own, the others are
    /// counted in one record.
    Coalesced,
    /// Every refusal is a record of its own.
    Each,
}

/// Treatment of requests while the journal cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnavailable {
    /// Refuses them with 503 `audit_unavailable`; the gateway is not ready.
    Refuse,
    /// Serves them without a record, and counts them: the promise that every use has a record does not hold then.
    ServeUnrecorded,
}

/// Addresses of clients in records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addresses {
    /// As they are.
    #[default]
    Full,
    /// Their networks: the first 24 bits of IPv4, and 48 of IPv6, which tell no person of a house from another one.
    Shortened,
}

impl Addresses {
    /// The address as it is recorded.
    pub fn shown(self, address: IpAddr) -> IpAddr {
        match (self, address) {
            (Self::Full, address) => address,
            (Self::Shortened, IpAddr::V4(address)) => {
                let [a, b, c, _] = address.octets();
                IpAddr::from([a, b, c, 0])
            }
            (Self::Shortened, IpAddr::V6(address)) => {
                let [a, b, c, ..] = address.segments();
                IpAddr::from([a, b, c, 0, 0, 0, 0, 0])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_address_is_that_of_the_network() {
        for (address, shown) in
            [("203.0.113.77", "203.0.113.0"), ("2001:db8:1:2:3:4:5:6", "2001:db8:1::"), ("::1", "::")]
        {
            assert_eq!(Addresses::Shortened.shown(address.parse().unwrap()).to_string(), shown);
            assert_eq!(Addresses::Full.shown(address.parse().unwrap()).to_string(), address);
        }
    }
}
