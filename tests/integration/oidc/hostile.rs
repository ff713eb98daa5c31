//! A provider of the test's own, for what a good one never does.
//!
//! [`Hostile::start`] begins as a good provider whose visitors are signed in at once, as [`SUBJECT`]: its page sends the
//! browser straight back. [`Hostile::behave`] changes what it does from then on:
//!
//! ```ignore
//! let hostile = Hostile::start();
//! hostile.behave(|now| now.signing = Signing::None);
//! hostile.behave(|now| now.claims = Box::new(|claims| claims["aud"] = json!("somebody else")));
//! hostile.behave(|now| now.answer_with("/token", Raw::Bytes(b"garbage".to_vec())));
//! ```
//!
//! It takes any client, whose secret is [`SECRET`], checks code, PKCE and redirect address as it should, and counts what
//! it is asked. It ends with its last handle.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keygate::clock;
use openidconnect::url::Url;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::signing::{SigningKey, unsigned, with_shared_secret};

/// Who signs in.
pub const SUBJECT: &str = "subject-1";
/// The secret of every client, generated for nothing else.
pub const SECRET: &str = "secret of the client, of 32 bytes";

/// A provider on a socket of this machine.
pub struct Hostile {
    address: SocketAddr,
    /// How it is encrypted, if it is.
    tls: Option<Arc<ServerConfig>>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// What it does. Each field begins as a good provider has it.
pub struct Behaviour {
    /// What its documents say of it. The issuer is its address.
    pub metadata: Change,
    /// What its ID tokens say.
    pub claims: Change,
    /// What userinfo says.
    pub userinfo: Change,
    /// How its ID tokens are signed.
    pub signing: Signing,
    /// What is in the token endpoint's answer beside.
    pub tokens: Change,
    /// What the browser is sent back with: names and values.
    pub response: ChangePairs,
    /// Its keys: the first signs, all are shown.
    pub keys: Vec<SigningKey>,
    /// Whether a code is good more than once.
    pub codes_last: bool,
    raw: HashMap<String, Raw>,
}

/// A change to something good.
pub type Change = Box<dyn Fn(&mut Value) + Send>;
/// A change to the parameters of an authorization response.
pub type ChangePairs = Box<dyn Fn(&mut Vec<(String, String)>) + Send>;

/// How ID tokens are signed.
pub enum Signing {
    /// With the first key, RS256.
    Good,
    /// Not at all.
    None,
    /// With HS256 and this secret, under the name of the first key.
    Shared(String),
    /// With a key that is not shown.
    Hidden(SigningKey),
    /// Well, but for one bit.
    Broken,
}

/// What a path is answered with, whatever was asked.
pub enum Raw {
    /// These bytes instead of a response, and the connection's end.
    Bytes(Vec<u8>),
    /// A response of this status with an empty object.
    Status(u16),
    /// A response with this body of JSON, or not.
    Body(Vec<u8>),
    /// A byte now and then, for ever.
    Drip,
}

struct Shared {
    state: Mutex<State>,
    ending: AtomicBool,
}

struct State {
    behaviour: Behaviour,
    /// What codes are good for.
    codes: HashMap<String, Code>,
    /// How often each path was asked for.
    asked: HashMap<String, usize>,
}

#[derive(Clone)]
struct Code {
    nonce: String,
    client_id: String,
    challenge: String,
    redirect_uri: String,
}

impl Hostile {
    /// Starts it, good as yet.
    pub fn start() -> Self {
        Self::start_as(None)
    }

    /// The same at `https://localhost`.
    pub fn start_encrypted(tls: ServerConfig) -> Self {
        Self::start_as(Some(Arc::new(tls)))
    }

    fn start_as(tls: Option<Arc<ServerConfig>>) -> Self {
        let address = "127.0.0.1:0".parse().unwrap();
        let state = State { behaviour: Behaviour::good(), codes: HashMap::new(), asked: HashMap::new() };
        let shared = Arc::new(Shared { state: Mutex::new(state), ending: AtomicBool::new(false) });
        let mut hostile = Self { address, tls, shared, acceptor: None };
        hostile.come_back();
        hostile
    }

