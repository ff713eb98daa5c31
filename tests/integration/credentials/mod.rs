//! `credentials.headers`: a key in a field of its own is a credential like `Authorization: Bearer`, there is one
//! credential in all places together, and no such field reaches an upstream.

mod http1;
mod http2;
mod either_place;
mod configuration;
mod redaction;
mod websocket;
mod converted;

use control::management::{self, KeyImport, PolicyUpdate};
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::support::gateway::OPERATOR;
use crate::support::{Gateway, Key, Upstream};

/// Two fields for keys, and more requests than any test makes.
const BLOCKS: &str = "credentials: { headers: [X-API-Key, apikey] }\nlimits: { key: { requests: 1000000, per: 1s }, \
                      bad_keys: { requests: 1000000, per: 1s } }\n";

/// Spellings of the listed fields: as they are, in another case, and as servers fold them.
const SPELLINGS: [&str; 8] =
    ["X-API-Key", "x-api-key", "X-Api-KEY", "X_API_Key", "X.API.Key", "X-API_Key", "apikey", "APIKEY"];

fn start(upstream: &Upstream) -> Gateway {
    Gateway::with(&[upstream.address], BLOCKS)
}

/// A head without a credential of its own.
fn bare(method: &str, path: &str, fields: &[(&str, &str)]) -> String {
    crate::support::head(method, path, "", fields, 0)
}

/// Asserts that nothing of what an upstream has received has the secret, or a field that may carry a key.
#[track_caller]
fn assert_unseen(upstream: &Upstream, secret: &str) {
    let folded = |name: &str| name.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    for received in upstream.received() {
        let is_clean = |(name, value): &(String, String)| {
            !["x-api-key", "apikey", "authorization"].contains(&&*folded(name)) && !value.contains(secret)
        };
        assert!(received.headers.iter().all(is_clean), "{received:?}");
        assert!(!received.line.contains(secret), "{received:?}");
        assert!(!received.body.windows(secret.len()).any(|window| window == secret.as_bytes()), "{received:?}");
    }
}

/// Another key of the same user, as an older system made it: only its digest is imported.
fn import(gateway: &Gateway, key: &Key, text: &str) {
    let (org, user, sha256) = (&key.org.to_string(), &key.user.to_string(), &HEXLOWER.encode(&Sha256::digest(text)));
    let (name, policy) = ("imported", PolicyUpdate::default());
    let (id, limits, plan, quota) = (None, None, None, None);
    let import = KeyImport { org, user, sha256, id, name, limits, plan, quota, policy, disabled: false };
    gateway.perform(async |to, now| management::import_key(to, OPERATOR, import, now).await);
}
