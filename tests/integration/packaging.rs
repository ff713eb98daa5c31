//! Man pages, completions, units and the Debian package: complete, and consistent with each other.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use clap::CommandFactory as _;
use keygate::cli::Cli;
use keygate::config::Config;

use crate::support::KEYGATE;

const QUERY_STORE: &str = env!("CARGO_BIN_EXE_query-store");
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// All visible commands below one, each with the words that lead there.
fn commands(command: &clap::Command, words: &[String]) -> Vec<(Vec<String>, clap::Command)> {
    let words = [words, &[command.get_name().to_owned()]].concat();
    let below = command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
    let below = below.flat_map(|command| commands(command, &words));
    [(words.clone(), command.clone())].into_iter().chain(below).collect()
}

fn keygate_commands() -> Vec<(Vec<String>, clap::Command)> {
    let mut command = Cli::command();
    command.build();
    commands(&command, &[])
}

fn flags(command: &clap::Command) -> Vec<String> {
    let visible = command.get_arguments().filter(|argument| !argument.is_hide_set());
    visible.filter_map(|argument| Some(format!("--{}", argument.get_long()?))).collect()
}

fn output(program: &str, arguments: &[&str]) -> String {
    // In a directory without a configuration: documentation needs none.
    let output = Command::new(program).args(arguments).current_dir("/").output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn man_pages_have_every_command_and_flag() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("new");
    for program in [KEYGATE, QUERY_STORE] {
        output(program, &["man", pages.to_str().unwrap()]);
    }
    let written: BTreeSet<String> =
        fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let commands = keygate_commands();
    assert!(commands.len() > 40, "only {} commands were found", commands.len());
    for (words, command) in commands {
        let page = format!("{}.1", words.join("-"));
        let text =
            fs::read_to_string(pages.join(&page)).unwrap_or_else(|error| panic!("{page}: {error}")).replace("\\-", "-");
        for flag in flags(&command) {
            assert!(text.contains(&flag), "{page}: {flag}");
        }
    }
    for page in ["query-store.1", "query-store-serve.1", "query-store-seed.1"] {
        assert!(written.contains(page), "{page}: {written:?}");
    }
    assert!(fs::read_to_string(pages.join("keygate.1")).unwrap().contains("configuration errors"), "exit codes");
}

#[test]
fn completions_have_every_command_and_flag() {
    for shell in SHELLS {
        let script = output(KEYGATE, &["completions", shell]);
        for (words, command) in keygate_commands() {
            assert!(script.contains(words.last().unwrap()), "{shell}: {words:?}");
            // The library's script for fish completes the names of commands within `audit key`, and not their flags.
            if shell == "fish" && words.len() > 3 {
                continue;
            }
            for flag in flags(&command) {
                // fish names long flags without their dashes.
                let name = if shell == "fish" { format!("-l {}", &flag[2..]) } else { flag };
                assert!(script.contains(&name), "{shell}: {words:?} {name}");
            }
        }
        assert!(output(QUERY_STORE, &["completions", shell]).contains("seed"), "{shell}");
    }
    // As a file: it is longer than an argument may be.
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("keygate.bash");
    fs::write(&script, output(KEYGATE, &["completions", "bash"])).unwrap();
    assert!(Command::new("bash").arg("-n").arg(script).status().unwrap().success());
}

/// Bash itself completes by the script.
#[test]
fn bash_completes_commands_and_flags() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("keygate.bash");
    fs::write(&script, output(KEYGATE, &["completions", "bash"])).unwrap();
    let complete = |words: &str, place: usize| {
        let line = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={place}; \
             _keygate keygate \"${{COMP_WORDS[{place}]}}\" \"${{COMP_WORDS[{place}-1]}}\"; echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = Command::new("bash").args(["--norc", "-c", &line]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete("keygate doc", 1), "doctor");
    assert_eq!(complete("keygate key rot", 2), "rotate");
    assert_eq!(complete("keygate doctor --pro", 2), "--problems");
}

/// The block of the Debian package in `Cargo.toml`.
fn package() -> String {
    let manifest = fs::read_to_string("Cargo.toml").unwrap();
    let block = manifest.split("[package.metadata.deb]\n").nth(1).unwrap();
    block.split("\n[").next().unwrap().to_owned()
}