    /// Its issuer, which is its address.
    pub fn issuer(&self) -> String {
        match self.tls {
            Some(_) => format!("https://localhost:{}", self.address.port()),
            None => format!("http://{}", self.address),
        }
    }

    /// Changes what it does from now on.
    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.shared.locked().behaviour);
    }

    /// How often a path was asked for.
    pub fn asked(&self, path: &str) -> usize {
        self.shared.locked().asked.get(path).copied().unwrap_or(0)
    }

    /// Stops listening.
    pub fn go_away(&mut self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        // Wakes the acceptor, which then closes its socket.
        TcpStream::connect(self.address).ok();
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.join().unwrap();
        }
    }

    /// Listens, at the same address as before.
    pub fn come_back(&mut self) {
        let listener = TcpListener::bind(self.address).unwrap();
        self.address = listener.local_addr().unwrap();
        self.shared.ending.store(false, Ordering::SeqCst);
        let shared = Arc::clone(&self.shared);
        let (issuer, tls) = (self.issuer(), self.tls.clone());
        self.acceptor = Some(std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.ending.load(Ordering::SeqCst) {
                    return;
                }
                let (shared, issuer, tls) = (Arc::clone(&shared), issuer.clone(), tls.clone());
                std::thread::spawn(move || shared.accept(stream.unwrap(), tls, &issuer));
            }
        }));
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.go_away();
    }
}

impl Behaviour {
    /// What it does at first.
    pub fn good() -> Self {
        Self {
            metadata: Box::new(|_| {}),
            claims: Box::new(|_| {}),
            userinfo: Box::new(|_| {}),
            signing: Signing::Good,
            tokens: Box::new(|_| {}),
            response: Box::new(|_| {}),
            keys: vec![SigningKey::generate()],
            codes_last: false,
            raw: HashMap::new(),
        }
    }

    /// Answers a path with this, whatever was asked.
    pub fn answer_with(&mut self, path: &str, raw: Raw) {
        self.raw.insert(path.to_owned(), raw);
    }

