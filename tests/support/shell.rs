//! Commands of the documentation, run as they stand on a page.
//!
//! - `keygate` and `query-store` are the programs that are tested, with the configuration of a [`Setup`].
//! - `sudo` and `runuser` run the command as the user of the test, and `systemctl reload` sends the signal of the unit.
//! - Names on a page, such as hosts and directories, are replaced by those of the test ([`Shell::replace`]).

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{KEYGATE, Running, Setup};

/// Line of the output before that of each command.
const MARK: &str = "@@command";

/// A shell in the directory of a setup.
pub struct Shell {
    dir: PathBuf,
    programs: tempfile::TempDir,
    names: Vec<(String, String)>,
    variables: Vec<(String, String)>,
    typed: String,
}

impl Shell {
    /// A shell without a configuration, in a directory.
    pub fn at(dir: &Path) -> Self {
        let programs = tempfile::tempdir().unwrap();
        symlink(KEYGATE, programs.path().join("keygate")).unwrap();
        symlink(env!("CARGO_BIN_EXE_query-store"), programs.path().join("query-store")).unwrap();
        let dir = dir.to_owned();
        Self { dir, programs, names: Vec::new(), variables: Vec::new(), typed: String::new() }
    }

    /// A shell for commands of the configuration of a setup.
    pub fn of(setup: &Setup) -> Self {
        let shell = Self::at(setup.path());
        shell.program("sudo", "[ \"$1\" != -u ] || shift 2\nexec \"$@\"");
        shell.program("runuser", "while [ \"$1\" != -- ]; do shift; done; shift\nexec \"$@\"");
        shell.program("editor", "exit 0");
        let config = setup.path().join("keygate.yaml");
        let dir = setup.path().to_str().unwrap();
        let shell = shell.replace("/etc/keygate", dir).replace("/var/lib/keygate", dir);
        let (address, admin) = (setup.address.to_string(), setup.admin.to_string());
        let shell = shell.replace("127.0.0.1:8080", &address).replace("localhost:8080", &address);
        shell.replace("127.0.0.1:9464", &admin).set("KEYGATE_CONFIG", config.to_str().unwrap())
    }

    /// Writes a program that the commands find.
    pub fn program(&self, name: &str, script: &str) {
        let path = self.programs.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// `systemctl reload UNIT` sends SIGHUP to these processes, as the units do.
    pub fn reloads(&self, units: &[(&str, u32)]) {
        let cases = units.iter().map(|(unit, id)| format!("\"reload {unit}\") exec kill -HUP {id} ;;\n"));
        let cases: String = cases.collect();
        self.program("systemctl", &format!("case \"$*\" in\n{cases}*) echo \"systemctl $*\" >&2; exit 1 ;;\nesac"));
    }

    /// Replaces a name of the pages.
    #[must_use]
    pub fn replace(mut self, name: &str, by: &str) -> Self {
        self.names.push((name.to_owned(), by.to_owned()));
        self
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Types text into commands that read it.
    #[must_use]
    pub fn typing(mut self, text: &str) -> Self {
        self.typed = format!("{text}\n");
        self
    }

    /// Runs a block whose commands must succeed; returns what they print.
    pub fn run(&self, block: &str) -> String {
        let (succeeds, output) = self.try_run(block);
        assert!(succeeds, "{}\n{output}", self.renamed(block));
        output
    }

    /// Runs a block; returns whether its last command succeeds, and what they print.
    pub fn try_run(&self, block: &str) -> (bool, String) {
        let mut command = self.bash(&format!("exec 2>&1\n{}", self.renamed(block)));
        let typed = self.programs.path().join("typed");
        fs::write(&typed, &self.typed).unwrap();
        let output = command.stdin(Stdio::from(fs::File::open(typed).unwrap())).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts a command that goes on until it is dropped; what it prints is in the file `log` of the directory.
    pub fn start(&self, command: &str, log: &str) -> Running {
        let output = fs::File::create(self.dir.join(log)).unwrap();
        let mut bash = self.bash(&format!("exec 2>&1\nexec {}", self.renamed(command)));
        Running::of(bash.stdin(Stdio::null()).stdout(output).spawn().unwrap())
    }

    /// A shell that ends at the first command that fails, and finds the programs.
    fn bash(&self, script: &str) -> Command {
        let path = format!("{}:{}", self.programs.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", script]).current_dir(&self.dir);
        command.env("PATH", path).env_remove("KEYGATE_CONFIG").envs(self.variables.iter().cloned());
        command
    }

    /// Runs the commands of blocks, the lines that begin with `$ `, in one shell, and compares what each prints with
    /// the lines below it: `…` stands for any text, and a line `…` for any lines. Returns the time of all of them.
    pub fn follow(&self, blocks: &str) -> Duration {
        self.try_follow(blocks).unwrap_or_else(|difference| panic!("{difference}"))
    }

    /// The same; an error is the first difference.
    pub fn try_follow(&self, blocks: &str) -> Result<Duration, String> {
        let steps = steps(blocks);
        assert!(!steps.is_empty(), "commands begin with `$ `: {blocks}");
        let script: String = steps.iter().map(|step| format!("echo {MARK}\n{}\n", step.command)).collect();
        let begun = Instant::now();
        let (succeeds, output) = self.try_run(&script);
        let took = begun.elapsed();
        let printed: Vec<&str> = output.split(&format!("{MARK}\n")).skip(1).collect();
        for (step, printed) in steps.iter().zip(&printed) {
            let (expected, lines) = (lines(&self.renamed(&step.output)), lines(printed));
            if !fits(&expected, &lines) {
                return Err(format!("$ {}\n{printed}\nis on the page\n{}", step.command, step.output));
            }
        }
        if succeeds && printed.len() == steps.len() { Ok(took) } else { Err(output) }
    }

    /// A text of a page with the names of the test.
    pub fn renamed(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (name, by)| text.replace(name, by))
    }
}

/// A command of a page with what it prints.
struct Step {
    command: String,
    output: String,
}

fn steps(blocks: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in blocks.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(Step { command: command.to_owned(), output: String::new() }),
            (None, Some(step)) if step.output.is_empty() && step.command.ends_with('\\') => {
                step.command += "\n";
                step.command += line;
            }
            (None, Some(step)) => step.output += &format!("{line}\n"),
            (None, None) => panic!("no command is above {line:?}"),
        }
    }
    steps
}

/// The lines that are not empty, each with single spaces.
pub fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).collect()
}

/// Returns whether lines are those of a page.
pub fn fits(expected: &[String], printed: &[String]) -> bool {
    match (expected, printed) {
        ([], printed) => printed.is_empty(),
        ([first, rest @ ..], _) if first == "…" => (0..=printed.len()).any(|left| fits(rest, &printed[left..])),
        ([first, rest @ ..], [line, others @ ..]) => line_fits(first, line) && fits(rest, others),
        (_, []) => false,
    }
}

fn line_fits(expected: &str, line: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut left) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return left.is_empty() };
    for part in middle {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

/// A running query-store.
pub fn query_store(settings: &Path) -> Running {
    let log = fs::File::create(settings.with_extension("log")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_query-store"));
    Running::of(command.args(["serve", "--config"]).arg(settings).stderr(log).spawn().unwrap())
}
