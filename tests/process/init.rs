//! `keygate init`: the quick start of the README, the questions on a terminal, and what is refused.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::page::block;
use crate::support::shell::{fits, lines};
use crate::support::{KEYGATE, Shell, eventually, free_address};

/// Runs `keygate init` in a directory, without a terminal.
fn init(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(KEYGATE);
    command.arg("init").args(arguments).current_dir(dir).stdin(Stdio::null()).env_remove("KEYGATE_CONFIG");
    command.output().unwrap()
}

/// The code and the message of a run that must leave the directory as it was.
fn refused(dir: &Path, arguments: &[&str]) -> (i32, String) {
    let names = || -> Vec<_> { fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect() };
    let before = names();
    let output = init(dir, arguments);
    assert_eq!(names(), before, "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// The commands that `init` has printed, each with the lines that it announces. The log may say something of this
/// machine above or below them, such as that its disk is almost full.
fn commands(printed: &str) -> Vec<(String, Vec<String>)> {
    let steps = printed.split("\n\n").filter(|part| part.get(1..3) == Some(". "));
    steps
        .map(|text| {
            let mut lines = text.lines().skip(1).map(str::to_owned);
            (lines.next().unwrap(), lines.map_while(|line| line.strip_prefix("    ").map(str::to_owned)).collect())
        })
        .collect()
}

/// Panics unless the announced lines are among those that were printed, in this order.
fn assert_announced(expected: &[String], printed: &str) {
    let wanted: Vec<String> = expected.iter().flat_map(|line| ["…".to_owned(), line.clone()]).collect();
    let wanted = lines(&format!("{}\n…", wanted.join("\n")));
    assert!(fits(&wanted, &lines(printed)), "{expected:#?}\n{printed}");
}

/// Five commands, of which one is the caller's own server: from the program to a request that needs a key.
#[test]
fn quick_start_of_the_readme_ends_with_a_request_through_the_gateway() {
    let dir = tempfile::tempdir().unwrap();
    let (address, upstream) = (free_address(), free_address());
    let shell = Shell::at(dir.path()).replace("127.0.0.1:8080", &address.to_string());
    let shell = shell.replace("127.0.0.1:8000", &upstream.to_string());
    let shell = shell.replace("http.server 8000", &format!("http.server {}", upstream.port()));
    let shell = shell.set("TMPDIR", dir.path().to_str().unwrap());
    // The page has the default address, which another test may have.
    let shell = shell.replace("keygate init", &format!("keygate init --listen {address}"));
    let server = block("python3 -m http.server 8000 --bind 127.0");
    let gateway = block("keygate init --upstream http://127.0.0.1");
    let client = block("KEY=$(keygate key create --org main --us");
    let [init, serve] = &*gateway.lines().collect::<Vec<_>>() else { panic!("{gateway}") };
    let [key, request] = &*client.lines().collect::<Vec<_>>() else { panic!("{client}") };
    assert_eq!(server.lines().count(), 1, "five commands in all");

    let server = shell.start(&server, "server.log");
    eventually("the server is there", || std::net::TcpStream::connect(upstream).is_ok());
    // Another gateway of this machine has the usual address of /metrics.
    let taken = TcpListener::bind("127.0.0.1:9464");
    let printed = shell.run(init);
    drop(taken);
    let printed_commands = commands(&printed);
    let announced: Vec<&str> = printed_commands.iter().map(|(command, _)| command.as_str()).collect();
    assert_eq!(announced[..3], [serve, key, request].map(|line| shell.renamed(line)), "{printed}");
    let [(_, serving), (_, created), (_, answered), (link, linked)] = &*printed_commands else { panic!("{printed}") };
    assert_eq!(shell.run("keygate check"), "keygate/keygate.yaml: ok\n");

    let gateway = shell.start(serve, "gateway.log");
    eventually("the gateway is ready", || shell.try_run("keygate health").0);
    // A thread of its own writes the log.
    let log = || fs::read_to_string(dir.path().join("gateway.log")).unwrap();
    eventually("the log has its first line", || log().ends_with('\n'));
    assert_announced(serving, &log());
    let output = shell.run(&format!("{key}\n{}", request.replace("curl", "curl -s")));
    assert_announced(&[&created[..], &answered[..]].concat(), &output);
    assert!(output.contains("HTTP/1.1 200 OK") && output.contains("Directory listing"), "{output}");
    let output = shell.run(&format!("curl -s -i http://{address}/"));
    assert!(output.starts_with("HTTP/1.1 401") && !output.contains("Directory listing"), "{output}");
    let output = shell.run(link);
    assert_announced(linked, &output);
    let page = shell.run(&format!("curl -s {}", output.lines().last().unwrap()));
    assert!(page.contains("Sign in as admin@example.com to main"), "{page}");
    let audit = shell.run("keygate audit list");
    assert!(audit.contains("org.create") && audit.contains("user.create") && audit.contains("  200"), "{audit}");
    drop((gateway, server));
}

#[test]
fn commands_name_the_file_where_it_is_not_found_by_default() {
    let dir = tempfile::tempdir().unwrap();
    let address = free_address();
    let listen = address.to_string();
    let output =
        init(dir.path(), &["--upstream", "http://app.internal", "--listen", &listen, "--dir", "ada's gateway"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (command, _) in &commands(&printed)[..2] {
        assert!(command.contains(r" --config 'ada'\''s gateway/keygate.yaml'"), "{command}");
    }
    let shell = Shell::at(dir.path());
    let output = shell.run(&format!("{}\necho \"$KEY\"", commands(&printed)[1].0));
    assert!(output.contains("\nsk_live_"), "{output}");
    // A file that the environment names comes first.
    let shell = shell.set("KEYGATE_CONFIG", "other.yaml");
    let printed = shell.run(&format!("keygate init --upstream http://[::1]:81 --listen {address}"));
    assert!(commands(&printed)[0].0.ends_with("keygate serve --config keygate/keygate.yaml"), "{printed}");
}

#[test]
fn init_without_a_terminal_and_without_an_upstream_names_the_options() {
    let dir = tempfile::tempdir().unwrap();
    for arguments in [&[][..], &["--listen", "127.0.0.1:8080"], &["--dir", "gateway"]] {
        let (code, message) = refused(dir.path(), arguments);
        assert_eq!(code, 2, "{message}");
        for part in ["no terminal", "--upstream URL", "http://127.0.0.1:3000", "--listen", "--dir"] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[test]
fn invalid_upstream_or_address_is_refused_with_an_example_of_a_valid_one() {
    let dir = tempfile::tempdir().unwrap();
    for (upstream, advice) in [
        ("localhost:3000", "is not an endpoint such as http://127.0.0.1:8081"),
        ("ftp://app", "is not an endpoint such as"),
        ("http://", "is not an endpoint such as"),
        ("", "is not an endpoint such as"),
        ("http://app/api", "is more than scheme, host and port; remove the rest"),
        ("http://ada@app", "is more than scheme, host and port; remove the rest"),
        ("http://app:", "is not an endpoint such as"),
        ("http://app:99999", "is not an endpoint such as"),
    ] {
        let (code, message) = refused(dir.path(), &["--upstream", upstream]);
        assert!(code == 2 && message.contains(advice), "{upstream}: {message}");
    }
    for listen in ["8080", ":8080", "localhost:8080", "127.0.0.1", "127.0.0.1:0"] {
        let (code, message) = refused(dir.path(), &["--upstream", "http://app", "--listen", listen]);
        assert!(code == 2 && message.contains("with a port, such as 127.0.0.1:8080"), "{listen}: {message}");
    }
    let (code, message) = refused(dir.path(), &["--upstream", "http://app", "--config", "my.yaml"]);
    assert!(code == 2 && message.contains("give --dir instead of --config"), "{message}");
    // The socket of a directory with a long name: nothing is written.
    let long = "d".repeat(120);
    let (code, message) = refused(dir.path(), &["--upstream", "http://app", "--dir", &long]);
    assert!(code == 64 && message.contains("choose a shorter one"), "{message}");
}

#[test]
fn existing_files_are_never_overwritten() {
    let outer = tempfile::tempdir().unwrap();
    let arguments = ["--upstream", "http://127.0.0.1:3000", "--listen", "127.0.0.1:8080"];
    for name in ["keygate.yaml", "state.db", "audit", "admin.sock"] {
        let dir = tempfile::tempdir_in(outer.path()).unwrap();
        fs::create_dir(dir.path().join("keygate")).unwrap();
        let place = dir.path().join("keygate").join(name);
        fs::write(&place, "mine").unwrap();
        let (code, message) = refused(dir.path(), &arguments);
        assert_eq!(code, 1, "{message}");
        assert!(message.contains(&format!("keygate/{name} exists and is not overwritten")), "{message}");
        assert!(message.contains("choose another directory with --dir"), "{message}");
        assert_eq!(fs::read_to_string(place).unwrap(), "mine");
        assert_eq!(fs::read_dir(dir.path().join("keygate")).unwrap().count(), 1);
    }
    let dir = tempfile::tempdir_in(outer.path()).unwrap();
    fs::write(dir.path().join("keygate"), "mine").unwrap();
    let (code, message) = refused(dir.path(), &arguments);
    assert!(code == 1 && message.contains("keygate is not a directory; choose another name with --dir"), "{message}");
    // Other files may be in the directory, and a second run finds the first one's.
    let here = [&arguments[..], &["--dir", "."]].concat();
    assert!(init(dir.path(), &here).status.success());
    let written = fs::read(dir.path().join("keygate.yaml")).unwrap();
    assert_eq!(refused(dir.path(), &here).0, 1);
    assert_eq!(fs::read(dir.path().join("keygate.yaml")).unwrap(), written);
}

#[test]
fn address_in_use_is_noted_and_the_file_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = other.local_addr().unwrap().to_string();
    let output = init(dir.path(), &["--upstream", "http://127.0.0.1:3000", "--listen", &listen]);
    let noted = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && noted.contains(&format!("{listen} is in use: stop the program")), "{noted}");
    assert!(dir.path().join("keygate/keygate.yaml").exists());
    // The usual port of /metrics.
    let output = init(dir.path(), &["--upstream", "http://app", "--listen", "127.0.0.1:9464", "--dir", "other"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A program on a terminal, whose output is read as it comes.
struct Terminal {
    child: std::process::Child,
    shown: String,
}

impl Terminal {
    /// Runs `keygate init` in a directory.
    fn start(dir: &Path, arguments: &str) -> Self {
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command"]).arg(format!("{KEYGATE} init {arguments}")).arg("/dev/null");
        command.current_dir(dir).env_remove("KEYGATE_CONFIG").stdin(Stdio::piped()).stdout(Stdio::piped());
        Self { child: command.spawn().unwrap(), shown: String::new() }
    }

    /// Reads until the terminal shows a text behind what was read before.
    fn read_until(&mut self, text: &str) {
        let mut read = String::new();
        while !read.ends_with(text) {
            let mut byte = [0];
            assert_eq!(
                self.child.stdout.as_mut().unwrap().read(&mut byte).unwrap(),
                1,
                "{text:?}: {}{read}",
                self.shown
            );
            read.push(char::from(byte[0]));
        }
        self.shown += &read;
    }

    fn answer(&mut self, question: &str, answer: &str) {
        self.read_until(question);
        let mut input = self.child.stdin.as_ref().unwrap();
        input.write_all(format!("{answer}\n").as_bytes()).unwrap();
    }

    /// The exit code, and all that was shown.
    fn end(mut self) -> (i32, String) {
        drop(self.child.stdin.take());
        let mut rest = Vec::new();
        self.child.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
        let code = self.child.wait().unwrap().code().unwrap();
        (code, self.shown + &String::from_utf8_lossy(&rest).replace('\r', ""))
    }
}

#[test]
fn questions_on_a_terminal_are_asked_until_the_answers_are_valid() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("keygate"), "mine").unwrap();
    let listen = free_address().to_string();
    let mut terminal = Terminal::start(dir.path(), "");
    terminal.answer("Upstream, such as http://127.0.0.1:3000: ", "");
    terminal.read_until("is not an endpoint such as");
    terminal.answer("Upstream, such as http://127.0.0.1:3000: ", "http://localhost:3000");
    terminal.answer("Address that the gateway listens on [127.0.0.1:8080]: ", "8080");
    terminal.read_until("is not an IP address with a port");
    terminal.answer("Address that the gateway listens on [127.0.0.1:8080]: ", &listen);
    terminal.answer("Directory of the configuration and the data [keygate]: ", "");
    terminal.read_until("keygate is not a directory");
    terminal.answer("Directory of the configuration and the data [keygate]: ", "gateway");
    let (code, shown) = terminal.end();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("--config gateway/keygate.yaml"), "{shown}");
    let text = fs::read_to_string(dir.path().join("gateway/keygate.yaml")).unwrap();
    assert!(text.contains(&listen) && text.contains("http://localhost:3000"), "{text}");

    // Only what is missing is asked for; with an upstream, nothing is.
    let dir = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::start(dir.path(), &format!("--listen {listen}"));
    terminal.answer("Upstream, such as http://127.0.0.1:3000: ", "http://127.0.0.1:3000");
    terminal.answer("Directory of the configuration and the data [keygate]: ", "");
    assert_eq!(terminal.end().0, 0);
    let terminal = Terminal::start(dir.path(), &format!("--upstream http://app --listen {listen} --dir other"));
    let (code, shown) = terminal.end();
    assert!(code == 0 && !shown.contains("]: "), "{shown}");
}

#[test]
fn questions_that_are_not_answered_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::start(dir.path(), "");
    terminal.answer("Upstream, such as http://127.0.0.1:3000: ", "http://127.0.0.1:3000");
    terminal.read_until("[127.0.0.1:8080]: ");
    // End of the input, as by Ctrl-D.
    terminal.child.stdin.as_ref().unwrap().write_all(b"\x04").unwrap();
    let (code, shown) = terminal.end();
    assert!(code == 1 && shown.contains("the input has ended; nothing was written"), "{shown}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
