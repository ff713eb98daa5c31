//! Users of the machine who act as the operator, by the names that records of changes have.
//!
//! - The uid is the kernel's: that of the process at the other end of the admin socket (`SO_PEERCRED`, unix(7)). What a
//!   process says about itself is believed of root only: the user for whom it acts by sudo (`SUDO_UID`).
//! - Names are those of `/etc/passwd`. A user who has none there is a number.

use std::borrow::Cow;
use std::fmt;

use platform::passwd::Passwd;

/// Uid of root.
const ROOT_UID: u32 = 0;

/// A user of the machine, as a record names them: `unix:ada(1000)`, or `unix:root(0) sudo:ada(1000)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixUser(Cow<'static, str>);

impl UnixUser {
    /// Root, by themselves.
    pub const ROOT: Self = Self(Cow::Borrowed("unix:root(0)"));
    /// The gateway itself, which records what it has found.
    pub(super) const GATEWAY: Self = Self(Cow::Borrowed("gateway"));

    /// The user with this uid. `sudo_uid` is the user for whom the process says that it acts.
    pub fn of_process(uid: u32, sudo_uid: Option<u32>) -> Self {
        Self(Cow::Owned(describe(uid, sudo_uid, &Passwd::read())))
    }

    /// The text in records.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UnixUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn describe(uid: u32, sudo_uid: Option<u32>, passwd: &Passwd) -> String {
    let user = format!("unix:{}", named(uid, passwd));
    match sudo_uid.filter(|_| uid == ROOT_UID) {
        Some(sudo_uid) => format!("{user} sudo:{}", named(sudo_uid, passwd)),
        None => user,
    }
}

/// `NAME(UID)`; the uid alone when no user has it.
fn named(uid: u32, passwd: &Passwd) -> String {
    passwd.name(uid).map_or_else(|| uid.to_string(), |name| format!("{name}({uid})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sudo_user_is_believed_of_root_only() {
        let passwd = Passwd::from_text("root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n");
        for (uid, sudo_uid, described) in [
            (0, None, "unix:root(0)"),
            (0, Some(1000), "unix:root(0) sudo:ada(1000)"),
            (0, Some(7), "unix:root(0) sudo:7"),
            (1000, None, "unix:ada(1000)"),
            (1000, Some(0), "unix:ada(1000)"),
            (1001, Some(1000), "unix:1001"),
        ] {
            assert_eq!(describe(uid, sudo_uid, &passwd), described);
        }
        assert_eq!(describe(0, None, &Passwd::from_text("")), "unix:0");
    }
}
