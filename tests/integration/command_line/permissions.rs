//! `keygate user permit`: shows, adds, takes away, replaces.

use serde_json::json;

use super::Installation;

const PERMIT: &str = "user permit --org acme ada@example.com";

impl Installation {
    /// The permissions of the user.
    fn permissions(&self) -> serde_json::Value {
        self.json("user list --org acme")["items"][0]["permissions"].clone()
    }

    /// An installation with a user who may `a` and `b`.
    fn with_permissions() -> Self {
        let installation = Self::new();
        installation.ok("org create acme");
        installation.ok("user create --org acme ada@example.com --permission a --permission b");
        installation
    }
}

#[test]
fn permissions_are_shown_without_options_and_stay() {
    let installation = Installation::with_permissions();
    let shown = installation.ok(PERMIT);
    assert!(shown.out.lines().any(|line| line.starts_with("permissions") && line.ends_with("a b")), "{shown:?}");
    assert!(!shown.out.contains("taken away"), "{shown:?}");
    assert_eq!(installation.json(PERMIT)["permissions"], json!(["a", "b"]));
    assert_eq!(installation.permissions(), json!(["a", "b"]));
    assert!(!installation.ok("audit export").out.contains("user.permit"), "nothing was changed");
}

#[test]
fn permissions_that_are_not_named_stay_and_what_is_taken_away_is_shown() {
    let installation = Installation::with_permissions();
    let taken = |line: &str| installation.json(&format!("{PERMIT} {line}"))["taken_away"].clone();
    for (line, expected, gone) in [
        ("--add c --add a", json!(["a", "b", "c"]), json!([])),
        ("--add d --remove b", json!(["a", "c", "d"]), json!(["b"])),
        ("--add e --remove e", json!(["a", "c", "d"]), json!([])),
        ("--set a --set x", json!(["a", "x"]), json!(["c", "d"])),
        ("--permission y", json!(["y"]), json!(["a", "x"])),
        ("--none", json!([]), json!(["y"])),
    ] {
        assert_eq!(taken(line), gone, "{line}");
        assert_eq!(installation.permissions(), expected, "{line}");
    }
    installation.ok(&format!("{PERMIT} --set a --set b"));
    let shown = installation.ok(&format!("{PERMIT} --remove a --remove z"));
    assert!(shown.out.lines().any(|line| line.starts_with("taken away") && line.ends_with(" a")), "{shown:?}");
    assert!(shown.err.contains("ada@example.com did not have z"), "{shown:?}");
    for line in ["--none --add a", "--set a --remove b", "--none --set a"] {
        assert_eq!(installation.run(&format!("{PERMIT} {line}")).code, 2, "{line}");
    }
    assert_eq!(installation.permissions(), json!(["b"]));
}

#[test]
fn permission_that_no_route_needs_is_noted() {
    let installation = Installation::with_permissions();
    let add = |permission: &str| installation.ok(&format!("{PERMIT} --add {permission}")).err;
    assert!(!add("reports:raed").contains("no route"), "without routes there is nothing to compare with");
    let routes = "routes: [{ name: a, path: /a, permission: 'reports:read' }, { name: b, path: /b }]\n";
    let text = std::fs::read_to_string(&installation.config).unwrap();
    std::fs::write(&installation.config, format!("{text}{routes}")).unwrap();
    let note = "no route needs the permission reports:raed; routes need reports:read\n";
    assert!(add("reports:raed").contains(note), "{}", add("reports:raed"));
    let created = installation.ok("user create --org acme eve@example.com --permission reports:raed --permission b");
    assert!(created.err.contains(note) && created.err.contains("permission b;"), "{created:?}");
    for needed in ["reports:read", "org:admin"] {
        assert!(!add(needed).contains("no route"), "{needed}");
    }
}
