//! Options that name a gateway on another machine, and the token for it.

use std::env;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use zeroize::Zeroizing;

use crate::cli::{CONNECTION, CliError, ExitStatus, output};
use domain::management_token;
use domain::secret::Secret;
use platform::outbound::{HttpUrl, Server};
use platform::tls::{CertificateFiles, ClientSettings, ClientTls};

/// Environment variable with the address of the gateway.
const SERVER_VARIABLE: &str = "KEYGATE_SERVER";
/// Environment variable with the path of the token's file.
const TOKEN_VARIABLE: &str = "KEYGATE_TOKEN_FILE";
/// Bytes of a token's file at most: far longer than any token.
const MAX_TOKEN_FILE: u64 = 4 << 10;
/// Permission of others than the owner and the group to read a file.
const READ_BY_OTHERS: u32 = 0o004;

/// Options of a command that also works on another machine.
#[derive(Clone, Debug, Default, clap::Args)]
pub(in crate::cli) struct RemoteArgs {
    /// Management listener of a gateway elsewhere, such as https://keygate.example:9443 [default: $KEYGATE_SERVER]
    #[arg(long, global = true, value_name = "URL", help_heading = CONNECTION)]
    server: Option<String>,
    /// File with a management token, as `keygate token create` prints it [default: $KEYGATE_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION)]
    token_file: Option<PathBuf>,
    /// Authorities (PEM) that certify the server [default: those of the system]
    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION)]
    ca: Option<PathBuf>,
    /// Certificate of this client (PEM), for a token that requires one
    #[arg(long, global = true, value_name = "FILE", requires = "client_key", help_heading = CONNECTION)]
    client_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, global = true, value_name = "FILE", requires = "client_cert", help_heading = CONNECTION)]
    client_key: Option<PathBuf>,
}

/// A gateway elsewhere, and the token for it.
#[derive(Debug)]
pub(in crate::cli) struct RemoteServer {
    pub(super) url: HttpUrl,
    pub(super) server: Server,
    pub(super) token: Secret,
}

impl RemoteArgs {
    /// The gateway elsewhere; none when the command works on this machine. A socket that was named goes before the
    /// environment.
    pub(in crate::cli) fn resolve(&self, is_socket_named: bool) -> Result<Option<RemoteServer>, CliError> {
        if self.server.is_some() && is_socket_named {
            return Err(usage("give either --server or --socket: the command works on one gateway".into()));
        }
        let of_environment = || variable(SERVER_VARIABLE).filter(|_| !is_socket_named);
        let Some(text) = self.server.clone().or_else(of_environment) else {
            let options =
                [("--token-file", &self.token_file), ("--ca", &self.ca), ("--client-cert", &self.client_cert)];
            return match options.into_iter().find(|(_, given)| given.is_some()) {
                Some((option, _)) => Err(usage(format!("{option} has no effect without --server"))),
                None => Ok(None),
            };
        };
        let url = parse_url(&text)?;
        let missing = || usage(format!("--server needs --token-file FILE, or {TOKEN_VARIABLE} in the environment"));
        let file = self.token_file.clone().or_else(|| variable(TOKEN_VARIABLE).map(PathBuf::from));
        let token = read_token(&file.ok_or_else(missing)?)?;
        let tls = url.is_encrypted().then(|| {
            let settings = ClientSettings { ca: self.ca.clone(), identity: self.identity() };
            ClientTls::open(&settings, &[b"http/1.1"]).map(Arc::new)
        });
        let tls = tls.transpose().context("TLS cannot be set up")?;
        let server = Server { host: url.host().to_owned(), port: url.port(), tls };
        Ok(Some(RemoteServer { url, server, token }))
    }
}

impl RemoteArgs {
    /// The certificate of this client, with its key.
    fn identity(&self) -> Option<CertificateFiles> {
        let (chain, key) = self.client_cert.clone().zip(self.client_key.clone())?;
        Some(CertificateFiles { chain, key })
    }
}

/// Parses the address of a management listener. A token is sent in the clear on this machine alone.
fn parse_url(text: &str) -> Result<HttpUrl, CliError> {
    // The text is not repeated: it may have a password, or be a token in the wrong place.
    let invalid = || usage("--server must be an address without a path, such as https://keygate.example:9443".into());
    let url: HttpUrl = text.parse().map_err(|_| invalid())?;
    if !matches!(url.target().to_string().as_str(), "" | "/") {
        return Err(invalid());
    }
    if !url.is_encrypted() && !url.is_local() {
        let message = "--server must begin with https:// unless it is this machine: the token would be readable";
        return Err(usage(message.into()));
    }
    Ok(url)
}

/// Reads the token of a file. Errors do not show its content.
fn read_token(path: &Path) -> Result<Secret, CliError> {
    let name = path.display();
    let mut text = Zeroizing::new(String::with_capacity(256));
    let read = File::open(path).and_then(|file| file.take(MAX_TOKEN_FILE).read_to_string(&mut text));
    read.with_context(|| format!("{name}: the token cannot be read"))?;
    let token = text.trim();
    if management_token::parse(token.as_bytes()).is_none() {
        return Err(usage(format!("{name}: is no management token; `keygate token create` prints one")));
    }
    let is_readable = |mode: u32| mode & READ_BY_OTHERS != 0;
    if fs::metadata(path).is_ok_and(|file| file.is_file() && is_readable(file.permissions().mode())) {
        output::note(format_args!("warning: every user of this machine can read {name}; run chmod 600 {name}"));
    }
    Ok(Secret::new(token.to_owned()))
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn usage(message: String) -> CliError {
    CliError::new(ExitStatus::Usage, anyhow!(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::management_token::PlainToken;

    fn resolved(server: &str, file: &Path) -> Result<RemoteServer, String> {
        let args =
            RemoteArgs { server: Some(server.into()), token_file: Some(file.to_owned()), ..RemoteArgs::default() };
        args.resolve(false).map(Option::unwrap).map_err(|error| format!("{:#}", error.into_cause()))
    }

    #[test]
    fn token_is_sent_in_the_clear_to_this_machine_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let plain = PlainToken::generate().unwrap();
        fs::write(&file, format!("{}\n", plain.expose().expose())).unwrap();
        for server in ["http://127.0.0.1:9443", "http://localhost:9443/", "http://[::1]:1"] {
            let resolved = resolved(server, &file).unwrap();
            assert_eq!(resolved.token.expose(), plain.expose().expose(), "{server}");
            assert!(!format!("{resolved:?}").contains(plain.expose().expose()), "{resolved:?}");
        }
        for server in ["http://192.0.2.1:9443", "http://keygate.example", "http://127.0.0.1.example"] {
            assert!(resolved(server, &file).unwrap_err().contains("must begin with https://"), "{server}");
        }
        for server in ["keygate.example", "https://keygate.example/v1", "https://u:p@keygate.example", "ftp://x", ""] {
            let error = resolved(server, &file).unwrap_err();
            assert!(error.contains("an address without a path") && !error.contains("u:p"), "{server}: {error}");
        }
    }

    #[test]
    fn error_of_a_token_file_does_not_show_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        for content in ["", "kgm_secret", "sk_live_abcDEF123secret"] {
            fs::write(&file, content).unwrap();
            let error = resolved("http://127.0.0.1:1", &file).unwrap_err();
            assert!(error.contains("is no management token") && !error.contains("secret"), "{error}");
        }
        assert!(resolved("http://127.0.0.1:1", &directory.path().join("none")).unwrap_err().contains("cannot be read"));
    }
}
