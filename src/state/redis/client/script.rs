//! The scripts, each with the functions that it shares with others in front.

use redis::{Cmd, Script as Text};

/// A script and its digest.
pub(in crate::state::redis) struct Script {
    text: String,
    sha1: String,
}

/// All scripts.
pub(in crate::state::redis) struct Scripts {
    pub(in crate::state::redis) decide: Script,
    pub(in crate::state::redis) hold: Script,
    pub(in crate::state::redis) commit: Script,
    pub(in crate::state::redis) beat: Script,
    pub(in crate::state::redis) take: Script,
}

impl Scripts {
    pub(in crate::state::redis) fn new() -> Self {
        const BUCKET: &str = include_str!("../scripts/bucket.lua");
        const HOLDERS: &str = include_str!("../scripts/holders.lua");
        Self {
            decide: Script::new(&[BUCKET, HOLDERS, include_str!("../scripts/decide.lua")]),
            hold: Script::new(&[BUCKET, HOLDERS, include_str!("../scripts/hold.lua")]),
            commit: Script::new(&[BUCKET, include_str!("../scripts/commit.lua")]),
            beat: Script::new(&[BUCKET, include_str!("../scripts/beat.lua")]),
            take: Script::new(&[include_str!("../scripts/take.lua")]),
        }
    }
}

impl Script {
    /// The first line has the server refuse the whole script, before it begins, where it would refuse a write in its
    /// midst: out of memory, or on a replica.
    fn new(parts: &[&str]) -> Self {
        let text = format!("#!lua\n{}", parts.concat());
        let sha1 = Text::new(&text).get_hash().to_owned();
        Self { text, sha1 }
    }

    pub(in crate::state::redis) fn by_digest(&self, keys: &[&[u8]], arguments: &[&[u8]]) -> Cmd {
        Self::call("EVALSHA", &self.sha1, keys, arguments)
    }

    pub(in crate::state::redis) fn by_text(&self, keys: &[&[u8]], arguments: &[&[u8]]) -> Cmd {
        Self::call("EVAL", &self.text, keys, arguments)
    }

    /// Has a server keep it, for calls by digest in a pipeline.
    pub(in crate::state::redis) fn load(&self) -> Cmd {
        let mut command = Cmd::new();
        command.arg("SCRIPT").arg("LOAD").arg(&self.text);
        command
    }

    fn call(how: &str, what: &str, keys: &[&[u8]], arguments: &[&[u8]]) -> Cmd {
        let size: usize = keys.iter().chain(arguments).map(|part| part.len()).sum();
        let mut command = Cmd::with_capacity(keys.len() + arguments.len() + 3, size + what.len() + 16);
        command.arg(how).arg(what).arg(keys.len());
        for part in keys.iter().chain(arguments) {
            command.arg(*part);
        }
        command
    }
}
