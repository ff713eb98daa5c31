//! Names of organizations, keys and services, and email addresses: which are accepted, and which names look the same.
//!
//! - A name shows in one line, on every terminal and page, exactly as it is: no character of it controls the
//!   line (`Cc`, line and paragraph separators), is invisible or changes the order of others (`Cf`), or has no
//!   defined look (unassigned).
//! - Two names look the same when their [`look`]s are equal: homographs, such as `acme` with a
//!   Cyrillic `а`, are one name.

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory as _};
use unicode_security::confusable_detection::skeleton;

use crate::identity::{OrgId, UserId};

/// Characters of a name.
const MAX_NAME: usize = 100;
/// Bytes of an email address (RFC 5321 section 4.5.3.1.3, without the brackets).
const MAX_EMAIL: usize = 254;

/// A name that is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// It is empty or too long, or has characters that do not show.
    #[error(
        "a name is 1 to 100 characters, without control and format characters and such as Unicode has not assigned; \
         choose another"
    )]
    Characters,
    /// It could be taken for an id.
    #[error("a name must not look like an id; choose another")]
    LikeId,
    /// It could be taken for an email address.
    #[error("the name of a service must not have an `@`; choose another")]
    LikeEmail,
}

/// A text that is not an email address; with the text, escaped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an email address such as ada@example.com; correct it")]
pub struct InvalidEmail(pub String);

/// Validates a name, and returns it without white space (`White_Space`) around it.
///
/// # Errors
/// [`InvalidName::Characters`].
pub fn validate_name(text: &str) -> Result<String, InvalidName> {
    let name = text.trim();
    let has_length = !name.is_empty() && text.chars().count() <= MAX_NAME;
    // Of characters that are all invisible, nothing shows.
    let is_shown = !name.chars().any(is_refused) && !look(name).is_empty();
    if has_length && is_shown { Ok(name.to_owned()) } else { Err(InvalidName::Characters) }
}

/// Validates the name of an organization: references are ids or names, so a name must not look like an id.
///
/// # Errors
/// [`InvalidName`].
pub fn validate_org_name(text: &str) -> Result<String, InvalidName> {
    let name = validate_name(text)?;
    if name.parse::<OrgId>().is_ok() { Err(InvalidName::LikeId) } else { Ok(name) }
}

/// Validates the name of a service, and returns it in lower case without white space around it: references to users are
/// ids, email addresses or names of services, so that a name must look like neither of the first two.
///
/// # Errors
/// [`InvalidName`].
pub fn validate_service_name(text: &str) -> Result<String, InvalidName> {
    // In lower case first: it may be longer.
    let name = validate_name(&text.to_lowercase())?;
    if name.contains('@') {
        return Err(InvalidName::LikeEmail);
    }
    if name.parse::<UserId>().is_ok() { Err(InvalidName::LikeId) } else { Ok(name) }
}

/// Validates an email address and returns it in lower case, so that one address is one user however it is written.
///
/// # Errors
/// [`InvalidEmail`].
pub fn validate_email(text: &str) -> Result<String, InvalidEmail> {
    let valid = text.split_once('@').is_some_and(|(local, domain)| {
        let visible = |c: char| !c.is_whitespace() && !is_refused(c) && !",;<>\"".contains(c);
        let host = |c: char| c.is_alphanumeric() || c == '.' || c == '-';
        let edges = domain.starts_with(['.', '-']) || domain.ends_with(['.', '-']) || domain.contains("..");
        (1..=64).contains(&local.len()) && local.chars().all(visible) && domain.chars().all(host) && !edges
    });
    let domain = text.rsplit('@').next().unwrap_or_default();
    // An identity provider vouches for the address as it is written; lower case must not make it
    // another user's address.
    let valid = valid && !text.chars().any(becomes_ascii);
    if valid && !domain.is_empty() && text.len() <= MAX_EMAIL {
        Ok(text.to_lowercase())
    } else {
        Err(InvalidEmail(text.escape_default().take(MAX_EMAIL).collect()))
    }
}

/// The handle of a user, an email address or the name of a service, as its record has it, from any spelling.
pub fn normalize_handle(text: &str) -> String {
    text.trim().to_lowercase()
}

/// The look of a name: equal for names that look the same, and never shown. It is the skeleton of Unicode
/// Technical Standard #39, section 4, without invisible characters, and with one space for each row of white
/// space. Upper and lower case differ: see [`looks`].
///
/// With a newer version of Unicode, the look of a name may be another one: store [`LOOK_VERSION`] beside stored looks.
pub fn look(name: &str) -> String {
    let visible: String = name.chars().filter(|c| !is_invisible(*c)).collect();
    let spaced = visible.split_whitespace().collect::<Vec<_>>().join(" ");
    skeleton(&spaced).collect()
}

/// The looks of an organization's name, as it is and in lower case. Names that share one look the same, or differ in
/// case alone.
pub fn looks(name: &str) -> [String; 2] {
    [look(name), look(&name.to_lowercase())]
}

/// Version of what [`looks`] returns: that of the tables of confusable characters, and of the rules above.
pub const LOOK_VERSION: &str = "unicode-security 0.1, 2";

/// Returns `true` for a character that no name has. Others may be invisible as well, but are part of
/// how words are written.
pub fn is_refused(c: char) -> bool {
    matches!(
        c.general_category(),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::Unassigned
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
    )
}