/// Assets of the package: source and destination.
fn assets(package: &str) -> Vec<(String, String)> {
    let lines = package.lines().filter_map(|line| line.trim().strip_prefix('[')?.strip_suffix("],"));
    lines
        .map(|line| {
            let mut parts = line.split(", ").map(|part| part.trim_matches('"').to_owned());
            (parts.next().unwrap(), parts.next().unwrap())
        })
        .collect()
}

/// The files that `deploy/package.sh` lays out are in the package, and the other files of the package
/// are in the repository.
#[test]
fn package_files_are_laid_out() {
    let script = fs::read_to_string("deploy/package.sh").unwrap();
    let package = package();
    let assets = assets(&package);
    assert!(assets.len() > 15, "{assets:?}");
    for (source, _) in &assets {
        match source.strip_prefix("target/package/") {
            Some(made) => {
                let directory = made.split('/').next().unwrap();
                assert!(script.contains(&format!("\"$tree/{directory}")), "{source}");
            }
            // A pattern stands for the files of its directory.
            None if source.contains('*') => assert!(Path::new(source).parent().unwrap().is_dir(), "{source}"),
            None => assert!(Path::new(source).exists(), "{source}"),
        }
    }
    for program in ["keygate", "query-store"] {
        let sources: Vec<&str> = assets.iter().map(|(source, _)| &**source).collect();
        assert!(sources.contains(&&*format!("target/package/bin/{program}")));
        assert!(sources.contains(&&*format!("target/package/systemd/{program}.service")));
        for shell in SHELLS {
            assert!(sources.contains(&&*format!("target/package/completions/{program}.{shell}")), "{program} {shell}");
        }
    }
}

/// An operator finds the socket unit, every page, the alerts and the board on the machine.
#[test]
fn package_has_socket_unit_pages_alerts_and_board() {
    let assets = assets(&package());
    let has = |source: &str| assets.iter().any(|(given, _)| given == source);
    for source in
        ["target/package/systemd/keygate.socket", "deploy/prometheus/alerts.yaml", "deploy/grafana/keygate.json"]
    {
        assert!(has(source), "{source}");
    }
    for page in crate::support::files::files(Path::new("docs"))
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end == "md"))
    {
        let pattern = page.with_file_name("*.md");
        assert!(has(pattern.to_str().unwrap()), "{}", page.display());
    }
}

#[test]
fn units_dump_no_memory_and_query_store_accepts_this_machine_only() {
    let [gateway, store] = ["keygate", "query-store"].map(|unit| {
        let text = fs::read_to_string(format!("deploy/{unit}.service")).unwrap();
        assert!(text.contains("\nLimitCORE=0\n"), "{unit}");
        text
    });
    assert!(gateway.contains("\nLogsDirectory=keygate\n"));
    assert!(store.contains("\nIPAddressDeny=any\nIPAddressAllow=localhost\n"));
}

/// Units, configurations, scripts and the package name the same paths and the same user.
#[test]
fn package_units_and_configurations_agree() {
    let package = package();
    let destinations: Vec<String> = assets(&package)
        .into_iter()
        .map(|(source, destination)| {
            let name = if destination.ends_with('/') { source.rsplit('/').next().unwrap() } else { "" };
            format!("/{destination}{name}")
        })
        .collect();
    let conffiles = package.lines().find(|line| line.starts_with("conf-files")).unwrap();
    for (unit, data) in [("keygate", "/var/lib/keygate"), ("query-store", "/var/lib/query-store")] {
        let text = fs::read_to_string(format!("deploy/{unit}.service")).unwrap();
        let config = text.split("--config ").nth(1).unwrap().split_whitespace().next().unwrap();
        assert!(destinations.contains(&config.to_owned()), "{unit}: {config}");
        assert!(conffiles.contains(config), "{unit}: {config}");
        assert!(
            text.contains(&format!("ExecStart=/usr/local/bin/{unit} serve")),
            "{unit}: package.sh moves it to /usr/bin"
        );
        assert!(destinations.contains(&format!("/usr/bin/{unit}")), "{unit}");
        assert!(text.contains(&format!("StateDirectory={}", &data["/var/lib/".len()..])), "{unit}");
    }
    // The static user that stands in for the dynamic one.
    let sysusers = fs::read_to_string("deploy/debian/keygate.sysusers").unwrap();
    assert!(sysusers.lines().any(|line| line.starts_with("u keygate ")), "{sysusers}");
    let postinst = fs::read_to_string("deploy/debian/postinst").unwrap();
    assert!(postinst.contains("-o keygate -g keygate -m 0700 /var/lib/keygate"));
    let script = fs::read_to_string("deploy/package.sh").unwrap();
    assert!(script.contains("User=keygate\\nGroup=keygate"));
    let store = query_store::Settings::load(Path::new("deploy/systemd/query-store.yaml"))
        .unwrap_or_else(|problems| panic!("{problems}"));
    let gateway =
        Config::load(Path::new("deploy/systemd/keygate.yaml")).unwrap_or_else(|problems| panic!("{problems}"));
    let endpoint = &gateway.upstreams[0].settings.endpoints[0];
    assert_eq!(format!("{}:{}", endpoint.host, endpoint.port), store.listen.to_string());
}

