//! stub
use crate::secret::Secret;
use crate::tls::ClientSettings;
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub name: String,
    pub label: String,
    pub issuer: String,
    pub client_id: String,
    pub client_secret: Option<Secret>,
    pub scopes: Vec<String>,
    pub claims: Vec<String>,
    pub tls: ClientSettings,
}
impl Settings {
    pub fn check_issuer(_: &str) -> Result<(), Error> {
        Ok(())
    }
}
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct Error;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    ProviderAway,
    Declined,
    Browser,
    Provider,
    Own,
}
impl Error {
    pub fn reason(&self) -> &'static str {
        "x"
    }
    pub fn fault(&self) -> Fault {
        Fault::Own
    }
    pub fn in_full(&self) -> String {
        String::new()
    }
}
#[derive(Debug)]
pub struct Provider(Settings);
#[derive(serde::Serialize, serde::Deserialize)]
pub struct Pending;
pub struct Begun {
    pub url: String,
    pub state: Secret,
    pub pending: Pending,
}
pub struct Callback {
    pub code: Option<Secret>,
    pub iss: Option<String>,
    pub error: Option<String>,
    pub error_description: Option<String>,
}
pub struct Verified {
    pub claims: serde_json::Map<String, serde_json::Value>,
    pub id_token: Secret,
}
impl Provider {
    pub fn new(s: Settings) -> Result<Self, Error> {
        Ok(Self(s))
    }
    pub fn name(&self) -> &str {
        &self.0.name
    }
    pub fn label(&self) -> &str {
        &self.0.label
    }
    pub async fn begin(&self, _: &str) -> Result<Begun, Error> {
        Err(Error)
    }
    pub async fn finish(&self, _: Pending, _: &str, _: Callback) -> Result<Verified, Error> {
        Err(Error)
    }
    pub async fn sign_out_url(&self, _: Option<&Secret>, _: &str) -> Option<String> {
        None
    }
}
