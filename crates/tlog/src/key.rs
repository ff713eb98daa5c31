//! Keys of checkpoints, in the text forms of C2SP signed-note.
//!
//! - A public key is `NAME+ID+BASE64`: the first byte behind the base64 is the algorithm, the ID the
//!   beginning of a SHA-256 over name, algorithm and key. A private key is `PRIVATE+KEY+NAME+ID+BASE64` with
//!   the seed in place of the key.
//! - `Debug` shows no private key, and its memory is zeroed.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::signature::{self, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// Algorithms: signatures of logs over a note, and those of witnesses, which have a time.
const ED25519: u8 = 1;
const COSIGNATURE: u8 = 4;
/// Bytes of a key, and of a seed.
const LENGTH: usize = 32;
const PRIVATE: &str = "PRIVATE+KEY+";
/// Bytes of a name at most: sinks keep checkpoints by it.
const MAX_NAME: usize = 255;

/// Text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// It has another form.
    #[error("is no key of the form NAME+ID+BASE64")]
    Form,
    /// Its ID is that of another key.
    #[error("has an ID that does not fit; it was changed, or copied in part")]
    Id,
    /// Its algorithm is not known.
    #[error("is for another algorithm than Ed25519")]
    Algorithm,
    /// Its name is empty or too long, or has spaces or `+`.
    #[error("has a name that is empty, has more than {MAX_NAME} bytes, or has spaces or `+` in it")]
    Name,
}

/// A public key of a log or of a witness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    name: String,
    algorithm: u8,
    key: [u8; LENGTH],
}

/// The private key that signs checkpoints.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl PublicKey {
    /// The name: the origin of a log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True for the key of a witness.
    pub fn is_witness(&self) -> bool {
        self.algorithm == COSIGNATURE
    }

    /// The ID: the beginning of a SHA-256 over name, algorithm and key.
    pub fn id(&self) -> [u8; 4] {
        let hash = Sha256::new().chain_update(&self.name).chain_update([b'\n', self.algorithm]).chain_update(self.key);
        let hash: [u8; 32] = hash.finalize().into();
        [hash[0], hash[1], hash[2], hash[3]]
    }

    /// Verifies a signature over the text of a note, or, for a witness, a cosignature.
    pub fn verifies(&self, text: &str, signature: &[u8]) -> bool {
        let verify = |message: &str, signature: &[u8]| {
            UnparsedPublicKey::new(&signature::ED25519, self.key).verify(message.as_bytes(), signature).is_ok()
        };
        if !self.is_witness() {
            return verify(text, signature);
        }
        let Some((time, signature)) = signature.split_first_chunk::<8>() else { return false };
        verify(&format!("cosignature/v1\ntime {}\n{text}", u64::from_be_bytes(*time)), signature)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![self.algorithm];
        bytes.extend_from_slice(&self.key);
        write!(f, "{}+{}+{}", self.name, hexadecimal(self.id()), STANDARD.encode(bytes))
    }
}

impl FromStr for PublicKey {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let (name, id, bytes) = split(text.trim())?;
        let (algorithm, key) = bytes.split_first().ok_or(InvalidKey::Form)?;
        if ![ED25519, COSIGNATURE].contains(algorithm) {
            return Err(InvalidKey::Algorithm);
        }
        let key = key.try_into().map_err(|_| InvalidKey::Form)?;
        let key = Self { name: name.to_owned(), algorithm: *algorithm, key };
        if hexadecimal(key.id()) == id { Ok(key) } else { Err(InvalidKey::Id) }
    }
}

impl SigningKey {
    /// A new key, from the randomness of the system.
    ///
    /// # Errors
    /// When the system has no randomness, or the name is not one.
    pub fn generate(name: &str) -> Result<(Self, Zeroizing<String>), GenerateError> {
        let mut seed = Zeroizing::new([0; LENGTH]);
        getrandom::fill(&mut *seed)?;
        let key = Self::from_seed(name, &*seed)?;
        let mut bytes = Zeroizing::new(vec![ED25519]);
        bytes.extend_from_slice(&*seed);
        let base64 = Zeroizing::new(STANDARD.encode(&*bytes));
        let text = format!("{PRIVATE}{name}+{}+{}\n", hexadecimal(key.public.id()), *base64);
        Ok((key, Zeroizing::new(text)))
    }

    fn from_seed(name: &str, seed: &[u8]) -> Result<Self, InvalidKey> {
        if !is_name(name) {
            return Err(InvalidKey::Name);
        }
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| InvalidKey::Form)?;
        let key = pair.public_key().as_ref().try_into().map_err(|_| InvalidKey::Form)?;
        let public = PublicKey { name: name.to_owned(), algorithm: ED25519, key };
        Ok(Self { pair, public })
    }

    /// The public key of this key.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs the text of a note.
    pub fn sign(&self, text: &str) -> Vec<u8> {
        self.pair.sign(text.as_bytes()).as_ref().to_vec()
    }
}

