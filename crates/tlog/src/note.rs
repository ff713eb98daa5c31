//! Signed notes (C2SP signed-note): a text, an empty line, and a line for each signature.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::key::{PublicKey, SigningKey};

/// Beginning of a line with a signature: an em dash and a space.
const PREFIX: &str = "— ";
/// Bytes of a note at most. A checkpoint has some hundred.
const MAX_LENGTH: usize = 64 * 1024;

/// A signed note. Its signatures are not verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The text, with its last newline.
    pub text: String,
    /// The signatures, in the order of their lines.
    pub signatures: Vec<Signature>,
}

/// A signature of a note, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    name: String,
    /// The ID of the key, and the signature.
    bytes: Vec<u8>,
}

impl Note {
    /// Signs a text, which ends with a newline.
    pub fn sign(text: String, key: &SigningKey) -> Self {
        let bytes = [&key.public().id()[..], &key.sign(&text)].concat();
        Self { text, signatures: vec![Signature { name: key.public().name().to_owned(), bytes }] }
    }

    /// Reads a note; `None` when the text is none. It is the only text of this note: `to_string` returns it.
    pub fn parse(note: &str) -> Option<Self> {
        // A carriage return after a signature is covered by none.
        if note.contains(|character: char| character.is_control() && character != '\n') {
            return None;
        }
        let at = note.rfind("\n\n").filter(|_| note.len() <= MAX_LENGTH)?;
        let text = &note[..=at];
        let signatures = &note[at + 2..];
        let signatures = parse_signatures(signatures).filter(|signatures| !signatures.is_empty())?;
        Some(Self { text: text.to_owned(), signatures })
    }

    /// The signature of a key; `None` when there is none, or it is wrong.
    pub fn verified(&self, key: &PublicKey) -> Option<&Signature> {
        let of_key = |signature: &&Signature| signature.name == key.name() && signature.bytes.starts_with(&key.id());
        self.signatures.iter().filter(of_key).find(|signature| key.verifies(&self.text, &signature.bytes[4..]))
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.signatures
            .iter()
            .try_for_each(|Signature { name, bytes }| writeln!(f, "{PREFIX}{name} {}", STANDARD.encode(bytes)))
    }
}

/// Returns whether a signed note has a valid signature, or cosignature, of a key.
pub fn is_signed_by(note: &str, key: &PublicKey) -> bool {
    Note::parse(note).is_some_and(|note| note.verified(key).is_some())
}

/// Reads lines of signatures; `None` when one is none.
pub fn parse_signatures(lines: &str) -> Option<Vec<Signature>> {
    let signature = |line: &str| {
        let (name, base64) = line.strip_prefix(PREFIX)?.split_once(' ')?;
        let bytes = STANDARD.decode(base64).ok().filter(|bytes| bytes.len() > 4)?;
        Some(Signature { name: name.to_owned(), bytes })
    };
    if lines.is_empty() {
        return Some(Vec::new());
    }
    lines.strip_suffix('\n')?.split('\n').map(signature).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_note_is_read_as_it_was_written() {
        let (key, _) = SigningKey::generate("log").unwrap();
        let (other, _) = SigningKey::generate("log").unwrap();
        let note = Note::sign("one\n\ntwo\n".into(), &key);
        let text = note.to_string();
        assert!(text.starts_with("one\n\ntwo\n\n— log "), "{text}");
        assert_eq!(Note::parse(&text), Some(note.clone()));
        assert!(note.verified(key.public()).is_some() && note.verified(other.public()).is_none());
        let renamed = Note::parse(&text.replace("— log ", "— another ")).unwrap();
        assert!(renamed.verified(key.public()).is_none(), "a signature has the name of its key");
        let changed = Note::parse(&text.replace("two", "too")).unwrap();
        assert!(changed.verified(key.public()).is_none());
    }

    /// The example of C2SP signed-note: a text may have an empty line.
    #[test]
    fn example_of_the_note_format_is_read_and_written_alike() {
        let text = "Ognuno sta solo sul cuor della terra\ntrafitto da un raggio di sole:\n\ned è subito sera.\n";
        let signature = "NnugSzTjtVAewIS+Z/iJhUPeFDkO/5QQ2i5ddnGITLlC+EhfLW9oJKONrMouFSQU0xMcXxj99ihAQwaqP3ZekRwNtIc=";
        let example = format!("{text}\n— quasimodo.example/salvatore {signature}\n");
        let note = Note::parse(&example).unwrap();
        assert_eq!((note.text.as_str(), note.to_string()), (text, example));
        let [Signature { name, bytes }] = &note.signatures[..] else { panic!("one signature") };
        assert_eq!((name.as_str(), bytes.len()), ("quasimodo.example/salvatore", 4 + 64));
    }

    /// A note has one text: what no signature covers cannot differ either, and readers of other programs refuse it.
    #[test]
    fn note_with_control_characters_is_not_read() {
        let (key, _) = SigningKey::generate("log").unwrap();
        let text = Note::sign("one\ntwo\n".into(), &key).to_string();
        assert!(is_signed_by(&text, key.public()));
        for changed in [
            text.trim_end().to_owned() + "\r\n",
            text.replace("— log ", "— log\u{1}").replace("AAAA", "AAA\0"),
            text.trim_end().to_owned() + "\n\r\n",
        ] {
            assert_eq!(Note::parse(&changed), None, "{changed:?}");
        }
        let signature = &text[text.find('—').unwrap()..];
        assert_eq!(parse_signatures(signature).map(|found| found.len()), Some(1));
        assert_eq!(parse_signatures(&signature.replace('\n', "\r\n")), None);
        for signed in ["one\r\n", "one\ttwo\n", "one\0\n", "one\u{85}two\n"] {
            let signed = Note::sign(signed.into(), &key);
            assert!(signed.verified(key.public()).is_some());
            assert_eq!(Note::parse(&signed.to_string()), None, "{signed:?}");
        }
    }

    #[test]
    fn text_that_is_no_note_is_not_read() {
        for text in
            ["", "text\n", "text\n\n", "text\n\nlog AAAA\n", "text\n\n— log AAAA\n", "text\n\n— log ====AAAAAAAA"]
        {
            assert_eq!(Note::parse(text), None, "{text}");
        }
    }
}
