//! A lost machine: its state comes back from a backup in another directory.

use std::fs;

use super::{Office, procedure, report, ship};
use crate::support::{Postgresql, Shell, eventually, until};

#[test]
fn lost_machine_is_replaced_as_the_page_says() {
    let database = Postgresql::start();
    database.sql("CREATE DATABASE audit");
    let sink = format!("{{ url: '{}' }}", database.url_of("audit"));
    let mut lost = Office::embedded();
    ship(&lost.setup, &sink);
    let key = lost.key_in("acme");
    let revoked = lost.setup.ok(&["key", "create", "--org", "acme", "--user", "ada@example.com", "phone"]);
    let backup = tempfile::tempdir().unwrap();
    let names = |shell: Shell| {
        let socket = format!("-h {} -p {} -U keygate", database.socket().display(), database.port());
        shell.replace("/backup", backup.path().to_str().unwrap()).replace("-h db.internal -U postgres", &socket)
    };
    let commands = procedure("A lost machine");
    let mut gateway = lost.setup.start();
    let mut time = names(lost.shell(&revoked)).follow(&commands[0]);
    lost.setup.ok(&["key", "revoke", &revoked[8..17]]);
    eventually("the revocation is in the database", || {
        let rows = database.try_sql_in("audit", "SELECT count(*) FROM keygate.records WHERE action = 'key.revoke'");
        rows.is_ok_and(|rows| rows == ["1"])
    });
    gateway.kill();
    lost.store.kill();

    let new = Office::embedded();
    ship(&new.setup, &sink);
    let first = fs::read_to_string(backup.path().join("keygate.jsonl")).unwrap();
    let written = first.split("\"time\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let shell = names(new.shell(&revoked)).replace("BACKUP_TIME", &written).set("KEY", &key);
    let wanted = new.setup.path().join("wanted");
    let wait = "for i in $(seq 300); do ! keygate health > /dev/null 2>&1 || exit 0; sleep 0.1; done; exit 1";
    shell.program("systemctl", &format!("touch {}\n{wait}", wanted.display()));
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| shell.follow(&commands[1..].concat()));
        until("the gateway is to be started", || (wanted.exists() || follower.is_finished()).then_some(()));
        let gateway = new.setup.start();
        time += follower.join().unwrap();
        report("a lost machine", time);
        assert_eq!((new.status(&key), new.status(&revoked)), (200, 401));
        gateway.stop();
    });
}