/// The script that people run: what it refuses, and what it signs, with a signing key of its own.
#[test]
fn tag_script_signs_a_release_that_is_whole_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let artifacts = root.join("artifacts");
    for folder in ["deploy/helm/keygate", "gpg", "artifacts"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for file in ["Cargo.toml", "CHANGELOG.md", "deploy/tag.sh", "deploy/helm/keygate/Chart.yaml"] {
        fs::copy(file, root.join(file)).unwrap();
    }
    let version = env!("CARGO_PKG_VERSION");
    fs::write(artifacts.join(format!("keygate-{version}")), "program").unwrap();
    let run = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-ec", line]).current_dir(root).env("GNUPGHOME", root.join("gpg")).env("HOME", root);
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let prepared =
        run("chmod 700 gpg; gpg --quiet --batch --passphrase '' --quick-generate-key 'a <a@b.c>'; git init --quiet; \
         git config user.name a; git config user.email a@b.c; git add Cargo.toml CHANGELOG.md deploy; \
         git commit --quiet --message a; cd artifacts; sha256sum keygate-* > SHA256SUMS");
    assert!(prepared.0, "{prepared:?}");
    let tag = |version: &str| run(&format!("sh deploy/tag.sh {version} artifacts"));
    let other = tag("9.9.9");
    assert!(!other.0 && other.1.contains("another version"), "{other:?}");
    fs::write(artifacts.join(format!("keygate-{version}")), "another program").unwrap();
    let changed = tag(version);
    assert!(!changed.0 && changed.1.contains("not those of SHA256SUMS"), "{changed:?}");
    fs::write(artifacts.join(format!("keygate-{version}")), "program").unwrap();
    let signed = tag(version);
    assert!(signed.0, "{signed:?}");
    let verified =
        run(&format!("git verify-tag v{version}; gpg --verify artifacts/SHA256SUMS.asc artifacts/SHA256SUMS"));
    assert!(verified.0, "{verified:?}");
    let again = tag(version);
    assert!(!again.0 && again.1.contains("already"), "{again:?}");
    run("gpgconf --kill all");
}

/// Every version is the one of the program, and the lines of the pages name what the release makes.
#[test]
fn versions_agree_and_the_pages_name_what_a_release_leaves() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = fs::read_to_string("deploy/helm/keygate/Chart.yaml").unwrap();
    assert!(
        chart.contains(&format!("\nversion: {version}\n")) && chart.contains(&format!("appVersion: \"{version}\""))
    );
    assert!(fs::read_to_string("CHANGELOG.md").unwrap().contains(&format!("\n## {version} - 20")));
    let script = fs::read_to_string("deploy/package.sh").unwrap();
    assert!(script.contains("name=\"keygate-$version-$(uname -m)-linux\"") && script.contains("$out/$name.tar.gz"));
    assert!(script.contains("$out/keygate-chart-$version.tgz"));
    let page = fs::read_to_string("docs/install.md").unwrap();
    for line in [
        "sudo apt install ./target/artifacts/keygate_*_amd64.deb",
        "--file target/artifacts/keygate-*-linux.tar.gz --directory /usr/local",
        "helm install keygate target/artifacts/keygate-chart-*.tgz",
        "cargo install --path . --locked",
    ] {
        assert!(page.contains(line), "{line}");
    }
    assert!(!chart.contains("home:") && !fs::read_to_string("Cargo.toml").unwrap().contains("keygate@example.com"));
}

#[test]
fn scripts_of_the_release_are_well_formed() {
    for file in [
        "deploy/release.sh",
        "deploy/package.sh",
        "deploy/tag.sh",
        "deploy/debian/postinst",
        "deploy/debian/prerm",
        "deploy/debian/postrm",
        "deploy/debian/test.sh",
    ] {
        let checked = Command::new("sh").arg("-n").arg(file).status().unwrap();
        assert!(checked.success(), "{file}");
    }
}
