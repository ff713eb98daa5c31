//! Questions of `keygate init` on a terminal: asked on standard error, until the answer is valid.

use std::fmt::Display;
use std::io::{self, BufRead as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::anyhow;

use super::{Answers, LISTEN, directory, parse_listen, parse_upstream};
use crate::cli::{CliError, ExitStatus, output};

/// Asks for the upstream, and for what was not given as an argument.
pub(super) fn ask_missing(listen: Option<SocketAddr>, dir: Option<PathBuf>) -> Result<Answers, CliError> {
    let upstream = ask("Upstream, such as http://127.0.0.1:3000", None, parse_upstream)?;
    let listen = match listen {
        Some(listen) => listen,
        None => ask("Address that the gateway listens on", Some(LISTEN), parse_listen)?,
    };
    let dir = match dir {
        Some(dir) => directory::check_free(&dir).map(|()| dir)?,
        None => ask("Directory of the configuration and the data", Some(directory::DEFAULT), |text| {
            let dir = PathBuf::from(text);
            directory::check_free(&dir).map(|()| dir)
        })?,
    };
    Ok(Answers { upstream, listen, dir })
}

/// Asks until an answer is valid. An empty answer is the default.
fn ask<T, E: Display>(
    question: &str,
    default: Option<&str>,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<T, CliError> {
    let shown = default.map(|default| format!(" [{default}]")).unwrap_or_default();
    loop {
        write!(io::stderr(), "{question}{shown}: ")?;
        let mut answer = String::new();
        if io::stdin().lock().read_line(&mut answer)? == 0 {
            return Err(CliError::new(ExitStatus::Failed, anyhow!("the input has ended; nothing was written")));
        }
        let answer = match (answer.trim(), default) {
            ("", Some(default)) => default,
            (answer, _) => answer,
        };
        match parse(answer) {
            Ok(answer) => return Ok(answer),
            Err(error) => output::note(error),
        }
    }
}
