//! A file of 100,000 consumers: bounded time and memory, and progress on a terminal.

use std::fmt::Write as _;
use std::time::Instant;

use super::*;

const CONSUMERS: usize = 100_000;

/// Virtual memory of the process at most, in KiB: the program itself, the text of 20 MiB, and the consumers.
const MEMORY: usize = 440 << 10;

/// A file as decK writes it.
fn large_file(consumers: usize) -> String {
    let mut text = "_format_version: \"3.0\"\nconsumers:\n".to_owned();
    for number in 0..consumers {
        let _ = writeln!(
            text,
            "- acls:\n  - group: group-{}\n  keyauth_credentials:\n  - key: key-{number:028}\n    tags:\n    - crew\n  \
             plugins:\n  - name: rate-limiting\n    config:\n      minute: {}\n  username: user-{number}",
            number % 100,
            1 + number % 1000
        );
    }
    text
}

#[test]
fn hundred_thousand_consumers_are_converted_in_bounded_memory() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kong.yaml");
    std::fs::write(&file, large_file(CONSUMERS)).unwrap();
    let convert = format!(
        "{} convert kong {} --org acme --permissions-from groups",
        env!("CARGO_BIN_EXE_keygate"),
        file.display()
    );
    let begun = Instant::now();
    let ended =
        Ended::of(Command::new("sh").arg("-c").arg(format!("ulimit -v {MEMORY} && exec {convert}")).output().unwrap());
    let time = begun.elapsed();
    let told = "put the 1000 plans at the top of the output into the gateway's configuration first\n\
                converted 100000 users with 100000 keys\n";
    assert_eq!((ended.code, &*ended.err), (0, told));
    assert_eq!(ended.out.lines().count(), 2 + 1000 + 2 + 1 + CONSUMERS + 1 + CONSUMERS);
    assert!(ended.out.contains(&KeyDigest::of(format!("key-{:028}", CONSUMERS - 1).as_bytes()).to_hex()));
    println!("{} MiB are converted in {time:.1?}", std::fs::metadata(&file).unwrap().len() >> 20);

    // `script` runs it on a terminal of its own; what is left behind a key is shown there as well.
    let script =
        Command::new("script").args(["-q", "-e", "-c", &format!("{convert} > /dev/null"), "/dev/null"]).output();
    let shown = String::from_utf8(script.unwrap().stdout).unwrap();
    assert!(shown.contains("records (") && shown.contains(" %)"), "{shown:?}");
    assert!(shown.contains("\r\u{1b}[Kput the 1000 plans"), "the line is removed: {shown:?}");
}

#[test]
fn what_is_left_of_many_consumers_is_listed_in_a_few_lines() {
    let text: String = (0..5000).map(|n| format!("- {{ username: u{n}, jwt_secrets: [{{ key: k }}] }}\n")).collect();
    let ended = convert_text("kong", &format!("consumers:\n{text}"), "");
    assert_eq!(ended.code, 4, "{ended:?}");
    assert_eq!(ended.err.lines().count(), 5 + 1 + 2, "{}", ended.err);
    assert!(ended.err.contains("file: and 4995 more of these: ") && ended.err.contains("5000 values left out"));
    let text: String = (0..5000).map(|_| "- username: [x]\n".to_owned()).collect();
    let ended = convert_text("kong", &format!("consumers:\n{text}"), "");
    assert_eq!((ended.code, ended.err.lines().count()), (2, 1000 + 2), "{}", &ended.err[..1000]);
}
