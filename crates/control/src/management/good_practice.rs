//! Advice that accompanies a new key wherever it is shown.

/// Good practice with keys, and the lines that put a key into the environment.
#[derive(Clone, Copy, Debug)]
pub struct GoodPractice;

impl GoodPractice {
    /// Good practice: a sentence each.
    pub const LINES: [&'static str; 4] = [
        "Use one key for each application and environment, so that each can be revoked on its own.",
        "Never put a key into version control, nor into anything that a browser or an app store delivers.",
        "Keep it in an environment variable or a vault, and let the program read it at its start.",
        "Rotate it regularly, and watch Last Used for requests that you do not expect.",
    ];

    /// Lines for a POSIX shell. Keys are letters, digits and `_`, and origins have no quotes, so nothing is escaped.
    pub fn exports(api_key: &str, origin: &str) -> String {
        format!("export KEYGATE_API_KEY='{api_key}'\nexport KEYGATE_API_URL='{origin}'")
    }

    /// The line for a POSIX shell that has only the key.
    pub fn export_key(api_key: &str) -> String {
        format!("export KEYGATE_API_KEY='{api_key}'")
    }
}
