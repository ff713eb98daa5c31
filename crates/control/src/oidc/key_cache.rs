//! Cache of the keys of a signer: an identity provider, the issuer of a CI's tokens, or GitHub.
//!
//! - They are cached for an hour, and never longer: a key that the signer has withdrawn must not be accepted.
//! - An unknown key makes the gateway read them again, but not more often than in an interval: what is not signed
//!   cannot make it load the signer.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use url::Url;

use super::error::Error;
use super::http::{HttpClient, HttpError, HttpResponse};
use super::invalid_response::{InvalidProviderResponse, ProviderEndpoint};
use domain::clock::Micros;

/// Time for which keys are fresh.
const FRESH: Duration = Duration::from_secs(3600);

/// Reads the keys of a document.
type ParseKeys<K> = fn(&[u8]) -> serde_json::Result<K>;

/// Cache of one signer's keys, shared by all threads.
pub(crate) struct KeyCache<K> {
    parse: ParseKeys<K>,
    /// Time between two reads for unknown keys.
    refresh_interval: Duration,
    keys: Mutex<Option<Cached<CachedKeys<K>>>>,
    /// Time of the last read for an unknown key.
    last_refresh: Mutex<Option<Micros>>,
}

/// Keys of a signer, and the address that they were read from.
pub(crate) struct CachedKeys<K> {
    from: Url,
    pub(crate) set: K,
}

/// Document, and the time until which it is fresh.
pub(super) struct Cached<T> {
    pub(super) value: Arc<T>,
    pub(super) until: Micros,
}

impl<T> Cached<T> {
    pub(super) fn is_fresh(&self, now: Micros) -> bool {
        now < self.until
    }
}

impl<T> Clone for Cached<T> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), until: self.until }
    }
}

impl<K> KeyCache<K> {
    /// An empty cache.
    pub(crate) fn new(parse: ParseKeys<K>, refresh_interval: Duration) -> Self {
        Self { parse, refresh_interval, keys: Mutex::default(), last_refresh: Mutex::default() }
    }

    /// The keys, from the cache or the signer.
    ///
    /// # Errors
    /// [`Error::Unreachable`] and [`Error::InvalidResponse`], when no fresh ones are cached.
    pub(crate) async fn get(&self, http: &HttpClient, from: &Url, now: Micros) -> Result<Arc<CachedKeys<K>>, Error> {
        let cached = self.keys.lock().clone();
        match cached.filter(|cached| cached.is_fresh(now) && cached.value.from == *from) {
            Some(fresh) => Ok(fresh.value),
            None => self.read(http, from, now).await,
        }
    }

    /// Newer keys than these, after one was unknown; none when the last refresh was a moment ago.
    ///
    /// # Errors
    /// [`Error::Unreachable`] and [`Error::InvalidResponse`].
    pub(crate) async fn refresh(
        &self,
        http: &HttpClient,
        old: &Arc<CachedKeys<K>>,
        now: Micros,
    ) -> Result<Option<Arc<CachedKeys<K>>>, Error> {
        // Another request may have read newer ones since.
        let cached = self.keys.lock().clone();
        if let Some(newer) = cached.filter(|cached| !Arc::ptr_eq(&cached.value, old) && cached.is_fresh(now)) {
            return Ok(Some(newer.value));
        }
        if !self.claim_refresh(now) {
            return Ok(None);
        }
        self.read(http, &old.from, now).await.map(Some)
    }

    /// Claims the next refresh; returns whether it is due.
    fn claim_refresh(&self, now: Micros) -> bool {
        let mut last = self.last_refresh.lock();
        let due = last.is_none_or(|last| now >= last.after(self.refresh_interval));
        if due {
            *last = Some(now);
        }
        due
    }

    async fn read(&self, http: &HttpClient, from: &Url, now: Micros) -> Result<Arc<CachedKeys<K>>, Error> {
        let set = parse_keys(self.parse, &get(http, from, ProviderEndpoint::Keys).await?)?;
        let value = Arc::new(CachedKeys { from: from.clone(), set });
        *self.keys.lock() = Some(Cached { value: Arc::clone(&value), until: now.after(FRESH) });
        Ok(value)
    }
}

pub(super) fn parse_keys<K>(parse: ParseKeys<K>, response: &HttpResponse) -> Result<K, Error> {
    parse(&response.body).map_err(|error| invalid(ProviderEndpoint::Keys, InvalidProviderResponse::from_json(&error)))
}

/// Reads a document of a signer.
pub(super) async fn get(http: &HttpClient, url: &Url, endpoint: ProviderEndpoint) -> Result<HttpResponse, Error> {
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

pub(super) fn invalid(endpoint: ProviderEndpoint, error: InvalidProviderResponse) -> Error {
    Error::InvalidResponse(endpoint, error)
}
