//! chromedriver as a separate process, with the Chromium that it starts.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use fantoccini::wd::Capabilities;
use serde_json::json;

/// A running chromedriver. Dropping it kills the process; Chromium ends when its pipe to chromedriver closes.
pub struct Driver {
    child: Child,
    /// Its address.
    pub url: String,
    profile: tempfile::TempDir,
}

impl Driver {
    pub fn start() -> Self {
        // It binds the same port for IPv4 and IPv6, and exits when one of them is in use.
        (0..10).find_map(|_| Self::try_start()).expect("chromedriver finds a port")
    }

    fn try_start() -> Option<Self> {
        let mut command = Command::new("chromedriver");
        let command = command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn();
        let mut child =
            child.unwrap_or_else(|error| panic!("chromedriver does not start ({error}): `make setup` installs it"));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = lines.find_map(|line| Some(line.split_once("started successfully on port ")?.1.to_owned()));
        let Some(port) = port else {
            child.wait().unwrap();
            return None;
        };
        // It exits when its output is not read.
        std::thread::spawn(move || lines.for_each(drop));
        let url = format!("http://127.0.0.1:{}", port.trim_end_matches('.'));
        Some(Self { child, url, profile: tempfile::tempdir().unwrap() })
    }

    /// Options of the browser: no requests except those of the tests, and logs of console and network.
    pub fn capabilities(&self) -> Capabilities {
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            "--lang=en-US",
            &format!("--user-data-dir={}", self.profile.path().display()),
        ];
        let capabilities = json!({
            "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        });
        capabilities.as_object().unwrap().clone()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The process may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
