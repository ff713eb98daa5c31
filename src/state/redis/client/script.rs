//! Lua scripts, called by their digest (`EVALSHA`) or by their text (`EVAL`).

use redis::{Cmd, Script as HashedScript};

/// A script and its SHA-1.
pub(crate) struct Script {
    text: String,
    sha1: String,
}

impl Script {
    /// A script from parts that are concatenated: shared functions first, then its body.
    pub(crate) fn new(parts: &[&str]) -> Self {
        // The shebang line makes the server check before the script starts that it can write at all (not out of memory,
        // not a replica). Without it, a write in the middle of the script could be refused after an earlier one.
        let text = format!("#!lua\n{}", parts.concat());
        let sha1 = HashedScript::new(&text).get_hash().to_owned();
        Self { text, sha1 }
    }

    /// `EVALSHA`. Fails with `NOSCRIPT` on a server that has not loaded the script.
    pub(crate) fn by_digest(&self, keys: &[&[u8]], arguments: &[&[u8]]) -> Cmd {
        Self::call("EVALSHA", &self.sha1, keys, arguments)
    }

    /// `EVAL`, which also makes the server keep the script.
    pub(crate) fn by_text(&self, keys: &[&[u8]], arguments: &[&[u8]]) -> Cmd {
        Self::call("EVAL", &self.text, keys, arguments)
    }

    /// `SCRIPT LOAD`, for calls by digest in a pipeline, where `NOSCRIPT` cannot be retried.
    pub(crate) fn load(&self) -> Cmd {
        let mut command = Cmd::new();
        command.arg("SCRIPT").arg("LOAD").arg(&self.text);
        command
    }

    fn call(command: &str, script: &str, keys: &[&[u8]], arguments: &[&[u8]]) -> Cmd {
        let size: usize = keys.iter().chain(arguments).map(|part| part.len()).sum();
        let mut call = Cmd::with_capacity(keys.len() + arguments.len() + 3, size + script.len() + 16);
        call.arg(command).arg(script).arg(keys.len());
        for part in keys.iter().chain(arguments) {
            call.arg(*part);
        }
        call
    }
}
