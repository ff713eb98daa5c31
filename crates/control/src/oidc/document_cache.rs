//! Cache of a provider's discovery document and key set, which are read when they are needed.
//!
//! - The discovery document is cached for an hour, and longer while the provider is unavailable. The newest one counts.
//! - The key set has a cache of its own ([`KeyCache`]).
//! - Locks are held for a lookup, and never over an await. Two sign-ins may so read the same document at the same time.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use url::Url;

use super::error::Error;
use super::http::HttpClient;
use super::invalid_response::ProviderEndpoint;
use super::key_cache::{Cached, KeyCache, get, parse_keys};
use super::key_set::KeySet;
use super::metadata::{self, Metadata};
use super::unfit_key::UnfitKey;
use domain::clock::{self, Micros};

/// Time for which a document is fresh.
const FRESH: Duration = Duration::from_secs(3600);
/// Time for which a stale discovery document is used before the next attempt to read a new one.
const STALE_RETRY: Duration = Duration::from_secs(30);
/// Time between two reads of the key set for unknown keys.
const KEY_REFRESH: Duration = Duration::from_secs(10);

/// Reads a discovery document of an issuer.
type ParseMetadata<M> = fn(&[u8], &str) -> Result<M, Error>;

/// Document cache of one provider, shared by all threads. `M` is what is read of its discovery document.
pub(super) struct DocumentCache<M = Metadata> {
    issuer: String,
    discovery: Url,
    parse: ParseMetadata<M>,
    metadata: Mutex<Option<Cached<M>>>,
    pub(super) keys: KeyCache<KeySet>,
}

/// Result of an examination of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examination {
    /// Number of the keys that signatures are accepted of.
    pub keys: usize,
    /// The other keys: their ids, and why.
    pub refused: Vec<(Option<String>, UnfitKey)>,
    /// Seconds by which the provider's clock is ahead; none when it sends no `Date`.
    pub clock_ahead: Option<i64>,
}

impl<M> DocumentCache<M> {
    /// An empty cache for the documents of this issuer.
    pub(super) fn new(issuer: &str, address: &Url, parse: ParseMetadata<M>) -> Self {
        Self {
            issuer: issuer.to_owned(),
            discovery: metadata::discovery_url(address),
            parse,
            metadata: Mutex::default(),
            keys: KeyCache::new(KeySet::parse, KEY_REFRESH),
        }
    }

    /// The provider's metadata, from the cache or the provider.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when nothing is cached; [`Error::InvalidResponse`] and [`Error::IssuerMismatch`].
    pub(super) async fn metadata(&self, http: &HttpClient, now: Micros) -> Result<Arc<M>, Error> {
        let cached = self.metadata.lock().clone();
        if let Some(fresh) = cached.as_ref().filter(|cached| cached.is_fresh(now)) {
            return Ok(Arc::clone(&fresh.value));
        }
        let read = self.read_metadata(http).await;
        let (value, good_for) = match (read, cached) {
            (Ok(value), _) => (Arc::new(value), FRESH),
            // Endpoints rarely change, so sign-ins go on with the stale ones while only the discovery is unavailable.
            (Err(error @ Error::Unreachable(..)), Some(stale)) => {
                let error = error.in_full();
                tracing::warn!(issuer = self.issuer, %error, "cannot read the discovery document; using the stale one");
                (stale.value, STALE_RETRY)
            }
            // An invalid document is the provider's newest word: the stale one would hide a wrong configuration.
            (Err(error), _) => return Err(error),
        };
        *self.metadata.lock() = Some(Cached { value: Arc::clone(&value), until: now.after(good_for) });
        Ok(value)
    }

    /// Reads both documents, whatever is cached. `keys_at` is the address of the key set.
    ///
    /// # Errors
    /// As [`Self::metadata`] and [`KeyCache::get`].
    pub(super) async fn examine(&self, http: &HttpClient, keys_at: fn(&M) -> &Url) -> Result<Examination, Error> {
        let response = get(http, &self.discovery, ProviderEndpoint::Discovery).await?;
        let received = clock::now();
        let metadata = (self.parse)(&response.body, &self.issuer)?;
        let set = parse_keys(KeySet::parse, &get(http, keys_at(&metadata), ProviderEndpoint::Keys).await?)?;
        let seconds = |time: Micros| time.0.cast_signed() / 1_000_000;
        let clock_ahead = response.date.map(|date| seconds(date) - seconds(received));
        Ok(Examination { keys: set.keys.len(), refused: set.refused().to_vec(), clock_ahead })
    }

    async fn read_metadata(&self, http: &HttpClient) -> Result<M, Error> {
        let response = get(http, &self.discovery, ProviderEndpoint::Discovery).await?;
        (self.parse)(&response.body, &self.issuer)
    }
}
