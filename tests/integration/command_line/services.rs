//! Accounts of services: `keygate user create --service`, `user reassign`, and what other commands say of them.

use super::*;

impl Installation {
    /// An organization with Ada, Bob, and a service for which Ada is responsible; returns the id of a key of it.
    fn with_service(&self) -> String {
        self.ok("org create acme");
        self.ok("user create --org acme ada@example.com");
        self.ok("user create --org acme bob@example.com");
        self.ok("user create --org acme --service Nightly --responsible ADA@example.com --permission queries:read");
        let created = self.json("key create --org acme --user nightly job");
        created["id"].as_str().unwrap().to_owned()
    }

    /// The row of the service in the list of users, without its id and its time.
    fn service_row(&self) -> Vec<String> {
        let listed = self.ok("user list --org acme").out;
        let row = listed.lines().find(|line| line.contains("nightly")).unwrap();
        row.split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty() && !cell.contains("usr_"))
            .map(str::to_owned)
            .collect()
    }

    fn apply_services(&self, users: &str, options: &str) -> Ended {
        let file = self.directory.path().join("services.yaml");
        std::fs::write(&file, format!("organizations:\n  - name: acme\n    users:\n{users}")).unwrap();
        self.run(&format!("apply --file {} {options}", file.display()))
    }
}

#[test]
fn service_is_shown_with_its_kind_and_its_person() {
    let installation = Installation::new();
    let key = installation.with_service();
    let row = installation.service_row();
    assert_eq!(row[..5], ["nightly", "service", "active", "ada@example.com", "queries:read"], "{row:?}");
    let users = installation.json("user list --org acme");
    let kinds: Vec<&str> = (0..3).map(|at| users["items"][at]["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["person", "person", "service"]);
    assert!(users["items"][0].get("responsible").is_none(), "{users}");

    installation.ok("user suspend --org acme ada@example.com");
    assert_eq!(installation.service_row()[3], "ada@example.com (suspended)");
    for command in [format!("key show {key}"), format!("explain {key}")] {
        let shown = installation.ok(&command).out;
        let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        assert!(line("user").contains("nightly usr_") && line("user").ends_with(", a service"), "{shown}");
        assert!(line("responsible").ends_with("ada@example.com (suspended)"), "{shown}");
    }
    let shown = &installation.json(&format!("key show {key}"));
    assert_eq!((&shown["user_kind"], &shown["responsible"]["status"]), (&"service".into(), &"suspended".into()));
    let explained = installation.json(&format!("explain {key}"));
    assert_eq!(explained["user"]["responsible"]["email"], "ada@example.com");
    assert!(explained["verdict"].as_str().unwrap().contains("are admitted"), "{explained}");

    let reassigned = installation.json("user reassign --org acme nightly --responsible bob@example.com");
    assert_eq!(reassigned["responsible"]["email"], "bob@example.com");
    let records = installation.ok("audit export").out;
    for recorded in ["\"action\":\"user.reassign\"", "\"path\":\"user.create/service\""] {
        assert_eq!(records.matches(recorded).count(), 1, "{recorded}: {records}");
    }
}

#[test]
fn user_is_created_as_a_person_or_as_a_service() {
    let installation = Installation::new();
    installation.with_service();
    for line in [
        "user create --org acme",
        "user create --org acme --service weekly",
        "user create --org acme --responsible ada@example.com",
        "user create --org acme eve@example.com --responsible ada@example.com",
        "user create --org acme eve@example.com --service weekly --responsible ada@example.com",
    ] {
        let refused = installation.run(line);
        assert_eq!(refused.code, 2, "{line}: {refused:?}");
    }
    let refused = installation.run("user reassign --org acme ada@example.com --responsible bob@example.com");
    assert!(refused.code == 1 && refused.err.contains("is a person"), "{refused:?}");
    assert_eq!(installation.json("user list --org acme")["items"].as_array().unwrap().len(), 3);
}

#[test]
fn services_are_applied_behind_the_persons_who_are_responsible() {
    let installation = Installation::new();
    let file = "      - { service: Nightly, responsible: Ada@example.com, permissions: [queries:read] }
      - { email: ada@example.com }
      - { email: bob@example.com }
    keys:
      - { name: job, user: nightly, sha256: d6ca0a5d362fdab49bbf5e6e0a6f03e8f281d6476eef09cf9c1989804e9aea03 }
";
    let applied = installation.apply_services(file, "--yes");
    let plan = "+ organization acme
+ user acme/ada@example.com: permissions none
+ user acme/bob@example.com: permissions none
+ user acme/nightly: permissions queries:read; responsible ada@example.com
+ key acme/job: user nightly
applied 5 changes
";
    assert_eq!((applied.code, applied.out.as_str()), (0, plan), "{}", applied.err);
    let again = installation.apply_services(file, "--dry-run");
    assert_eq!((again.code, again.out.as_str()), (0, "nothing to change\n"), "{again:?}");

    // The person leaves, and another one takes over, in one file.
    let other =
        file.replace("Ada@", "bob@").replace("{ email: ada@example.com }", "{ email: ada@example.com, removed: true }");
    let applied = installation.apply_services(&other, "--yes");
    let change = "~ user acme/nightly: responsible ada@example.com -> bob@example.com\n";
    assert!(applied.code == 0 && applied.out.contains(change), "{applied:?}");
    assert_eq!(installation.apply_services(&other, "--dry-run").code, 0);
    assert_eq!(installation.service_row()[3], "bob@example.com");

    // A file that leaves the person out leaves the person as it is.
    let silent = "      - { service: nightly }\n";
    assert_eq!(installation.apply_services(silent, "--dry-run").code, 0);
    for (service, reason) in [
        ("{ service: weekly }", "needs a `responsible` person"),
        ("{ service: weekly, responsible: ada@example.com }", "there is no user ada@example.com"),
        ("{ service: nightly, responsible: eve@example.com }", "there is no user eve@example.com"),
    ] {
        let conflict = installation.apply_services(&format!("      - {service}\n"), "--yes");
        assert!(conflict.code == 1 && conflict.out.contains(reason), "{service}: {conflict:?}");
    }
}
