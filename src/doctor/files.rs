//! Check of file modes: secrets that others may read, and files that others may change.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::finding::Findings;
use super::read_files;
use crate::config::Config;
use platform::settings::SecretSource;
use state::Settings as State;

/// Content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// A password, a private key, or a configuration with such in it.
    Secret,
    /// A configuration without secrets.
    Configuration,
    /// The state or the journal.
    Data,
    /// The admin socket: access to it is the right of an operator.
    Socket,
}

/// Checks the files that the configuration names.
pub(super) async fn check(environment: &Environment, findings: &mut Findings) {
    let files = files(&environment.config);
    let modes = read_files(move || {
        files.into_iter().map(|(path, content)| (read_mode(&path), path, content)).collect::<Vec<_>>()
    });
    for (mode, path, content) in modes.await {
        match mode {
            Ok(mode) => judge(&path, content, mode, findings),
            // The configuration was read, so that a missing one is made by the gateway when it starts.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let advice = "run this command as the user that the gateway runs as";
                findings.note(path.display().to_string(), format!("mode cannot be read: {error}"), advice);
            }
        }
    }
}

/// The files, each with its most sensitive content.
fn files(config: &Config) -> Vec<(PathBuf, Content)> {
    let has_password = matches!(&config.state, State::Redis(redis) if redis.login.password.is_some());
    let mut configuration = Content::Configuration;
    let mut files = Vec::new();
    for source in &config.secrets {
        match source {
            SecretSource::File(path) => files.push((path.clone(), Content::Secret)),
            // A url is read as a secret, because it may hold a password.
            SecretSource::Inline(key) if key.starts_with("state.redis.url") && !has_password => {}
            SecretSource::Inline(_) => configuration = Content::Secret,
            SecretSource::Environment => {}
        }
    }
    files.push((config.source.path.clone(), configuration));
    let tls = config.listen.iter().filter_map(|listener| listener.tls.as_ref());
    let own = tls.flat_map(|tls| &tls.certificates);
    let clients = config.outbound_tls();
    let of_clients = clients.iter().filter_map(|client| client.identity.as_ref());
    files.extend(own.chain(of_clients).map(|certificate| (certificate.key.clone(), Content::Secret)));
    let signing_key =
        config.audit.checkpoints.iter().map(|checkpoints| (checkpoints.key_file.clone(), Content::Secret));
    files.extend(signing_key);
    if let State::Embedded(embedded) = &config.state {
        files.push((embedded.path.clone(), Content::Data));
    }
    files.push((config.audit.path.clone(), Content::Data));
    files.push((config.admin.socket.clone(), Content::Socket));
    files
}

/// The mode of a file, as far as it can be used: the rights of others end at a directory that they may not enter.
fn read_mode(path: &Path) -> io::Result<u32> {
    let path = path.canonicalize()?;
    let mode = std::fs::metadata(&path)?.permissions().mode() & 0o777;
    for directory in path.ancestors().skip(1) {
        if std::fs::metadata(directory)?.permissions().mode() & 0o001 == 0 {
            return Ok(mode & !0o007);
        }
    }
    Ok(mode)
}

fn judge(path: &Path, content: Content, mode: u32, findings: &mut Findings) {
    let subject = path.display().to_string();
    let found = |what: &str| format!("mode {mode:04o}: {what}");
    let is_open_to_others = match content {
        Content::Secret | Content::Data => mode & 0o004 != 0,
        Content::Configuration => false,
        Content::Socket => mode & 0o006 != 0,
    };
    if mode & 0o002 != 0 {
        findings.error(subject, found("every user of this machine may change it"), "run `chmod o-rwx` on it");
    } else if is_open_to_others {
        findings.warning(subject, found("every user of this machine may read it"), "run `chmod o-rwx` on it");
    } else if mode & 0o020 != 0 {
        let advice = "run `chmod g-w` on it, unless that group are operators: they have all rights by it";
        findings.note(subject, found("its group may change it"), advice);
    } else {
        findings.ok(subject, format!("mode {mode:04o}"));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::super::finding::Severity::{self, Error, Note, Ok, Warning};
    use super::*;

    #[test]
    fn secrets_and_places_that_operators_use_are_among_the_files() {
        let files_of = |blocks: &str| {
            let text = format!(
                "listen: [{{ address: 127.0.0.1:0 }}]\n\
                 admin: {{ socket: admin.sock, address: 127.0.0.1:1 }}\n\
                 upstream: {{ endpoints: ['http://127.0.0.1:8081'] }}\n\
                 state: {{ embedded: {{ path: state.db }} }}\n\
                 audit: {{ path: audit }}\n{blocks}"
            );
            files(&Config::parse(Path::new("keygate.yaml"), &text).unwrap())
        };
        let of = |files: &[(PathBuf, Content)], name: &str| {
            let found = files.iter().find(|(path, _)| path.ends_with(name));
            found.unwrap_or_else(|| panic!("no {name} in {files:?}")).1
        };
        let plain = files_of("");
        let expected = [Content::Configuration, Content::Data, Content::Data, Content::Socket];
        assert_eq!(["keygate.yaml", "state.db", "audit", "admin.sock"].map(|name| of(&plain, name)), expected);
        let token =
            "telemetry: { traces: { endpoint: 'http://127.0.0.1:4318', headers: { authorization: 'Bearer x' } } }\n";
        assert_eq!(of(&files_of(token), "keygate.yaml"), Content::Secret);
    }

    #[test]
    fn modes_are_judged_by_the_content() {
        use Content::{Configuration, Data, Secret, Socket};
        let cases: &[(Content, u32, Severity)] = &[
            (Secret, 0o600, Ok),
            (Secret, 0o640, Ok),
            (Secret, 0o644, Warning),
            (Secret, 0o646, Error),
            (Secret, 0o660, Note),
            (Configuration, 0o644, Ok),
            (Configuration, 0o664, Note),
            (Configuration, 0o666, Error),
            (Data, 0o700, Ok),
            (Data, 0o755, Warning),
            (Socket, 0o600, Ok),
            (Socket, 0o666, Error),
            (Socket, 0o604, Warning),
        ];
        for (content, mode, expected) in cases {
            let mut findings = Findings::new("files");
            judge(Path::new("a"), *content, *mode, &mut findings);
            assert_eq!(findings.into_list()[0].severity, *expected, "{content:?} {mode:o}");
        }
    }

    #[test]
    fn closed_directory_protects_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        assert_eq!(read_mode(&file).unwrap(), 0o640);
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        assert_eq!(read_mode(&file).unwrap(), 0o644);
    }
}