impl FromStr for SigningKey {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let text = text.trim().strip_prefix(PRIVATE).ok_or(InvalidKey::Form)?;
        let (name, id, bytes) = split(text)?;
        let bytes = Zeroizing::new(bytes);
        let (algorithm, seed) = bytes.split_first().ok_or(InvalidKey::Form)?;
        if *algorithm != ED25519 {
            return Err(InvalidKey::Algorithm);
        }
        let key = Self::from_seed(name, seed)?;
        if hexadecimal(key.public.id()) == id { Ok(key) } else { Err(InvalidKey::Id) }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public)
    }
}

/// Generates a key for checkpoints of a tree with this name: the text of its file, and the public key.
///
/// # Errors
/// [`GenerateError`]: the system has no randomness, or the name cannot be one.
pub fn generate_key(name: &str) -> Result<(Zeroizing<String>, PublicKey), GenerateError> {
    SigningKey::generate(name).map(|(key, text)| (text, key.public))
}

/// The public key of the private key in a text.
///
/// # Errors
/// [`InvalidKey`]: it is none.
pub fn derive_public_key(private: &str) -> Result<PublicKey, InvalidKey> {
    private.parse().map(|key: SigningKey| key.public)
}

/// No key could be generated.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The system has no randomness.
    #[error("the system has no randomness")]
    Randomness(#[from] getrandom::Error),
    /// The key would not be valid.
    #[error("the key")]
    Key(#[from] InvalidKey),
}

/// True for a name of a key.
pub fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '+')
}

/// Name, ID and bytes of a key. The base64 may have `+` in it.
fn split(text: &str) -> Result<(&str, &str, Vec<u8>), InvalidKey> {
    let (name, rest) = text.split_once('+').ok_or(InvalidKey::Form)?;
    let (id, base64) = rest.split_once('+').ok_or(InvalidKey::Form)?;
    if !is_name(name) {
        return Err(InvalidKey::Name);
    }
    Ok((name, id, STANDARD.decode(base64).map_err(|_| InvalidKey::Form)?))
}

fn hexadecimal(id: [u8; 4]) -> String {
    format!("{:08x}", u32::from_be_bytes(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the note format's first implementation, Go's `sumdb/note`.
    const PEOPLE: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";

    #[test]
    fn public_key_of_another_implementation_is_read_and_written_alike() {
        let key: PublicKey = PEOPLE.parse().unwrap();
        assert_eq!((key.name(), key.to_string().as_str(), key.is_witness()), ("PeterNeumann", PEOPLE, false));
        let text =
            "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n";
        let signature = "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=";
        let signature = STANDARD.decode(signature).unwrap();
        assert_eq!(signature[..4], key.id());
        assert!(key.verifies(text, &signature[4..]));
        assert!(!key.verifies(&text.replace("you", "we"), &signature[4..]));
    }

    /// C2SP tlog-cosignature: a witness signs the text with a header and its time, which is in front of the signature.
    #[test]
    fn cosignature_covers_its_time_and_the_text() {
        let (key, _) = SigningKey::generate("witness.example.com/w1").unwrap();
        let witness = PublicKey { algorithm: COSIGNATURE, ..key.public().clone() };
        let text = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n";
        let signed = key.sign(&format!("cosignature/v1\ntime 1679315147\n{text}"));
        let cosignature = |time: u64| [&time.to_be_bytes()[..], &signed].concat();
        assert!(witness.is_witness() && witness.verifies(text, &cosignature(1_679_315_147)));
        assert!(!witness.verifies(text, &cosignature(1_679_315_148)), "another time");
        assert!(!witness.verifies(&text.replace("163", "164"), &cosignature(1_679_315_147)), "another size");
        assert!(!key.public().verifies(text, &cosignature(1_679_315_147)), "a log does not cosign");
        assert_ne!(witness.id(), key.public().id(), "the ID tells the algorithms apart");
    }

    #[test]
    fn generated_key_is_read_again_and_never_shown() {
        let (key, text) = SigningKey::generate("example.org/gw-1").unwrap();
        let again: SigningKey = text.parse().unwrap();
        assert_eq!(again.public(), key.public());
        assert!(key.public().verifies("text\n", &again.sign("text\n")));
        assert_eq!(key.public().to_string().parse(), Ok(key.public().clone()));
        // Base64 may have a `+` in it.
        let seed = text.trim().splitn(5, '+').last().unwrap();
        assert!(!format!("{key:?}").contains(seed));
    }

    #[test]
    fn text_that_is_no_key_is_named() {
        let changed = |from: &str, to: &str| PEOPLE.replace(from, to).parse::<PublicKey>().unwrap_err();
        assert_eq!(changed("Peter", "Petra"), InvalidKey::Id);
        assert_eq!(changed("+ARpc", "+ARp"), InvalidKey::Form);
        assert_eq!(changed("PeterNeumann", "Peter Neumann"), InvalidKey::Name);
        assert_eq!("".parse::<PublicKey>(), Err(InvalidKey::Form));
        for name in ["a b", "", "a+b", &"a".repeat(256)] {
            assert!(matches!(SigningKey::generate(name), Err(GenerateError::Key(InvalidKey::Name))), "{name}");
        }
        SigningKey::generate(&"a".repeat(255)).unwrap();
        let (_, text) = SigningKey::generate("a").unwrap();
        assert!(text.replace("PRIVATE", "PUBLIC").parse::<SigningKey>().is_err());
    }
}
