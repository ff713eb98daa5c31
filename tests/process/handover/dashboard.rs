//! Dashboard: what a user sees of a hand-over on a connection to the process that was replaced.

use super::{BLOCKS, Backend, Lineage, signal};
use crate::support::{Client, Response, Setup, eventually};

const API: &str = "/settings/api/v1";
const OWN: (&str, &str) = ("Sec-Fetch-Site", "same-origin");
const JSON: (&str, &str) = ("Content-Type", "application/json");

/// A user with a web session.
struct Person {
    cookie: String,
}

impl Person {
    fn sign_in(setup: &Setup) -> Self {
        setup.ok(&["user", "create", "--org", "acme", "eve@example.com", "--permission", "org:admin"]);
        let link = setup.ok(&["session", "link", "--org", "acme", "eve@example.com"]);
        let path = link.split_once("127.0.0.1:8080").unwrap().1.split_whitespace().next().unwrap().to_owned();
        let signed_in = setup.client().request("POST", &path, "", &[OWN], b"");
        assert_eq!(signed_in.status, 303, "{signed_in:?}");
        let cookie = signed_in.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        Self { cookie }
    }

    fn request(&self, client: &mut Client, method: &str, path: &str, body: &str) -> Response {
        client.request(method, &format!("{API}{path}"), "", &[OWN, JSON, ("Cookie", &self.cookie)], body.as_bytes())
    }

    /// Creates a key.
    fn create(&self, client: &mut Client, name: &str) -> Response {
        self.request(client, "POST", "/orgs/acme/keys", &format!("{{\"name\":\"{name}\"}}"))
    }
}

#[test]
fn change_at_the_old_process_is_refused_for_sure_and_its_repetition_is_made_by_the_new_one() {
    let backend = Backend::start();
    let blocks = format!(
        "{}session: {{ origin: http://127.0.0.1:8080 }}\n",
        BLOCKS.replace("lame_duck: 200ms", "lame_duck: 20s")
    );
    let setup = Setup::new(backend.upstream.address, &blocks);
    setup.key();
    let mut lineage = Lineage::start(setup);
    let person = Person::sign_in(&lineage.setup);
    // Connections that stay open: one for the API, one for the pages.
    let (mut api, mut page) = (lineage.setup.client(), lineage.setup.client());
    assert_eq!(person.create(&mut api, "before").status, 201);
    let cookie = [OWN, ("Cookie", person.cookie.as_str())];
    assert_eq!(page.request("GET", "/settings/keys", "", &cookie, b"").status, 200);
    let replaced = lineage.upgrade();

    let refused = person.create(&mut api, "during");
    assert_eq!((refused.status, &*refused.code()), (503, "state_unavailable"));
    let fields = ["retry-after", "connection"].map(|name| refused.header(name));
    assert_eq!(fields, [Some("1"), Some("close")]);
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("was not made") && detail.contains("another process"), "{detail}");
    let form = [OWN, ("Cookie", person.cookie.as_str()), ("Content-Type", "application/x-www-form-urlencoded")];
    let refused = page.request("POST", "/settings/keys/new", "", &form, b"name=during");
    let text = String::from_utf8_lossy(&refused.body).into_owned();
    assert_eq!(
        (refused.status, refused.header("retry-after"), refused.header("connection")),
        (503, Some("1"), Some("close"))
    );
    assert!(text.contains("The gateway is being replaced") && text.contains("was not made"), "{text}");

    // The next connection is one of the new process, which has the session and made none of the refused changes.
    assert_eq!(person.create(&mut lineage.setup.client(), "during").status, 201);
    let listed = lineage.setup.ok(&["key", "list", "--org", "acme"]);
    assert_eq!(listed.matches("during").count(), 1, "{listed}");
    signal(replaced, "TERM");
    lineage.wait_for_end(replaced);
    eventually("the new process has the place", || lineage.setup.keygate(&["health"]).status.success());
    lineage.stop();
}
