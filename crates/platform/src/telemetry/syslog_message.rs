//! Messages of syslog (RFC 5424), and their framing on streams (RFC 6587).

use domain::clock::Micros;

/// Severity "informational" (RFC 5424, section 6.2.1).
const INFORMATIONAL: u8 = 6;
/// Longest host name of a message (RFC 5424, section 6).
const MAX_HOST: usize = 255;
/// Highest number of a message; the next one is 1 again (RFC 5424, section 7.3.1).
const MAX_SEQUENCE: u32 = 2_147_483_647;

/// Byte order mark of a text that is not ASCII (RFC 5424, section 6.4).
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// Writer of messages. With numbers, each has the next one, by which the receiver finds out that some are missing.
#[derive(Debug)]
pub struct MessageWriter {
    /// `<PRI>1 `.
    priority: String,
    /// ` HOSTNAME APP-NAME PROCID MSGID [origin …]`.
    origin: Vec<u8>,
    sequence: u32,
}

impl MessageWriter {
    /// Messages of this process, with numbers.
    pub fn new(facility: u8, gateway: &str, message_id: &str) -> Self {
        Self::with_process(facility, gateway, &std::process::id().to_string(), message_id)
    }

    /// Messages that are the same in every process, as they name none.
    pub fn without_numbers(facility: u8, gateway: &str, message_id: &str) -> Self {
        Self::with_process(facility, gateway, "-", message_id)
    }

    fn with_process(facility: u8, gateway: &str, process: &str, message_id: &str) -> Self {
        let mut origin = format!(" {} keygate {process} {message_id} ", host_name(gateway)).into_bytes();
        let parameters = [("software", "keygate"), ("swVersion", env!("CARGO_PKG_VERSION"))];
        push_element(&mut origin, "origin", &parameters);
        let priority = u32::from(facility) * 8 + u32::from(INFORMATIONAL);
        Self { priority: format!("<{priority}>1 "), origin, sequence: 0 }
    }

    /// Appends a message. Its text is ASCII, and so needs no byte order mark (RFC 5424, section 6.4).
    pub fn write(&mut self, out: &mut Vec<u8>, now: Micros, text: &[u8]) {
        self.sequence = self.sequence % MAX_SEQUENCE + 1;
        out.extend_from_slice(self.priority.as_bytes());
        out.extend_from_slice(now.to_string().as_bytes());
        out.extend_from_slice(&self.origin);
        push_element(out, "meta", &[("sequenceId", itoa::Buffer::new().format(self.sequence))]);
        out.push(b' ');
        out.extend_from_slice(text);
    }

    /// Appends a message with its length in front (RFC 6587, section 3.4.1). `scratch` is emptied.
    pub fn write_framed(&mut self, out: &mut Vec<u8>, scratch: &mut Vec<u8>, now: Micros, text: &[u8]) {
        scratch.clear();
        self.write(scratch, now, text);
        push_frame(out, scratch);
    }

    /// Appends a message without a number, in UTF-8, with its length in front. `scratch` is emptied.
    pub fn write_unnumbered(&self, out: &mut Vec<u8>, scratch: &mut Vec<u8>, time: Micros, text: &[u8]) {
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

    /// Takes numbers back: so many messages were not sent.
    pub fn take_back(&mut self, messages: u64) {
        self.sequence = self.sequence.saturating_sub(u32::try_from(messages).unwrap_or(u32::MAX));
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

    fn message(writer: &mut MessageWriter, text: &str) -> String {
        let mut out = Vec::new();
        writer.write(&mut out, NOW, text.as_bytes());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn message_is_that_of_the_standard() {
        let mut writer = MessageWriter::new(16, "gate way\u{e9}", "access");
        let id = std::process::id();
        let version = env!("CARGO_PKG_VERSION");
        for sequence in [1, 2] {
            let expected = format!(
                "<134>1 2023-11-14T22:13:20.000042Z gate_way_ keygate {id} access \
                 [origin software=\"keygate\" swVersion=\"{version}\"][meta sequenceId=\"{sequence}\"] {{}}"
            );
            assert_eq!(message(&mut writer, "{}"), expected);
        }
        writer.take_back(1);
        assert!(message(&mut writer, "{}").contains("sequenceId=\"2\""));
        writer.sequence = MAX_SEQUENCE;
        assert!(message(&mut writer, "{}").contains("sequenceId=\"1\""), "the number begins again");
    }

    #[test]
    fn framed_messages_have_their_length_in_front() {
        let mut writer = MessageWriter::new(0, "", "access");
        let mut out = Vec::new();
        let mut scratch = Vec::new();
        writer.write_framed(&mut out, &mut scratch, NOW, b"{}");
        let text = String::from_utf8(out).unwrap();
        let (length, message) = text.split_once(' ').unwrap();
        assert_eq!(length.parse(), Ok(message.len()));
        assert!(message.starts_with("<6>1 ") && message.contains(" - keygate "), "{message}");
    }

    #[test]
    fn message_without_a_number_is_the_same_each_time() {
        let writer = MessageWriter::without_numbers(13, "gw-1", "audit");
        let mut out = Vec::new();
        let mut scratch = Vec::new();
        writer.write_unnumbered(&mut out, &mut scratch, NOW, "{\"ä\":1}".as_bytes());
        let version = env!("CARGO_PKG_VERSION");
        let message = format!(
            "<110>1 2023-11-14T22:13:20.000042Z gw-1 keygate - audit \
             [origin software=\"keygate\" swVersion=\"{version}\"] \u{feff}{{\"ä\":1}}"
        );
        assert_eq!(String::from_utf8(out).unwrap(), format!("{} {message}", message.len()));
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
