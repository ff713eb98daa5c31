//! Hostile provider: an identity provider for what a good one never does.
//!
//! [`Hostile::start`] begins as a good provider that signs every visitor in at once, as [`SUBJECT`]: its page sends the
//! browser straight back. [`Hostile::behave`] changes what it does from then on:
//!
//! ```ignore
//! let hostile = Hostile::start();
//! hostile.behave(|now| now.signing = Signing::None);
//! hostile.behave(|now| now.claims = Box::new(|claims| claims["aud"] = json!("another client")));
//! hostile.behave(|now| now.answer_with("/token", Raw::Bytes(b"garbage".to_vec())));
//! ```
//!
//! It accepts any client, whose secret is [`SECRET`], checks code, PKCE and redirect URI as it should, and counts its
//! requests. It ends with its last handle.

mod behaviour;
mod endpoints;
mod wire;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Mutex, MutexGuard};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use endpoints::State;
use wire::{Request, drip, response};

use crate::support::listen_at;

pub use behaviour::{Behaviour, Raw, Signing};

/// `sub` of the user who signs in.
pub const SUBJECT: &str = "subject-1";
/// The secret of every client, generated for nothing else.
pub const SECRET: &str = "secret of the client, of 32 bytes";

/// Hostile provider on a loopback socket.
pub struct Hostile {
    address: SocketAddr,
    /// TLS settings; none for plain HTTP.
    tls: Option<Arc<ServerConfig>>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// State that the threads of the connections share with the handle.
struct Shared {
    state: Mutex<State>,
    ending: AtomicBool,
}

impl Hostile {
    /// Starts a provider that is good until [`Hostile::behave`] is called.
    pub fn start() -> Self {
        Self::start_as(None)
    }

    /// The same at `https://localhost`.
    pub fn start_encrypted(tls: ServerConfig) -> Self {
        Self::start_as(Some(Arc::new(tls)))
    }

    fn start_as(tls: Option<Arc<ServerConfig>>) -> Self {
        // A port that it finds free again when it comes back.
        let address = crate::support::free_address();
        let state = State { behaviour: Behaviour::good(), codes: HashMap::new(), asked: HashMap::new() };
        let shared = Arc::new(Shared { state: Mutex::new(state), ending: AtomicBool::new(false) });
        let mut hostile = Self { address, tls, shared, acceptor: None };
        hostile.come_back();
        hostile
    }

    /// The issuer, which is the address.
    pub fn issuer(&self) -> String {
        match self.tls {
            Some(_) => format!("https://localhost:{}", self.address.port()),
            None => format!("http://{}", self.address),
        }
    }

    /// Changes the behaviour from now on.
    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.shared.lock().behaviour);
    }

    /// The number of requests of a path so far.
    pub fn asked(&self, path: &str) -> usize {
        self.shared.lock().asked.get(path).copied().unwrap_or(0)
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

    /// Listens again, at the same address as before.
    pub fn come_back(&mut self) {
        let listener = listen_at(self.address);
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

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn accept(&self, socket: TcpStream, tls: Option<Arc<ServerConfig>>, issuer: &str) {
        match tls {
            Some(tls) => self.serve(StreamOwned::new(ServerConnection::new(tls).unwrap(), socket), issuer),
            None => self.serve(socket, issuer),
        }
    }

    fn serve(&self, mut stream: impl Read + Write, issuer: &str) {
        let Some(request) = Request::read(&mut stream) else { return };
        let bytes = {
            let mut state = self.lock();
            *state.asked.entry(request.path.clone()).or_default() += 1;
            match state.behaviour.raw.get(&request.path) {
                Some(Raw::Drip) => None,
                Some(Raw::Bytes(bytes)) => Some(bytes.clone()),
                Some(Raw::Status(status)) => Some(response(*status, "", b"{}")),
                Some(Raw::Body(body)) => Some(response(200, "", body)),
                None => Some(state.respond(&request, issuer)),
            }
        };
        match bytes {
            // The client may have closed the connection, which is what some tests are about.
            Some(bytes) => drop(stream.write_all(&bytes)),
            None => drip(stream),
        }
    }
}
