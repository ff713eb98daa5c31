//! Messages of syslog (RFC 5424), and their framing on streams (RFC 6587).

use domain::clock::Micros;

/// Severity "informational" (RFC 5424, section 6.2.1).
const INFORMATIONAL: u8 = 6;
/// Longest host name of a message (RFC 5424, section 6).
const MAX_HOST: usize = 255;
/// Byte order mark of a text that is not ASCII (RFC 5424, section 6.4).
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// Writer of messages of one kind. The same text and time give the same message, as it names no process and has no
/// number.
#[derive(Debug)]
pub(super) struct MessageWriter {
    /// `<PRI>1 `.
    priority: String,
    /// ` HOSTNAME APP-NAME PROCID MSGID [origin …]`.
    origin: Vec<u8>,
}

impl MessageWriter {
    /// Messages of a gateway.
    pub(super) fn new(facility: u8, gateway: &str, message_id: &str) -> Self {
        let mut origin = format!(" {} keygate - {message_id} ", host_name(gateway)).into_bytes();
        let parameters = [("software", "keygate"), ("swVersion", env!("CARGO_PKG_VERSION"))];
        push_element(&mut origin, "origin", &parameters);
        let priority = u32::from(facility) * 8 + u32::from(INFORMATIONAL);
        Self { priority: format!("<{priority}>1 "), origin }
    }

    /// Appends a message in UTF-8, with its length in front. `scratch` is emptied.
    pub(super) fn write(&self, out: &mut Vec<u8>, scratch: &mut Vec<u8>, time: Micros, text: &[u8]) {
        scratch.clear();
        scratch.extend_from_slice(self.priority.as_bytes());
        scratch.extend_from_slice(time.to_string().as_bytes());
        scratch.extend_from_slice(&self.origin);
        scratch.push(b' ');
        if !text.is_ascii() {
            scratch.extend_from_slice(UTF8_MARK);
        }
        scratch.extend_from_slice(text);
        push_frame(out, scratch);
    }
}

/// Appends a message with its length in front (RFC 6587, section 3.4.1).
fn push_frame(out: &mut Vec<u8>, message: &[u8]) {
    out.extend_from_slice(itoa::Buffer::new().format(message.len()).as_bytes());
    out.push(b' ');
    out.extend_from_slice(message);
}

/// Appends an element of structured data (RFC 5424, section 6.3).
fn push_element(out: &mut Vec<u8>, id: &str, parameters: &[(&str, &str)]) {
    out.push(b'[');
    out.extend_from_slice(id.as_bytes());
    for (name, value) in parameters {
        out.push(b' ');
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"=\"");
        for byte in value.bytes() {
            if matches!(byte, b'"' | b'\\' | b']') {
                out.push(b'\\');
            }
            out.push(byte);
        }
        out.push(b'"');
    }
    out.push(b']');
}

/// Name of this gateway as the host of a message: printable ASCII without spaces, or `-`.
fn host_name(gateway: &str) -> String {
    let visible = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    let name: String = gateway.chars().map(visible).take(MAX_HOST).collect();
    if name.is_empty() { "-".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Micros = Micros(1_700_000_000_000_042);

    /// A message with its length in front, each time the same.
    #[track_caller]
    fn assert_message(writer: &MessageWriter, text: &str, expected: &str) {
        let (mut out, mut scratch) = (Vec::new(), b"of the one before".to_vec());
        writer.write(&mut out, &mut scratch, NOW, text.as_bytes());
        writer.write(&mut out, &mut scratch, NOW, text.as_bytes());
        assert_eq!(String::from_utf8(out).unwrap(), format!("{} {expected}", expected.len()).repeat(2));
    }

    #[test]
    fn message_is_that_of_the_standard_with_its_length_in_front() {
        let origin = format!("[origin software=\"keygate\" swVersion=\"{}\"]", env!("CARGO_PKG_VERSION"));
        let time = "2023-11-14T22:13:20.000042Z";
        let message = format!("<110>1 {time} gw-1 keygate - audit {origin} \u{feff}{{\"ä\":1}}");
        assert_message(&MessageWriter::new(13, "gw-1", "audit"), "{\"ä\":1}", &message);
        let message = format!("<134>1 {time} gate_way_ keygate - checkpoint {origin} {{}}");
        assert_message(&MessageWriter::new(16, "gate way\u{e9}", "checkpoint"), "{}", &message);
        let message = format!("<6>1 {time} - keygate - audit {origin} {{}}");
        assert_message(&MessageWriter::new(0, "", "audit"), "{}", &message);
    }

    proptest! {
        #[test]
        fn structured_data_can_be_read_back(value in "[ -~é\"\\\\\\]]{0,20}") {
            let mut out = Vec::new();
            push_element(&mut out, "id", &[("name", &value)]);
            let text = String::from_utf8(out).unwrap();
            let inside = text.strip_prefix("[id name=\"").unwrap().strip_suffix("\"]").unwrap();
            let mut read = String::new();
            let mut characters = inside.chars();
            while let Some(c) = characters.next() {
                prop_assert!(!matches!(c, '"' | ']'), "an unescaped {c} ends the value: {inside}");
                read.push(if c == '\\' { characters.next().unwrap() } else { c });
            }
            prop_assert_eq!(read, value);
        }

        #[test]
        fn host_name_is_a_word(gateway in any::<String>()) {
            let name = host_name(&gateway);
            prop_assert!(!name.is_empty() && name.len() <= MAX_HOST && name.bytes()
                .all(|byte| byte.is_ascii_graphic()));
        }
    }
}
