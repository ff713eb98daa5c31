//! Behaviour of the hostile provider: what it does differently from a good one.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::super::signing::{SigningKey, unsigned, with_shared_secret};

/// Behaviour of the provider. Each field begins as that of a good provider.
pub struct Behaviour {
    /// Changes the discovery document, whose issuer is the provider's address.
    pub metadata: Change,
    /// Changes the claims of ID tokens.
    pub claims: Change,
    /// Changes the claims of userinfo.
    pub userinfo: Change,
    /// Signature of ID tokens.
    pub signing: Signing,
    /// Changes the token response.
    pub tokens: Change,
    /// Changes the parameters of the authorization response.
    pub response: ChangePairs,
    /// The key set; the first key signs.
    pub keys: Vec<SigningKey>,
    /// `true`: a code is accepted more than once.
    pub codes_last: bool,
    pub(super) raw: HashMap<String, Raw>,
}

/// Change to the JSON of a good provider.
pub type Change = Box<dyn Fn(&mut Value) + Send>;
/// Change to the parameters of an authorization response.
pub type ChangePairs = Box<dyn Fn(&mut Vec<(String, String)>) + Send>;

/// Signature of ID tokens.
pub enum Signing {
    /// With the first key, RS256.
    Good,
    /// None (`alg: none`).
    None,
    /// HS256 with this secret, under the id of the first key.
    Shared(String),
    /// With a key that is not in the key set.
    Hidden(SigningKey),
    /// By this function of the claims.
    By(Box<dyn Fn(&Value) -> String + Send>),
    /// With the first key, and one bit flipped.
    Broken,
}

/// Response of a path to every request.
pub enum Raw {
    /// These bytes instead of a response, and the connection's end.
    Bytes(Vec<u8>),
    /// A response of this status with an empty object.
    Status(u16),
    /// A response with this body, which need not be JSON.
    Body(Vec<u8>),
    /// A byte every 100 ms, for ever.
    Drip,
}

impl Behaviour {
    /// Behaviour of a good provider.
    pub fn good() -> Self {
        Self {
            metadata: Box::new(|_| {}),
            claims: Box::new(|_| {}),
            userinfo: Box::new(|_| {}),
            signing: Signing::Good,
            tokens: Box::new(|_| {}),
            response: Box::new(|_| {}),
            keys: vec![SigningKey::common()],
            codes_last: false,
            raw: HashMap::new(),
        }
    }

    /// Answers every request of a path with this.
    pub fn answer_with(&mut self, path: &str, raw: Raw) {
        self.raw.insert(path.to_owned(), raw);
    }

    /// Answers requests of a path as a good provider again.
    pub fn answer_well(&mut self, path: &str) {
        self.raw.remove(path);
    }

    pub(super) fn id_token(&self, claims: &Value) -> String {
        let key = &self.keys[0];
        match &self.signing {
            Signing::Good => key.signed(claims),
            Signing::None => unsigned(claims),
            Signing::Shared(secret) => with_shared_secret(secret, &key.id, claims),
            Signing::Hidden(hidden) => hidden.signed(claims),
            Signing::By(sign) => sign(claims),
            Signing::Broken => {
                let good = key.signed(claims);
                let (input, signature) = good.rsplit_once('.').unwrap();
                let mut signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
                signature[100] ^= 1;
                format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature))
            }
        }
    }
}
