//! Lua scripts, called by their digest (`EVALSHA`) or by their text (`EVAL`).

use redis::{Script as HashedScript, cmd};

use super::resp::PackedCommand;

/// A script and its SHA-1.
pub struct Script {
    text: String,
    sha1: String,
}

impl Script {
    /// A script from parts that are concatenated: shared functions first, then its body.
    pub fn new(parts: &[&str]) -> Self {
        // The shebang line makes the server check before the script starts that it can write at all (not out of memory,
        // not a replica). Without it, a write in the middle of the script could be refused after an earlier one.
        Self::with_shebang("#!lua", parts)
    }

    /// The same, for a script that runs also when the server's memory is full (`maxmemory`). It must not add more than
    /// what an operator would rather exceed the limit for.
    pub fn allowing_oom(parts: &[&str]) -> Self {
        Self::with_shebang("#!lua flags=allow-oom", parts)
    }

    fn with_shebang(shebang: &str, parts: &[&str]) -> Self {
        let text = format!("{shebang}\n{}", parts.concat());
        let sha1 = HashedScript::new(&text).get_hash().to_owned();
        Self { text, sha1 }
    }

    /// `EVALSHA`. Fails with `NOSCRIPT` on a server that has not loaded the script.
    pub fn by_digest(&self, keys: &[&[u8]], arguments: &[&[u8]]) -> PackedCommand {
        Self::call("EVALSHA", &self.sha1, keys, arguments)
    }

    /// `EVAL`, which also makes the server keep the script.
    pub(crate) fn by_text(&self, keys: &[&[u8]], arguments: &[&[u8]]) -> PackedCommand {
        Self::call("EVAL", &self.text, keys, arguments)
    }

    /// `SCRIPT LOAD`, for calls by digest in a pipeline, where `NOSCRIPT` cannot be retried.
    pub fn load(&self) -> PackedCommand {
        let mut command = cmd("SCRIPT");
        command.arg("LOAD").arg(&self.text);
        command.into()
    }

    fn call(command: &str, script: &str, keys: &[&[u8]], arguments: &[&[u8]]) -> PackedCommand {
        let count = keys.len().to_string();
        let parts = keys.iter().chain(arguments);
        let size: usize = parts.clone().map(|part| part.len()).sum();
        let mut call = PackedCommand::begin(3 + keys.len() + arguments.len(), size + script.len() + 16);
        for word in [command.as_bytes(), script.as_bytes(), count.as_bytes()].into_iter().chain(parts.copied()) {
            call.add(word);
        }
        call
    }
}
