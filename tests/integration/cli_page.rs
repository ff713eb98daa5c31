//! `docs/cli.md` is what the programs say of themselves. `KEYGATE_RENEW=1 cargo test --test integration cli_page`
//! writes it anew.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

const PAGE: &str = "docs/cli.md";

/// Help of a command, as on a terminal of 100 columns.
fn help(program: &str, words: &[String]) -> String {
    let output = Command::new(program).args(words).arg("--help").env("COLUMNS", "100").output().unwrap();
    assert!(output.status.success(), "{program} {words:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Adds the section of a command, and those of the commands below it.
fn add(page: &mut String, (name, program): (&str, &str), words: &mut Vec<String>) {
    let help = help(program, words);
    let title = format!("{name} {}", words.join(" "));
    writeln!(page, "\n## {}\n\n```text\n{}\n```", title.trim_end(), help.trim_end()).unwrap();
    let listed = help.split("\nCommands:\n").nth(1).unwrap_or_default().split("\n\n").next().unwrap();
    // Further lines of a description are indented more.
    let commands = listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    for command in commands.filter_map(|line| line.split_whitespace().next()).filter(|command| *command != "help") {
        words.push(command.to_owned());
        add(page, (name, program), words);
        words.pop();
    }
}

#[test]
fn page_of_the_command_line_is_what_the_programs_print() {
    let mut page = String::from("# Command line\n\nEvery command, as `--help` prints it.\n");
    for program in [("keygate", env!("CARGO_BIN_EXE_keygate")), ("query-store", env!("CARGO_BIN_EXE_query-store"))] {
        add(&mut page, program, &mut Vec::new());
    }
    if std::env::var_os("KEYGATE_RENEW").is_some() {
        fs::write(PAGE, &page).unwrap();
    }
    let written = fs::read_to_string(PAGE).unwrap();
    let first = page.lines().zip(written.lines()).find(|(now, written)| now != written);
    assert!(page == written, "{PAGE} differs: set KEYGATE_RENEW=1 to write it anew; first at {first:?}");
}
