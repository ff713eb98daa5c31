//! Endpoints of the hostile provider, with the checks of a good one.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::clock;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::super::signing::SigningKey;
use super::behaviour::Behaviour;
use super::wire::{Request, json_response, response};
use super::{SECRET, SUBJECT};

/// State of the provider.
pub(super) struct State {
    pub(super) behaviour: Behaviour,
    /// Codes that were issued and not used yet.
    pub(super) codes: HashMap<String, Code>,
    /// Requests of each path.
    pub(super) asked: HashMap<String, usize>,
}

/// Authorization request that a code was issued for.
#[derive(Clone)]
pub(super) struct Code {
    nonce: String,
    client_id: String,
    challenge: String,
    redirect_uri: String,
}

impl State {
    /// The response of a good provider, changed by its behaviour.
    pub(super) fn respond(&mut self, request: &Request, issuer: &str) -> Vec<u8> {
        match request.path.as_str() {
            "/.well-known/openid-configuration" => json_response(200, &self.metadata(issuer)),
            "/jwks" => {
                let keys: Vec<Value> = self.behaviour.keys.iter().map(SigningKey::public).collect();
                json_response(200, &json!({"keys": keys}))
            }
            "/authorize" => self.authorize(request, issuer),
            "/token" => self.token(request, issuer),
            "/userinfo" => self.userinfo(request),
            "/end" => response(302, &format!("Location: {}\r\n", request.parameters["post_logout_redirect_uri"]), b""),
            _ => json_response(404, &json!({})),
        }
    }

    fn metadata(&self, issuer: &str) -> Value {
        let mut metadata = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "userinfo_endpoint": format!("{issuer}/userinfo"),
            "jwks_uri": format!("{issuer}/jwks"),
            "end_session_endpoint": format!("{issuer}/end"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
            "authorization_response_iss_parameter_supported": true,
        });
        (self.behaviour.metadata)(&mut metadata);
        metadata
    }

    fn authorize(&mut self, request: &Request, issuer: &str) -> Vec<u8> {
        let given = |name: &str| request.parameters.get(name).cloned().unwrap_or_default();
        assert_eq!((given("response_type"), given("code_challenge_method")), ("code".into(), "S256".into()));
        let code = uuid::Uuid::new_v4().to_string();
        let redirect_uri = given("redirect_uri");
        let mut parameters =
            vec![("code".into(), code.clone()), ("state".into(), given("state")), ("iss".into(), issuer.to_owned())];
        let granted = Code {
            nonce: given("nonce"),
            client_id: given("client_id"),
            challenge: given("code_challenge"),
            redirect_uri: redirect_uri.clone(),
        };
        self.codes.insert(code, granted);
        (self.behaviour.response)(&mut parameters);
        let location = Url::parse_with_params(&redirect_uri, parameters).unwrap();
        response(302, &format!("Location: {location}\r\n"), b"")
    }

    fn token(&mut self, request: &Request, issuer: &str) -> Vec<u8> {
        let given = |name: &str| request.parameters.get(name).cloned().unwrap_or_default();
        let code = self.codes.remove(&given("code"));
        if let Some(code) = code.as_ref().filter(|_| self.behaviour.codes_last) {
            self.codes.insert(given("code"), code.clone());
        }
        let Some(code) = code else {
            return json_response(400, &json!({"error": "invalid_grant", "error_description": given("code")}));
        };
        let proof = URL_SAFE_NO_PAD.encode(Sha256::digest(given("code_verifier")));
        if proof != code.challenge || given("redirect_uri") != code.redirect_uri {
            return json_response(400, &json!({"error": "invalid_grant"}));
        }
        if !has_secret(request, &code.client_id) {
            return json_response(401, &json!({"error": "invalid_client"}));
        }
        let access = format!("access-{}", uuid::Uuid::new_v4());
        let claims = self.claims(&code, &access, issuer);
        let mut tokens =
            json!({"access_token": access, "token_type": "Bearer", "id_token": self.behaviour.id_token(&claims)});
        (self.behaviour.tokens)(&mut tokens);
        json_response(200, &tokens)
    }

    fn claims(&self, code: &Code, access: &str, issuer: &str) -> Value {
        let now = clock::now().0 / 1_000_000;
        let mut claims = json!({
            "iss": issuer, "sub": SUBJECT, "aud": code.client_id, "nonce": code.nonce, "iat": now, "exp": now + 300,
            "at_hash": URL_SAFE_NO_PAD.encode(&Sha256::digest(access)[..16]),
            "email": "person@example.com", "email_verified": true, "name": "A Person",
        });
        (self.behaviour.claims)(&mut claims);
        claims
    }

    fn userinfo(&self, request: &Request) -> Vec<u8> {
        if !request.authorization.as_ref().is_some_and(|field| field.starts_with("Bearer access-")) {
            return json_response(401, &json!({"error": "invalid_token"}));
        }
        let mut claims = json!({"sub": SUBJECT, "email": "person@example.com", "email_verified": true});
        (self.behaviour.userinfo)(&mut claims);
        json_response(200, &claims)
    }
}

/// Returns whether the client authenticates with the secret, in the header or in the form.
fn has_secret(request: &Request, client_id: &str) -> bool {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let credential = format!("{}:{}", encoded(client_id), encoded(SECRET));
    let basic = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(credential));
    match &request.authorization {
        Some(field) => *field == basic,
        None => {
            request.parameters.get("client_id").is_some_and(|id| id == client_id)
                && request.parameters.get("client_secret").is_none_or(|secret| secret == SECRET)
        }
    }
}
