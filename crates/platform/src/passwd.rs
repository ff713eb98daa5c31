//! Names of the users of this machine: `/etc/passwd` (passwd(5)).
//!
//! A directory service is not asked: one that does not respond would delay a revocation. A user who is only there has
//! no name.

use std::fs;

const FILE: &str = "/etc/passwd";

/// The users of this machine.
#[derive(Debug)]
pub struct Passwd(String);

impl Passwd {
    /// Reads the file. Without it, as in a minimal image, no user has a name.
    pub fn read() -> Self {
        Self(fs::read_to_string(FILE).unwrap_or_default())
    }

    /// The users of a file with this text.
    pub fn from_text(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The name of the user with this uid; of the first one, if there are several.
    pub fn name(&self, uid: u32) -> Option<&str> {
        self.0.lines().map(|line| line.split(':')).find_map(|mut fields| {
            let name = fields.next().filter(|name| !name.is_empty())?;
            (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_named_user_of_a_uid_is_found() {
        let passwd = Passwd::from_text("root:x:0:0:root:/root:/bin/sh\n# a comment\n:x:7::\nada:x:1000:1000::/\nx:0\n");
        assert_eq!((passwd.name(0), passwd.name(1000)), (Some("root"), Some("ada")));
        assert_eq!((passwd.name(7), passwd.name(1)), (None, None));
    }
}