    fn id_token(&self, claims: &Value) -> String {
        let key = &self.keys[0];
        match &self.signing {
            Signing::Good => key.signed(claims),
            Signing::None => unsigned(claims),
            Signing::Shared(secret) => with_shared_secret(secret, &key.id, claims),
            Signing::Hidden(hidden) => hidden.signed(claims),
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

/// A request, as much of it as matters.
struct Asked {
    path: String,
    parameters: HashMap<String, String>,
    authorization: Option<String>,
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(&self, socket: TcpStream, tls: Option<Arc<ServerConfig>>, issuer: &str) {
        match tls {
            Some(tls) => self.serve(StreamOwned::new(ServerConnection::new(tls).unwrap(), socket), issuer),
            None => self.serve(socket, issuer),
        }
    }

    fn serve(&self, mut stream: impl Read + Write, issuer: &str) {
        let Some(asked) = Asked::read(&mut stream) else { return };
        let answer = {
            let mut state = self.locked();
            *state.asked.entry(asked.path.clone()).or_default() += 1;
            match state.behaviour.raw.get(&asked.path) {
                Some(Raw::Drip) => None,
                Some(Raw::Bytes(bytes)) => Some(bytes.clone()),
                Some(Raw::Status(status)) => Some(response(*status, "", b"{}")),
                Some(Raw::Body(body)) => Some(response(200, "", body)),
                None => Some(state.answer(&asked, issuer)),
            }
        };
        match answer {
            // The other side may have had enough.
            Some(bytes) => drop(stream.write_all(&bytes)),
            None => drip(stream),
        }
    }
}

/// Says a byte now and then, until the other side has had enough.
fn drip(mut stream: impl Write) {
    let mut said = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
    while said.is_ok() {
        std::thread::sleep(Duration::from_millis(100));
        said = stream.write_all(b" ");
    }
}

impl State {
    fn answer(&mut self, asked: &Asked, issuer: &str) -> Vec<u8> {
        match asked.path.as_str() {
            "/.well-known/openid-configuration" => json_of(200, &self.metadata(issuer)),
            "/jwks" => {
                let keys: Vec<Value> = self.behaviour.keys.iter().map(SigningKey::public).collect();
                json_of(200, &json!({"keys": keys}))
            }
            "/authorize" => self.authorize(asked, issuer),
            "/token" => self.token(asked, issuer),
            "/userinfo" => self.userinfo(asked),
            "/end" => response(302, &format!("Location: {}\r\n", asked.parameters["post_logout_redirect_uri"]), b""),
            _ => json_of(404, &json!({})),
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

    fn authorize(&mut self, asked: &Asked, issuer: &str) -> Vec<u8> {
        let given = |name: &str| asked.parameters.get(name).cloned().unwrap_or_default();
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

    fn token(&mut self, asked: &Asked, issuer: &str) -> Vec<u8> {
        let given = |name: &str| asked.parameters.get(name).cloned().unwrap_or_default();
        let code = self.codes.remove(&given("code"));
        if let Some(code) = code.as_ref().filter(|_| self.behaviour.codes_last) {
            self.codes.insert(given("code"), code.clone());
        }
        let Some(code) = code else {
            return json_of(400, &json!({"error": "invalid_grant", "error_description": given("code")}));
        };
        let proof = URL_SAFE_NO_PAD.encode(Sha256::digest(given("code_verifier")));
        if proof != code.challenge || given("redirect_uri") != code.redirect_uri {
            return json_of(400, &json!({"error": "invalid_grant"}));
        }
        if !shows_secret(asked, &code.client_id) {
            return json_of(401, &json!({"error": "invalid_client"}));
        }
        let access = format!("access-{}", uuid::Uuid::new_v4());
        let claims = self.claims(&code, &access, issuer);
        let mut tokens =
            json!({"access_token": access, "token_type": "Bearer", "id_token": self.behaviour.id_token(&claims)});
        (self.behaviour.tokens)(&mut tokens);
        json_of(200, &tokens)
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

    fn userinfo(&self, asked: &Asked) -> Vec<u8> {
        if !asked.authorization.as_ref().is_some_and(|field| field.starts_with("Bearer access-")) {
            return json_of(401, &json!({"error": "invalid_token"}));
        }
        let mut claims = json!({"sub": SUBJECT, "email": "person@example.com", "email_verified": true});
        (self.behaviour.userinfo)(&mut claims);
        json_of(200, &claims)
    }
}

/// Whether the client shows its secret, in the header or in the form.
fn shows_secret(asked: &Asked, client_id: &str) -> bool {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let credential = format!("{}:{}", encoded(client_id), encoded(SECRET));
    let basic = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(credential));
    match &asked.authorization {
        Some(field) => *field == basic,
        None => {
            asked.parameters.get("client_id").is_some_and(|id| id == client_id)
                && asked.parameters.get("client_secret").is_none_or(|secret| secret == SECRET)
        }
    }
}

impl Asked {
    fn read(stream: &mut impl Read) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let target = line.split(' ').nth(1)?.to_owned();
        let (mut length, mut authorization) = (0, None);
        loop {
            line.clear();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "authorization" => authorization = Some(value.to_owned()),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let parameters = form_urlencoded::parse(query.as_bytes()).chain(form_urlencoded::parse(&body));
        let parameters = parameters.map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        Some(Self { path: path.to_owned(), parameters, authorization })
    }
}

fn json_of(status: u16, value: &Value) -> Vec<u8> {
    response(status, "Content-Type: application/json\r\n", value.to_string().as_bytes())
}

fn response(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status} -\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}
