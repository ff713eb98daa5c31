//! Commands of another user than the owner of the data.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::reload::ok;
use crate::support::Setup;
use crate::support::process::KEYGATE;

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// Needs root, who alone can act as other users; the owner of everything that others make cannot be tried.
#[test]
fn files_are_not_made_for_a_gateway_of_another_user() {
    let upstream = ok();
    let setup = Setup::new(upstream.address, "");
    if fs::metadata(setup.path()).unwrap().uid() != 0 {
        return;
    }
    chown(setup.path(), Some(NOBODY), None).unwrap();
    let before = fs::read_dir(setup.path()).unwrap().count();
    let refused = setup.keygate(&["org", "create", "acme"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("belongs to the user nobody") && said.contains("sudo -u nobody keygate …"), "{said}");
    assert_eq!(fs::read_dir(setup.path()).unwrap().count(), before, "no file was made");

    // A program that this user can reach: the folders above the built one may be closed to others.
    let program = setup.path().join("keygate");
    fs::copy(KEYGATE, &program).unwrap();
    let mut command = Command::new(&program);
    command.uid(NOBODY).args(["org", "create", "acme", "--config"]).arg(setup.path().join("keygate.yaml"));
    let made = command.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(setup.keygate(&["org", "list"]).status.code(), Some(1), "root would make files beside the state");

    // With a gateway that runs, root speaks with it, and makes nothing.
    let gateway = setup.start_by(Command::new(&program).uid(NOBODY));
    setup.ok(&["org", "create", "globex"]);
    gateway.stop();
    let owners = fs::read_dir(setup.path()).unwrap().map(|entry| entry.unwrap());
    let of_root: Vec<_> = owners.filter(|entry| entry.metadata().unwrap().uid() == 0).map(|e| e.file_name()).collect();
    assert!(of_root.iter().all(|name| ["keygate", "keygate.yaml", "stderr"].contains(&name.to_str().unwrap())));
}
