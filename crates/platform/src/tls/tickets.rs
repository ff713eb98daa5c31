//! Session tickets (RFC 8446, section 4.6.1; RFC 5077) that every instance with the same secret can open.
//!
//! ```text
//! period 8 │ nonce 24 │ the session, sealed │ tag 16
//! ```
//!
//! A ticket is sealed with XChaCha20-Poly1305 under a random nonce, so instances need not agree on nonces. The key is
//! derived (HKDF with SHA-256) from the secret, the policy of client certificates and the number of the 12-hour period.
//!
//! - Only tickets of the current period and of the one before open: keys rotate by the clock, everywhere at once.
//! - A ticket opens only under the policy that it was sealed under.
//! - The secret opens recorded TLS 1.2 connections that were resumed or that issued tickets. With 1.3 every resumption
//!   has a new key exchange, and no recorded connection can be read.

use std::fmt;

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::crypto::tls13::HkdfExpander;
use rustls::server::ProducesTickets;
use zeroize::Zeroizing;

use domain::clock::{self, Micros};
use domain::secret::Secret;

/// Seconds of a period: a ticket is good for 12 hours at least, and 24 at most.
const PERIOD: u32 = 12 * 3600;
const NUMBER: usize = 8;
const NONCE: usize = 24;
/// Purpose of the keys: the same secret used for another purpose gives other keys.
const PURPOSE: &[u8] = b"keygate session tickets 1";

/// The session tickets of one listener.
pub(super) struct SharedTicketer {
    /// HKDF with the secret extracted.
    secret: Box<dyn HkdfExpander>,
    policy: [u8; 32],
}

impl SharedTicketer {
    pub(super) fn new(secret: &Secret, policy: [u8; 32]) -> Self {
        let suite = TLS13_AES_128_GCM_SHA256.tls13().expect("it is a suite of TLS 1.3");
        Self { secret: suite.hkdf_provider.extract_from_secret(None, secret.expose().as_bytes()), policy }
    }

    fn seal(&self, session: &[u8], now: Micros) -> Option<Vec<u8>> {
        let number = period(now).to_be_bytes();
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).ok()?;
        let sealed = self.cipher(number).encrypt(&XNonce::from(nonce), Payload { msg: session, aad: &number }).ok()?;
        Some([&number[..], &nonce, &sealed].concat())
    }

    fn open(&self, ticket: &[u8], now: Micros) -> Option<Vec<u8>> {
        let (number, rest) = ticket.split_first_chunk::<NUMBER>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE>()?;
        let sealed_in = u64::from_be_bytes(*number);
        let current = period(now);
        if sealed_in != current && sealed_in.checked_add(1) != Some(current) {
            return None;
        }
        self.cipher(*number).decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: number }).ok()
    }

    /// Derives the cipher of a period. Not cached: the derivation costs a hundredth of the handshake that it is for.
    fn cipher(&self, number: [u8; NUMBER]) -> XChaCha20Poly1305 {
        let mut key = Zeroizing::new([0; 32]);
        let info: [&[u8]; 3] = [PURPOSE, &self.policy, &number];
        self.secret.expand_slice(&info, key.as_mut()).expect("32 bytes are one block of SHA-256");
        XChaCha20Poly1305::new((&*key).into())
    }
}

fn period(now: Micros) -> u64 {
    now.0 / 1_000_000 / u64::from(PERIOD)
}

impl ProducesTickets for SharedTicketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        PERIOD
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, clock::now())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher, clock::now())
    }
}

impl fmt::Debug for SharedTicketer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedTicketer(…)")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOURS: Duration = Duration::from_secs(3600);
    /// The beginning of a period.
    const START: Micros = Micros(40_000 * 12 * 3600 * 1_000_000);

    fn tickets(secret: &str, policy: u8) -> SharedTicketer {
        SharedTicketer::new(&Secret::new(secret.into()), [policy; 32])
    }

    #[test]
    fn ticket_opens_with_the_same_secret_and_policy_alone() {
        let ticket = tickets("a", 0).seal(b"session", START).unwrap();
        assert_eq!(tickets("a", 0).open(&ticket, START).as_deref(), Some(&b"session"[..]));
        assert_eq!(tickets("b", 0).open(&ticket, START), None, "another secret");
        assert_eq!(tickets("a", 1).open(&ticket, START), None, "another policy");
        assert_ne!(tickets("a", 0).seal(b"session", START).unwrap(), ticket, "the nonce is random");
    }

    #[test]
    fn ticket_opens_in_its_period_and_in_the_next() {
        let tickets = tickets("a", 0);
        let ticket = tickets.seal(b"session", START).unwrap();
        for (hours, opens) in [(0, true), (11, true), (12, true), (23, true), (24, false), (240, false)] {
            assert_eq!(tickets.open(&ticket, START.after(HOURS * hours)).is_some(), opens, "after {hours} hours");
        }
        assert_eq!(tickets.open(&ticket, START.before(HOURS)), None, "the clock went back");
        let next = tickets.seal(b"session", START.after(HOURS * 12)).unwrap();
        let forged = [&ticket[..NUMBER], &next[NUMBER..]].concat();
        assert_eq!(tickets.open(&forged, START), None, "each period has its own key");
    }

    #[test]
    fn tampered_ticket_does_not_open() {
        let tickets = tickets("a", 0);
        let ticket = tickets.seal(b"session", START).unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(tickets.open(&changed, START), None, "byte {at}");
            assert_eq!(tickets.open(&ticket[..at], START), None, "{at} bytes");
        }
        assert_eq!(tickets.open(&[0xff; 64], START), None, "a period without a next one");
    }
}