/// Returns `true` for a character that does not show (`Default_Ignorable_Code_Point` without those that no name has),
/// and for the blank pattern of Braille.
fn is_invisible(c: char) -> bool {
    matches!(
        u32::from(c),
        0x034F
            | 0x115F..=0x1160
            | 0x17B4..=0x17B5
            | 0x180B..=0x180F
            | 0x2800
            | 0x3164
            | 0xFE00..=0xFE0F
            | 0xFFA0
            | 0xE0100..=0xE01EF
    )
}

/// Returns whether the lower case of a letter beyond ASCII is an ASCII letter, as with the Kelvin
/// sign (U+212A) and `k`.
fn becomes_ascii(letter: char) -> bool {
    !letter.is_ascii() && letter.to_lowercase().any(|lower| lower.is_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_into_a_line() {
        assert_eq!(validate_name("Ada's laptop").unwrap(), "Ada's laptop");
        assert!(validate_name(&"ä".repeat(100)).is_ok());
        for bad in ["", " ", "a\nb", "a\u{1b}[2J", "a\u{2028}b", "a\u{85}b", &"a".repeat(101)] {
            assert!(validate_name(bad).is_err(), "{bad:?}");
        }
        assert_eq!(validate_org_name(&OrgId::generate().to_string()), Err(InvalidName::LikeId));
    }

    #[test]
    fn names_of_services_are_neither_addresses_nor_ids() {
        assert_eq!(validate_service_name(" Nightly Report ").unwrap(), "nightly report");
        for name in ["ada@example.com", "@", "a@b"] {
            assert_eq!(validate_service_name(name), Err(InvalidName::LikeEmail), "{name}");
            assert!(validate_email("nightly report").is_err());
        }
        for id in [UserId::generate().to_string(), UserId::generate().to_string().to_uppercase()] {
            assert_eq!(validate_service_name(&id), Err(InvalidName::LikeId));
        }
        assert_eq!(validate_service_name("a\nb"), Err(InvalidName::Characters));
        // Each is two characters in lower case. An accepted name is written as it was created.
        assert_eq!(validate_service_name(&"\u{130}".repeat(51)), Err(InvalidName::Characters));
        let name = validate_service_name(&"\u{130}".repeat(50)).unwrap();
        assert_eq!(validate_service_name(&name).unwrap(), name);
    }

    #[test]
    fn names_have_no_white_space_around_them() {
        // All of White_Space that is no control character inside a line.
        for space in ['\t', '\n', '\u{85}', '\u{a0}', '\u{1680}', '\u{2007}', '\u{2028}', '\u{202f}', '\u{3000}'] {
            assert_eq!(validate_name(&format!("{space} laptop{space}")).unwrap(), "laptop", "{space:?}");
        }
    }

    #[test]
    fn names_show_every_character() {
        for hidden in ['\u{ad}', '\u{200b}', '\u{200d}', '\u{202e}', '\u{2066}', '\u{feff}', '\u{e0041}', '\u{378}'] {
            assert!(validate_name(&format!("a{hidden}b")).is_err(), "{hidden:?}");
            assert!(validate_email(&format!("a{hidden}b@example.com")).is_err(), "{hidden:?}");
        }
        for blank in ["\u{3164}", "\u{2800}", "\u{115f}\u{fe0f}"] {
            assert!(validate_name(blank).is_err(), "{blank:?}");
        }
        for plain in ["naïve", "株式会社", "🔑 deploy", "❤\u{fe0f}", "שלום", "हिन्दी"] {
            assert_eq!(validate_name(plain).unwrap(), plain);
        }
    }

    #[test]
    fn names_that_look_the_same_have_one_look() {
        for (one, other) in [
            ("acme", "\u{430}cme"),
            ("Café", "Cafe\u{301}"),
            ("acme inc", "acme\u{a0} inc"),
            ("acme", "ac\u{34f}me"),
            ("ACME", "\u{391}\u{421}\u{39c}\u{395}"),
            ("acme", "\u{ff41}cme"),
        ] {
            assert_eq!(look(one), look(other), "{one} {other}");
        }
        for (one, other) in [("acme", "Acme"), ("acme", "acme2"), ("acme inc", "acmeinc"), ("cafe", "café")] {
            assert_ne!(look(one), look(other), "{one} {other}");
        }
    }

    #[test]
    fn names_that_differ_in_case_alone_share_a_look() {
        let share = |one, other| looks(one).iter().any(|look| looks(other).contains(look));
        for (one, other) in [("acme", "Acme"), ("IBM", "ibm"), ("IBM", "lBM"), ("Ärzte", "ÄRZTE")] {
            assert!(share(one, other), "{one} {other}");
        }
        for (one, other) in [("mail", "mall"), ("acme", "Acme2"), ("Bill", "Bull")] {
            assert!(!share(one, other), "{one} {other}");
        }
    }

    #[test]
    fn emails_are_validated_and_in_lower_case() {
        assert_eq!(validate_email("Ada@Example.com").unwrap(), "ada@example.com");
        assert!(validate_email("a.b+c@sub-domain.example").is_ok());
        for bad in ["", "ada", "@example.com", "ada@", "a b@c", "a@b@c", "a@b..c", "a@.b", "a\n@b", "<a>@b", "a@b\n"] {
            assert!(validate_email(bad).is_err(), "{bad:?}");
        }
        assert!(validate_email(&format!("{}@b", "a".repeat(65))).is_err());
        assert_eq!(validate_email("Ärger@example.com").unwrap(), "ärger@example.com");
    }

    #[test]
    fn emails_never_become_those_of_others() {
        for like in ["mar\u{212a}@example.com", "ada@lin\u{212a}.example", "\u{130}da@example.com"] {
            assert!(validate_email(like).is_err(), "{like}: {}", like.to_lowercase());
        }
    }
}
