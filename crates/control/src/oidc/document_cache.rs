//! Cache of a provider's discovery document and key set, which are read when they are needed.
//!
//! - The discovery document is cached for an hour, and longer while the provider is unavailable. The newest one counts.
//! - The key set is cached for an hour, and never longer: a key that the provider has withdrawn must not be accepted.
//! - A token with an unknown key makes the gateway read the key set again, at most every ten seconds: bad tokens cannot
//!   make it load the provider.
//! - Locks are held for a lookup, and never over an await. Two sign-ins may so read the same document at the same time.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use url::Url;

use super::error::Error;
use super::http::{HttpClient, HttpError, HttpResponse};
use super::invalid_response::{InvalidProviderResponse, ProviderEndpoint};
use super::key_set::KeySet;
use super::metadata::{self, Metadata};
use super::unfit_key::UnfitKey;
use domain::clock::{self, Micros};

/// Time for which a document is fresh.
const FRESH: Duration = Duration::from_secs(3600);
/// Time for which a stale discovery document is used before the next attempt to read a new one.
const STALE_RETRY: Duration = Duration::from_secs(30);
/// Time between two reads of the key set for unknown keys.
const KEY_REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// Reads a discovery document of an issuer.
type ParseMetadata<M> = fn(&[u8], &str) -> Result<M, Error>;

/// Document cache of one provider, shared by all threads. `M` is what is read of its discovery document.
pub(super) struct DocumentCache<M = Metadata> {
    issuer: String,
    discovery: Url,
    parse: ParseMetadata<M>,
    metadata: Mutex<Option<Cached<M>>>,
    keys: Mutex<Option<Cached<CachedKeys>>>,
    /// Time at which the key set was last read because of an unknown key.
    last_refresh: Mutex<Option<Micros>>,
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

/// Key set of a provider, and the address that it was read from.
pub(super) struct CachedKeys {
    from: Url,
    pub(super) set: KeySet,
}

struct Cached<T> {
    value: Arc<T>,
    until: Micros,
}

impl<T> Cached<T> {
    fn is_fresh(&self, now: Micros) -> bool {
        now < self.until
    }
}

impl<T> Clone for Cached<T> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), until: self.until }
    }
}

impl<M> DocumentCache<M> {
    /// An empty cache for the documents of this issuer.
    pub(super) fn new(issuer: &str, address: &Url, parse: ParseMetadata<M>) -> Self {
        Self {
            issuer: issuer.to_owned(),
            discovery: metadata::discovery_url(address),
            parse,
            metadata: Mutex::default(),
            keys: Mutex::default(),
            last_refresh: Mutex::default(),
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

    /// The provider's key set, from the cache or the provider.
    ///
    /// # Errors
    /// [`Error::Unreachable`] and [`Error::InvalidResponse`], when no fresh one is cached.
    pub(super) async fn keys(&self, http: &HttpClient, from: &Url, now: Micros) -> Result<Arc<CachedKeys>, Error> {
        let cached = self.keys.lock().clone();
        match cached.filter(|cached| cached.is_fresh(now) && cached.value.from == *from) {
            Some(fresh) => Ok(fresh.value),
            None => self.read_keys(http, from, now).await,
        }
    }

    /// Reads both documents, whatever is cached. `keys_at` is the address of the key set.
    ///
    /// # Errors
    /// As [`Self::metadata`] and [`Self::keys`].
    pub(super) async fn examine(&self, http: &HttpClient, keys_at: fn(&M) -> &Url) -> Result<Examination, Error> {
        let response = get(http, &self.discovery, ProviderEndpoint::Discovery).await?;
        let received = clock::now();
        let metadata = (self.parse)(&response.body, &self.issuer)?;
        let set = parse_keys(&get(http, keys_at(&metadata), ProviderEndpoint::Keys).await?)?;
        let seconds = |time: Micros| time.0.cast_signed() / 1_000_000;
        let clock_ahead = response.date.map(|date| seconds(date) - seconds(received));
        Ok(Examination { keys: set.keys.len(), refused: set.refused().to_vec(), clock_ahead })
    }

    /// A newer key set than this one, after a key was unknown; none when the last refresh was a moment ago.
    ///
    /// # Errors
    /// [`Error::Unreachable`] and [`Error::InvalidResponse`].
    pub(super) async fn refresh_keys(
        &self,
        http: &HttpClient,
        old: &Arc<CachedKeys>,
        now: Micros,
    ) -> Result<Option<Arc<CachedKeys>>, Error> {
        // Another sign-in may have read a newer one since.
        let cached = self.keys.lock().clone();
        if let Some(newer) = cached.filter(|cached| !Arc::ptr_eq(&cached.value, old) && cached.is_fresh(now)) {
            return Ok(Some(newer.value));
        }
        if !self.claim_refresh(now) {
            return Ok(None);
        }
        self.read_keys(http, &old.from, now).await.map(Some)
    }

    /// Claims the next refresh; returns whether it is due.
    fn claim_refresh(&self, now: Micros) -> bool {
        let mut last = self.last_refresh.lock();
        let due = last.is_none_or(|last| now >= last.after(KEY_REFRESH_INTERVAL));
        if due {
            *last = Some(now);
        }
        due
    }

    async fn read_metadata(&self, http: &HttpClient) -> Result<M, Error> {
        let response = get(http, &self.discovery, ProviderEndpoint::Discovery).await?;
        (self.parse)(&response.body, &self.issuer)
    }

    async fn read_keys(&self, http: &HttpClient, from: &Url, now: Micros) -> Result<Arc<CachedKeys>, Error> {
        let response = get(http, from, ProviderEndpoint::Keys).await?;
        let set = parse_keys(&response)?;
        let value = Arc::new(CachedKeys { from: from.clone(), set });
        *self.keys.lock() = Some(Cached { value: Arc::clone(&value), until: now.after(FRESH) });
        Ok(value)
    }
}

fn parse_keys(response: &HttpResponse) -> Result<KeySet, Error> {
    KeySet::parse(&response.body)
        .map_err(|error| invalid(ProviderEndpoint::Keys, InvalidProviderResponse::from_json(&error)))
}

async fn get(http: &HttpClient, url: &Url, endpoint: ProviderEndpoint) -> Result<HttpResponse, Error> {
    let response = http.get(url, None).await.map_err(|error| classify_http_error(endpoint, error))?;
    if response.status == StatusCode::OK {
        Ok(response)
    } else {
        Err(invalid(endpoint, InvalidProviderResponse::Status(response.status)))
    }
}

/// Tells an endpoint that is unavailable from one that answers with something else than HTTP.
pub(super) fn classify_http_error(endpoint: ProviderEndpoint, error: HttpError) -> Error {
    if error.is_temporary() {
        Error::Unreachable(endpoint, error)
    } else {
        invalid(endpoint, InvalidProviderResponse::Http(error))
    }
}

fn invalid(endpoint: ProviderEndpoint, error: InvalidProviderResponse) -> Error {
    Error::InvalidResponse(endpoint, error)
}
