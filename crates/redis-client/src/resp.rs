//! Commands and replies as they are on the wire (RESP 2).

use std::io;

use redis::{Cmd, RedisError, Value, parse_redis_value};

/// A command in its form on the wire: packed once, for every server that it is sent to.
#[derive(Clone, Debug)]
pub struct PackedCommand(Vec<u8>);

impl PackedCommand {
    /// A command of so many words, which follow. `size` is the length of all of them, or about that.
    pub(super) fn begin(words: usize, size: usize) -> Self {
        // Around each word there are mostly four bytes and a length of three digits.
        let mut packed = Vec::with_capacity(size + 8 * (words + 1));
        write_length(&mut packed, b'*', words);
        Self(packed)
    }

    pub(super) fn add(&mut self, word: &[u8]) {
        write_length(&mut self.0, b'$', word.len());
        self.0.extend_from_slice(word);
        self.0.extend_from_slice(b"\r\n");
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&Cmd> for PackedCommand {
    fn from(command: &Cmd) -> Self {
        Self(command.get_packed_command())
    }
}

impl From<Cmd> for PackedCommand {
    fn from(command: Cmd) -> Self {
        Self::from(&command)
    }
}

fn write_length(packed: &mut Vec<u8>, kind: u8, length: usize) {
    // From the last digit to the first: no command has a word of more digits.
    let mut line = [0; 24];
    let mut begin = 22;
    let mut rest = length;
    line[22..].copy_from_slice(b"\r\n");
    loop {
        begin -= 1;
        line[begin] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    line[begin - 1] = kind;
    packed.extend_from_slice(&line[begin - 1..]);
}

/// Finds the end of each reply in the bytes that were received.
///
/// - It goes on where it stopped when more bytes are there, so that a large reply is not looked at again and again.
pub(super) struct ReplyScanner {
    /// Bytes of the reply that belong to values which are complete.
    scanned: usize,
    /// Values of the reply that are still to come.
    missing: usize,
}

impl ReplyScanner {
    pub(super) fn new() -> Self {
        Self { scanned: 0, missing: 1 }
    }

    /// Decodes the reply at the beginning of `bytes`, which may begin with what was there at the last call. Returns it
    /// with its length; `None` while it is incomplete.
    ///
    /// # Errors
    /// The bytes are no reply.
    pub(super) fn decode(&mut self, bytes: &[u8]) -> Result<Option<(Value, usize)>, RedisError> {
        while self.missing > 0 {
            let Some((length, elements)) = value_at(&bytes[self.scanned..])? else { return Ok(None) };
            self.scanned += length;
            self.missing = self.missing - 1 + elements;
        }
        let length = std::mem::replace(self, Self::new()).scanned;
        Ok(Some((decode_reply(&bytes[..length])?, length)))
    }
}

/// Length of the value at the beginning of `bytes`, of an array that of its head; and the number of an array's
/// elements. `None` while it is incomplete.
fn value_at(bytes: &[u8]) -> Result<Option<(usize, usize)>, RedisError> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let [kind, number @ .., b'\r', b'\n'] = &bytes[..=end] else { return Err(malformed()) };
    let head = end + 1;
    Ok(match kind {
        b'+' | b'-' | b':' => Some((head, 0)),
        b'$' => match parse_length(number)? {
            None => Some((head, 0)),
            Some(length) => Some((head + length + 2, 0)).filter(|(length, _)| bytes.len() >= *length),
        },
        b'*' => Some((head, parse_length(number)?.unwrap_or(0))),
        _ => return Err(malformed()),
    })
}

/// A length; `None` for the -1 of a value that is not there.
fn parse_length(digits: &[u8]) -> Result<Option<usize>, RedisError> {
    if digits == b"-1" {
        return Ok(None);
    }
    // Nine digits are more than the 512 MiB of the longest value.
    let is_number = (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let length = digits.iter().fold(0, |number, digit| number * 10 + usize::from(digit & 15));
    if is_number { Ok(Some(length)) } else { Err(malformed()) }
}

/// Decodes a complete reply. One string, as scripts return it for a decision, is taken out here; the crate decodes the
/// rest.
fn decode_reply(reply: &[u8]) -> Result<Value, RedisError> {
    match reply {
        [b'$', b'0'..=b'9', ..] => {
            let head = reply.iter().position(|byte| *byte == b'\n').map_or(reply.len(), |end| end + 1);
            let string = reply.get(head..reply.len() - 2).ok_or_else(malformed)?;
            Ok(Value::BulkString(string.to_vec()))
        }
        _ => parse_redis_value(reply),
    }
}

pub(super) fn malformed() -> RedisError {
    io::Error::new(io::ErrorKind::InvalidData, "the reply is not one of the Redis protocol").into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redis::cmd;

    use super::*;

    /// A reply as it is on the wire.
    fn reply() -> impl Strategy<Value = Vec<u8>> {
        let line = |kind: char, text: String| format!("{kind}{text}\r\n").into_bytes();
        let leaf = prop_oneof![
            "[ -~]{0,20}".prop_map(move |text| line('+', text)),
            "[A-Z]{1,8} [ -~]{0,20}".prop_map(move |text| line('-', text)),
            any::<i64>().prop_map(move |number| line(':', number.to_string())),
            Just(b"$-1\r\n".to_vec()),
            Just(b"*-1\r\n".to_vec()),
            prop::collection::vec(any::<u8>(), 0..300)
                .prop_map(|string| { [format!("${}\r\n", string.len()).as_bytes(), &string, b"\r\n"].concat() }),
        ];
        leaf.prop_recursive(3, 20, 5, |element| {
            prop::collection::vec(element, 0..5)
                .prop_map(|elements| [format!("*{}\r\n", elements.len()).into_bytes(), elements.concat()].concat())
        })
    }

    proptest! {
        /// In pieces of any length, several replies are decoded as the crate decodes each.
        #[test]
        fn replies_are_decoded_as_by_the_crate(replies in prop::collection::vec(reply(), 1..5), piece in 1_usize..40) {
            let expected: Vec<Value> = replies.iter().map(|reply| parse_redis_value(reply).unwrap()).collect();
            let mut scanner = ReplyScanner::new();
            let mut received = Vec::new();
            let mut decoded = Vec::new();
            for bytes in replies.concat().chunks(piece) {
                received.extend_from_slice(bytes);
                while let Some((value, length)) = scanner.decode(&received).unwrap() {
                    received.drain(..length);
                    decoded.push(value);
                }
            }
            prop_assert_eq!(decoded, expected);
            prop_assert!(received.is_empty());
        }

        #[test]
        fn any_bytes_are_incomplete_or_refused_or_a_reply(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(Some((_, length))) = ReplyScanner::new().decode(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }

        #[test]
        fn command_is_packed_as_by_the_crate(
            words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..12),
        ) {
            let mut command = cmd("EVALSHA");
            for word in &words {
                command.arg(word);
            }
            let mut packed = PackedCommand::begin(1 + words.len(), 0);
            std::iter::once(&b"EVALSHA"[..]).chain(words.iter().map(Vec::as_slice)).for_each(|word| packed.add(word));
            prop_assert_eq!(packed.as_bytes(), command.get_packed_command());
        }
    }

    #[test]
    fn malformed_replies_are_refused() {
        for bytes in [&b"?1\r\n"[..], b"$1x\r\n", b"*-2\r\n", b"$\r\n", b"+a\n", b"\r\n", b"$9999999999\r\n"] {
            assert!(ReplyScanner::new().decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
