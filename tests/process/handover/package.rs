//! The script of the Debian package that takes up an upgrade, with a gateway that runs: systemd and the package manager
//! are stand-ins, and all else is real.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::signal::peer;
use super::{BLOCKS, Backend, Lineage, Tunnel};
use crate::support::{Client, KEYGATE, SetOnDrop, Setup, eventually};

/// Logs its words; says that the service is active.
const SYSTEMCTL: &str = "echo \"systemctl $*\" >> \"$CALLS\"";
/// Runs the command, as the user that runs the test.
const RUNUSER: &str = "shift 3; exec \"$@\"";

/// A machine on which the package is upgraded.
struct Machine {
    root: PathBuf,
    script: PathBuf,
}

impl Machine {
    fn new(setup: &Setup) -> Self {
        let root = setup.path().join("machine");
        std::fs::create_dir_all(root.join("run/systemd/system")).unwrap();
        std::fs::create_dir(root.join("bin")).unwrap();
        for (name, text) in [
            ("systemctl", SYSTEMCTL),
            ("runuser", RUNUSER),
            ("getent", "true"),
            ("install", "true"),
            ("keygate", &format!("exec {KEYGATE} \"$@\"")),
        ] {
            Self::write(&root.join("bin").join(name), text);
        }
        let text = std::fs::read_to_string("deploy/debian/postinst").unwrap();
        let text = text.replace("/run/systemd", root.join("run/systemd").to_str().unwrap());
        let text = text.replace("/etc/keygate/keygate.yaml", setup.path().join("keygate.yaml").to_str().unwrap());
        let script = root.join("postinst");
        std::fs::write(&script, text).unwrap();
        Self { root, script }
    }

    fn write(path: &Path, text: &str) {
        use std::os::unix::fs::OpenOptionsExt as _;
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.create(true).truncate(true).write(true).mode(0o755).open(path).unwrap();
        std::io::Write::write_all(&mut file, format!("#!/bin/sh\n{text}\n").as_bytes()).unwrap();
    }

    /// Takes up an upgrade from version 0.1.0.
    fn upgrade(&self) -> Output {
        let path = format!("{}:{}", self.root.join("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command.arg(&self.script).args(["configure", "0.1.0"]).env("PATH", path).env("CALLS", self.root.join("calls"));
        command.output().unwrap()
    }

    /// The requests to systemd.
    fn calls(&self) -> String {
        std::fs::read_to_string(self.root.join("calls")).unwrap()
    }
}

#[test]
fn package_hands_over_from_a_running_gateway_without_a_failed_request() {
    let backend = Backend::start();
    let (setup, key) = Setup::new(backend.upstream.address, BLOCKS).and_key();
    let machine = Machine::new(&setup);
    let mut lineage = Lineage { first: setup.start_logged(), setup, later: Mutex::default() };
    let mut tunnel = Tunnel::open(&lineage.setup, &key);
    let stop = AtomicBool::new(false);
    let answered = AtomicUsize::new(0);
    let old = lineage.current();
    let output = std::thread::scope(|scope| {
        let _over = SetOnDrop(&stop);
        let load = scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let mut client = Client::try_connect(lineage.setup.address).expect("no connection is refused");
                assert_eq!(client.get("/", &key).status, 200);
                answered.fetch_add(1, Ordering::SeqCst);
            }
        });
        eventually("requests are answered", || answered.load(Ordering::SeqCst) > 20 || load.is_finished());
        let output = machine.upgrade();
        let before = answered.load(Ordering::SeqCst);
        eventually("and afterwards", || answered.load(Ordering::SeqCst) > before + 20 || load.is_finished());
        stop.store(true, Ordering::SeqCst);
        load.join().expect("no request fails");
        output
    });
    assert!(output.status.success(), "{output:?}");
    let new = peer(&lineage.setup);
    assert_ne!(new, old, "{output:?}");
    lineage.later.lock().unwrap().push(new);
    tunnel.echo();
    tunnel.close();
    lineage.wait_for_end(old);
    assert!(!machine.calls().contains("restart keygate.service"), "{}", machine.calls());
    lineage.stop();
}

#[test]
fn package_restarts_a_gateway_that_does_not_hand_over_and_leaves_one_that_could_not_start_again() {
    let backend = Backend::start();
    let setup = Setup::new(backend.upstream.address, BLOCKS);
    let machine = Machine::new(&setup);
    let gateway = setup.start_logged();
    let text = setup.text();
    // A change that only a restart puts in force.
    setup.write(&text.replace("workers: 2", "workers: 3"));
    let output = machine.upgrade();
    assert!(output.status.success(), "{output:?}");
    assert!(machine.calls().contains("systemctl try-restart keygate.service"), "{}", machine.calls());

    std::fs::remove_file(machine.root.join("calls")).unwrap();
    setup.write(&text.replace("workers: 2", "workers: two"));
    let output = machine.upgrade();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && told.contains("goes on with the previous program"), "{told}");
    assert!(!machine.calls().contains("restart keygate"), "{}", machine.calls());
    assert!(setup.keygate(&["health"]).status.success() || setup.client().get("/", "x").status == 401);
    gateway.stop();
}
