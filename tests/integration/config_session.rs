//! Configuration file: the `session` block and its errors.

use super::config::{MINIMAL, parse};

/// A minimal configuration with a dashboard.
fn with_session(session: &str) -> String {
    format!("{MINIMAL}session:\n  origin: https://gateway.example\n{session}")
}

#[test]
fn commented_session_block_shows_the_defaults() {
    let shipped = std::fs::read_to_string("config/keygate.yaml").unwrap();
    let (_, block) = shipped.split_once("\n# session:\n").unwrap();
    let (block, _) = block.split_once("\n\n").unwrap();
    let block: Vec<&str> = block.lines().map(|line| line.strip_prefix("# ").unwrap()).collect();
    let block = block.join("\n").replace("{ env: OIDC_CLIENT_SECRET }", "secret");
    let text = format!("{MINIMAL}session:\n{block}\n");
    let session = parse(&text).unwrap_or_else(|problems| panic!("{problems}\n{text}")).session.unwrap();
    let least = "  providers: [{ name: acme, issuer: https://login.example.com, client_id: keygate, \
                 client_secret: secret, label: Acme Login }]\n";
    let defaults = parse(&with_session(least).replace("gateway.example", "gateway.example.com")).unwrap();
    assert_eq!(session, defaults.session.unwrap());
}

#[test]
fn claim_mapping_is_read() {
    let session = "  providers:
    - name: a
      issuer: https://a
      client_id: b
      people:
        email: mail
        unverified_email: true
        organization: { claim: org, map: [{ value: acme-corp, means: Acme }] }
        only: [Acme]
        permissions:
          claim: /realm_access/roles
          map:
            - { value: boss, means: ['org:admin', 'queries:read'] }
";
    let config = parse(&with_session(session)).unwrap();
    let provider = &config.session.unwrap().providers[0];
    assert_eq!(provider.claim_mapping.orgs.as_ref().unwrap().map, [("acme-corp".to_owned(), "Acme".to_owned())]);
    assert_eq!(provider.claim_mapping.permissions.as_ref().unwrap().map[0].1.len(), 2);
    assert_eq!(provider.claim_mapping.only, Some(vec!["Acme".to_owned()]));
    assert_eq!(provider.oidc.claims, ["mail", "org", "realm_access"]);
}

#[test]
fn several_providers_say_which_organizations_they_may_speak_for() {
    let providers = |people: [&str; 2]| {
        let provider = |(name, people): (&str, &str)| {
            format!("    - {{ name: {name}, issuer: 'https://{name}', client_id: b, people: {{ {people} }} }}\n")
        };
        let blocks: String = ["one", "two"].into_iter().zip(people).map(provider).collect();
        parse(&with_session(&format!("  providers:\n{blocks}")))
    };
    let read = |people| {
        let session = providers(people).unwrap().session.unwrap();
        session.providers.into_iter().map(|provider| provider.claim_mapping.only).collect::<Vec<_>>()
    };
    assert_eq!(read(["only: [Acme]", "only: all"]), [Some(vec!["Acme".to_owned()]), None]);
    assert_eq!(read(["only: [all]", "only: all"]), [Some(vec!["all".to_owned()]), None]);
    for (people, lacking) in
        [(["", ""], "`one` and `two`"), (["only: all", "email: mail"], "`two`"), (["", "only: [a]"], "`one`")]
    {
        let problem = providers(people).unwrap_err().to_string();
        assert!(problem.contains("session.providers: has several providers"), "{problem}");
        assert!(problem.contains(&format!("and {lacking} lacks `people.only`")), "{problem}");
        assert!(problem.contains("`only: all`"), "{problem}");
    }
    let one = "  providers: [{ name: a, issuer: https://a, client_id: b }]\n";
    assert!(parse(&with_session(one)).is_ok(), "the only provider may sign users in to every organization");
    let word = providers(["only: Acme", "only: all"]).unwrap_err().to_string();
    assert!(word.contains("`Acme` is not a list of organizations; give one, such as [Acme], or `all`"), "{word}");
}

#[test]
fn session_block_is_checked() {
    let problem = |session: &str| parse(&with_session(session)).unwrap_err().to_string();
    for (session, what) in [
        ("  path: settings/", "session.path: `settings/` is not a path such as /settings"),
        ("  idle: 13h", "session.idle: is longer than `lifetime`"),
        ("  links: false", "session.providers: is empty and `links` is off"),
        ("  people: { managed_by: owners }", "session.people.managed_by: "),
        (
            "  people: { managed_by: admins }\n  providers: [{ name: a, issuer: https://a, client_id: b, people: { \
             permissions: { claim: groups } } }]",
            "session.people: `managed_by: admins` leaves people and permissions to admins, and the provider `a` maps",
        ),
        ("  providers: [{ name: A, issuer: https://a, client_id: b }]", "`A` is not a provider's name"),
        ("  providers: [{ name: a, issuer: http://a.example, client_id: b }]", "is not https"),
        ("  providers: [{ name: a, issuer: https://a, client_id: b, scopes: [email] }]", "lacks `openid`"),
        (
            "  providers: [{ name: a, issuer: https://a, client_id: b }, { name: a, issuer: https://b, client_id: b }]",
            "there is a provider `a` already",
        ),
        ("routes: [{ name: a, path: /settings/a }]", "session.path: is above /settings/a, which route `a` is for"),
    ] {
        let problem = problem(&format!("{session}\n"));
        assert!(problem.contains(what), "{session}: {problem}");
    }
    let origin = |origin: &str| parse(&format!("{MINIMAL}session: {{ origin: '{origin}' }}\n"));
    for (given, read) in [
        ("https://Gateway.example:443/", "https://gateway.example"),
        ("https://gateway.example:8443", "https://gateway.example:8443"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://localhost:80", "http://localhost"),
    ] {
        assert_eq!(origin(given).unwrap().session.unwrap().origin, read, "{given}");
    }
    for local in ["http://127.9.8.7", "http://[::1]:8080"] {
        assert_eq!(origin(local).unwrap().session.unwrap().origin, local);
    }
    for foreign in [
        "http://gateway.example",
        "http://127.evil.test",
        "http://127.0.0.1.evil.test",
        "http://localhost.evil.test",
        "http://localhostevil.test:8080",
        "http://[::2]",
        "http://10.0.0.1",
    ] {
        let told = origin(foreign).map(|config| config.session.unwrap().origin).unwrap_err().to_string();
        assert!(told.contains("is not https"), "{foreign}: {told}");
    }
    for bad in ["gateway.example", "https://a/b", "ftp://a", "https://a?b"] {
        assert!(origin(bad).unwrap_err().to_string().contains("is not an origin"), "{bad}");
    }
}

#[test]
fn domains_of_providers_are_read() {
    let two = |domains: &str| {
        format!(
            "  providers:\n    - {{ name: a, issuer: https://a, client_id: b, domains: [A.example], people: {{ only: \
             all }} }}\n    - {{ name: c, issuer: https://c, client_id: b, domains: [{domains}], people: {{ only: all \
             }} }}\n"
        )
    };
    assert!(parse(&with_session(&two("c.example, mail.a.example"))).is_ok());
    for (domains, what) in [
        ("a.example", "there is a provider for `a.example` already"),
        ("'@c.example'", "is not the domain"),
        ("''", "is"),
    ] {
        let told = parse(&with_session(&two(domains))).unwrap_err().to_string();
        assert!(told.contains(what), "{domains}: {told}");
    }
}
