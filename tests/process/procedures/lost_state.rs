//! A state that was lost under a running gateway: it comes back from a backup, without what was revoked since.

use super::{Office, SQLITE, procedure, report};
use crate::support::eventually;
use crate::support::redis::Redis;

#[test]
fn lost_state_is_restored_as_the_page_says() {
    let redis = Redis::start();
    let office = Office::new(&format!("{{ redis: {{ url: '{}', deadline: 2s }} }}", redis.url()), SQLITE);
    let key = office.key_in("acme");
    let revoked = office.setup.ok(&["key", "create", "--org", "acme", "--user", "ada@example.com", "phone"]);
    let backup = tempfile::tempdir().unwrap();
    let file = backup.path().join("keygate.jsonl").display().to_string();
    let gateway = office.setup.start();
    office.setup.ok(&["state", "export", "--out", &file]);
    office.setup.ok(&["key", "revoke", &revoked[8..17]]);
    assert_eq!((office.status(&key), office.status(&revoked)), (200, 401));

    redis.cli::<()>(&["FLUSHALL"]);
    assert_eq!((office.status(&key), office.status(&revoked)), (503, 503));
    eventually("the gateway is not ready", || !office.setup.keygate(&["health"]).status.success());
    let shell = office.shell(&revoked).replace("/backup", backup.path().to_str().unwrap());
    report("the state was lost", shell.follow(&procedure("The state was lost").concat()));
    assert_eq!((office.status(&key), office.status(&revoked)), (200, 401));
    gateway.stop();
}
