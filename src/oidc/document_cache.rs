//! The provider's documents: read when they are needed, kept for a while.
//!
//! - The discovery document is kept for an hour, and longer while the provider cannot give a new one. What it says last
//!   is what counts.
//! - Keys are kept for an hour, and never longer: one that the provider has withdrawn must not be believed.
//! - A key that is not among those kept makes us ask once more, at most every ten seconds, whatever comes: bad tokens
//!   cannot make us burden the provider.
//! - Locks are held for a look, and never over an await.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use openidconnect::core::CoreJsonWebKeySet;
use openidconnect::url::Url;

use super::error::{Error, InvalidProviderResponse, ProviderEndpoint};
use super::http::{Answer, Http, HttpError};
use super::metadata::{self, Metadata};
use crate::clock::Micros;

/// How long a document is good.
const FRESH: Duration = Duration::from_secs(3600);
/// How long an old discovery document is used before another attempt at a new one.
const RETRY: Duration = Duration::from_secs(30);
/// Between two looks for a key that is not known.
const BETWEEN_LOOKS: Duration = Duration::from_secs(10);

/// The documents of one provider, shared by all threads.
pub(super) struct Documents {
    issuer: String,
    discovery: Url,
    metadata: Mutex<Option<Kept<Metadata>>>,
    keys: Mutex<Option<Kept<Keys>>>,
    /// When keys were last read because one was not known.
    looked: Mutex<Option<Micros>>,
}

/// A provider's keys, and where they are from.
pub(super) struct Keys {
    from: Url,
    pub(super) set: CoreJsonWebKeySet,
}

struct Kept<T> {
    value: Arc<T>,
    until: Micros,
}

impl<T> Kept<T> {
    fn is_fresh(&self, now: Micros) -> bool {
        now < self.until
    }
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), until: self.until }
    }
}

impl Documents {
    /// Those of an issuer, of which nothing is known yet.
    pub(super) fn new(issuer: &str, address: &Url) -> Self {
        Self {
            issuer: issuer.to_owned(),
            discovery: metadata::address(address),
            metadata: Mutex::default(),
            keys: Mutex::default(),
            looked: Mutex::default(),
        }
    }

    /// What the provider says of itself.
    ///
    /// # Errors
    /// When it has never said it, and cannot now; when what it says now is of no use.
    pub(super) async fn metadata(&self, http: &Http, now: Micros) -> Result<Arc<Metadata>, Error> {
        let kept = locked(&self.metadata).clone();
        if let Some(fresh) = kept.as_ref().filter(|kept| kept.is_fresh(now)) {
            return Ok(Arc::clone(&fresh.value));
        }
        let read = self.read_metadata(http).await;
        let (value, good_for) = match (read, kept) {
            (Ok(value), _) => (Arc::new(value), FRESH),
            (Err(error @ Error::Unreachable(..)), Some(old)) => {
                let error = error.in_full();
                tracing::warn!(issuer = self.issuer, %error, "the provider's old discovery document goes on being used");
                (old.value, RETRY)
            }
            (Err(error), _) => return Err(error),
        };
        *locked(&self.metadata) = Some(Kept { value: Arc::clone(&value), until: now.after(good_for) });
        Ok(value)
    }

    /// The provider's keys.
    ///
    /// # Errors
    /// When none are kept, and none can be read.
    pub(super) async fn keys(&self, http: &Http, from: &Url, now: Micros) -> Result<Arc<Keys>, Error> {
        let kept = locked(&self.keys).clone();
        match kept.filter(|kept| kept.is_fresh(now) && kept.value.from == *from) {
            Some(fresh) => Ok(fresh.value),
            None => self.read_keys(http, from, now).await,
        }
    }

    /// Other keys than these; none when there are none, or when they were looked for a moment ago.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(super) async fn other_keys(
        &self,
        http: &Http,
        than: &Arc<Keys>,
        now: Micros,
    ) -> Result<Option<Arc<Keys>>, Error> {
        let kept = locked(&self.keys).clone();
        if let Some(other) = kept.filter(|kept| !Arc::ptr_eq(&kept.value, than) && kept.is_fresh(now)) {
            return Ok(Some(other.value));
        }
        if !self.may_look(now) {
            return Ok(None);
        }
        self.read_keys(http, &than.from, now).await.map(Some)
    }

    fn may_look(&self, now: Micros) -> bool {
        let mut looked = locked(&self.looked);
        let may = looked.is_none_or(|last| now >= last.after(BETWEEN_LOOKS));
        if may {
            *looked = Some(now);
        }
        may
    }

    async fn read_metadata(&self, http: &Http) -> Result<Metadata, Error> {
        let answer = get(http, &self.discovery, ProviderEndpoint::Discovery).await?;
        Metadata::parse(&answer.body, &self.issuer)
    }

    async fn read_keys(&self, http: &Http, from: &Url, now: Micros) -> Result<Arc<Keys>, Error> {
        let answer = get(http, from, ProviderEndpoint::Keys).await?;
        let set = serde_json::from_slice(&answer.body);
        let set = set.map_err(|error| {
            Error::InvalidResponse(ProviderEndpoint::Keys, InvalidProviderResponse::of_json(&error))
        })?;
        let value = Arc::new(Keys { from: from.clone(), set });
        *locked(&self.keys) = Some(Kept { value: Arc::clone(&value), until: now.after(FRESH) });
        Ok(value)
    }
}

async fn get(http: &Http, url: &Url, document: ProviderEndpoint) -> Result<Answer, Error> {
    let answer = http.get(url, None).await.map_err(|error| no_answer(document, error))?;
    if answer.status == StatusCode::OK {
        Ok(answer)
    } else {
        Err(Error::InvalidResponse(document, InvalidProviderResponse::Status(answer.status)))
    }
}

/// Whether the provider is away, or answers badly.
pub(super) fn no_answer(document: ProviderEndpoint, error: HttpError) -> Error {
    if error.is_absence() {
        Error::Unreachable(document, error)
    } else {
        Error::InvalidResponse(document, InvalidProviderResponse::Http(error))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
