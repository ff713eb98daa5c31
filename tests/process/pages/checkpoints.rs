//! Checkpoints: the key of the quick start, the note of the page, and copies of it from sinks.

use std::fs;

use crate::procedures::{Office, ship};
use crate::support::page::block;
use crate::support::{Postgresql, Shell, eventually};

/// Lengths of the words of a note, whose numbers and signatures differ from run to run.
fn shape(note: &str) -> Vec<Vec<usize>> {
    let lines = note.trim_end().lines();
    lines.map(|line| line.split(' ').map(length).collect()).collect()
}

fn length(word: &str) -> usize {
    if word.parse::<u64>().is_ok() { 0 } else { word.len() }
}

#[test]
fn checkpoints_are_signed_and_their_copies_verified() {
    let database = Postgresql::start();
    let office = Office::embedded();
    let shell = Shell::of(&office.setup);
    let printed = shell.run(&block("sudo keygate --config /etc/keygate/keyga"));
    let directory = office.setup.path();
    let public = fs::read_to_string(directory.join("audit.key.pub")).unwrap();
    assert!(printed.contains(public.trim()), "{printed}");
    fs::write(directory.join("gw-1.pub"), public).unwrap();
    fs::create_dir(directory.join("archive")).unwrap();

    ship(
        &office.setup,
        &format!("{{ url: '{}' }} }}, {{ name: archive, files: {{ path: archive, every: 1s }}", database.url()),
    );
    let signed = format!("path: audit, checkpoints: {{ key_file: {}/audit.key }}", directory.display());
    office
        .setup
        .write(&format!("gateway: gw-1\n{}", office.setup.text().replace("path: audit,", &format!("{signed},"))));
    let key = office.key_in("acme");
    let gateway = office.setup.start();
    assert_eq!(office.status(&key), 200);
    eventually("checkpoints are in both sinks", || {
        let rows = database.try_sql("SELECT count(*) > 0 FROM keygate.checkpoints WHERE size >= 5");
        let mut objects = fs::read_dir(directory.join("archive")).unwrap().map(|entry| entry.unwrap().path());
        let is_archived = objects.any(|path| path.extension().is_some_and(|extension| extension == "zst"));
        is_archived && rows.is_ok_and(|rows| rows == ["t"])
    });

    let note = fs::read_to_string(directory.join("audit/checkpoint")).unwrap();
    let page = block("example.org/audit/gw-1");
    assert_eq!(shape(&page), shape(&note), "{page}\n{note}");
    assert_eq!(page.lines().next(), note.lines().next());

    let copies = block("psql -At -c \"SELECT note FROM keygate.ch");
    let output = office.shell(&key).set("DATABASE", &database.url()).run(&copies);
    assert_eq!(output.matches(" 0 problems").count(), 2, "{output}");

    let listed = office.setup.ok(&["audit", "list", "--limit", "1", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let prove = block("keygate audit prove 019abd3c-5d52-7a1e-a");
    let prove = prove.replace("019abd3c-5d52-7a1e-a0a5-e6a1b0a6a4f1", listed["records"][0]["id"].as_str().unwrap());
    eventually("a checkpoint covers the end of the request", || {
        // Before that, the command says that the checkpoint does not cover the record.
        let (is_proven, _) = shell.try_run(&prove);
        is_proven && fs::read_to_string(directory.join("proof")).unwrap().matches("tlog-proof").count() == 2
    });
    let shown = shell.run(&block("keygate audit check-proof proof --public"));
    let page = block("proven: the record is in the journal exa");
    let names =
        |text: &str| -> Vec<String> { text.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect() };
    assert_eq!(names(&shown), names(&page));
    for part in
        ["proven: the record is in the journal example.org/audit/gw-1, as it was when its key signed ", "completed"]
    {
        assert!(shown.contains(part) && page.contains(part), "{part}: {shown}");
    }
    gateway.stop();
}
