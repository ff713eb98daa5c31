//! Sign-in links: valid once, for five minutes, unless disabled.

use std::time::Duration;

use super::fixture::{self, Member, PERSON, changes, given, hostile, is_admitted, is_signed_in, link_of, member};
use super::gateway_browser::{AGENT, GatewayBrowser, SESSION, path_here, text};
use crate::oidc::hostile::Hostile;
use crate::support::gateway::OPERATOR;
use crate::support::{Gateway, Upstream};
use control::management;
use domain::clock;

fn setup(upstream: &Upstream) -> (Gateway, Member) {
    let gateway = fixture::gateway(upstream, &[]);
    let person = member(&gateway, "acme", PERSON, &[]);
    (gateway, person)
}

#[test]
fn link_signs_in_once_and_is_recorded_in_the_audit() {
    let upstream = Upstream::start();
    let (gateway, person) = setup(&upstream);
    let link = link_of(&gateway, person);
    let mut visitor = GatewayBrowser::new(&gateway);
    // Opening the link, as mail scanners do, does not use it up.
    for _ in 0..3 {
        let page = visitor.arrive(&link);
        assert!(page.status == 200 && given(&page).is_none() && text(&page).contains(PERSON), "{}", text(&page));
    }
    let answer = visitor.submit(&link, &[]);
    assert_eq!((answer.status, answer.header("location")), (303, Some("/settings/keys")));
    assert!(is_signed_in(&mut visitor) && is_admitted(&mut visitor));
    let mut late = GatewayBrowser::new(&gateway);
    fixture::assert_refused(&late.arrive(&link), 403);
    fixture::assert_refused(&late.submit(&link, &[]), 403);
    visitor.submit("/settings/sign-out", &[]);
    assert!(!is_signed_in(&mut visitor));

    let did = changes(&gateway);
    let sessions: Vec<_> = did.iter().filter(|change| change.action.starts_with("session.")).collect();
    let [made, started, ended] = sessions.as_slice() else { panic!("{sessions:?}") };
    assert_eq!((made.action.as_str(), made.auth_method.as_str(), made.ip), ("session.link", "admin-socket", None));
    for (change, action) in [(started, "session.start"), (ended, "session.end")] {
        assert_eq!((change.action.as_str(), change.auth_method.as_str()), (action, "session"));
        assert_eq!((change.ip.unwrap().to_string(), change.user_agent.as_deref()), ("127.0.0.1".into(), Some(AGENT)));
    }
    assert_eq!(made.user_id, None, "the operator has made the link");
    assert_eq!((started.user_id, ended.user_id), (Some(person.user), Some(person.user)));
    for change in sessions {
        assert_eq!((change.subject, change.org_id), (Some(person.user), Some(person.org)), "{}", change.action);
    }
}

#[test]
fn link_redeemed_twice_at_once_works_once() {
    let upstream = Upstream::start();
    let (gateway, person) = setup(&upstream);
    for round in 1..=10 {
        let link = link_of(&gateway, person);
        let mut answers = std::thread::scope(|scope| {
            let racers = [(); 2].map(|()| {
                let (mut racer, link) = (GatewayBrowser::new(&gateway), &link);
                scope.spawn(move || racer.submit(link, &[]))
            });
            racers.map(|racer| racer.join().unwrap())
        });
        answers.sort_by_key(|answer| answer.status);
        let [first, second] = answers;
        assert!(first.status == 303 && given(&first).is_some(), "{}", text(&first));
        fixture::assert_refused(&second, 403);
        assert_eq!(fixture::sessions(&gateway).len(), round);
    }
}

#[test]
fn link_is_valid_for_five_minutes() {
    let upstream = Upstream::start();
    let (gateway, _) = setup(&upstream);
    let ago = |seconds| clock::now().before(Duration::from_secs(seconds));
    for (seconds, status) in [(290, 303), (301, 403)] {
        let link = gateway
            .perform_at(ago(seconds), async |to, now| management::create_link(to, OPERATOR, "acme", PERSON, now).await);
        let link = path_here(&link.url.expose().parse().unwrap());
        assert_eq!(GatewayBrowser::new(&gateway).submit(&link, &[]).status, status, "after {seconds} s");
    }
}

#[test]
fn link_of_a_removed_user_is_refused() {
    let upstream = Upstream::start();
    let (gateway, person) = setup(&upstream);
    let link = link_of(&gateway, person);
    gateway.remove_user_of(person.org, person.user);
    fixture::assert_refused(&GatewayBrowser::new(&gateway).submit(&link, &[]), 403);
    assert!(fixture::sessions(&gateway).is_empty());
}

#[test]
fn link_ends_the_previous_session_and_is_refused_from_other_sites() {
    let upstream = Upstream::start();
    let (gateway, person) = setup(&upstream);
    let mut attacker = GatewayBrowser::new(&gateway);
    attacker.submit(&link_of(&gateway, person), &[]);
    let mut victim = GatewayBrowser::new(&gateway);
    victim.plant(SESSION, &attacker.session());
    victim.submit(&link_of(&gateway, person), &[]);
    assert!(is_signed_in(&mut victim) && !is_signed_in(&mut attacker));
    // A form of another site cannot redeem it.
    let link = link_of(&gateway, person);
    let mut other = GatewayBrowser::new(&gateway);
    let evil = [("Sec-Fetch-Site", "cross-site"), ("Origin", "https://evil.test")];
    fixture::assert_refused(&other.send("POST", &link, &evil, ""), 403);
    assert_eq!(other.submit(&link, &[]).status, 303);
}

#[test]
fn links_when_disabled_are_neither_created_nor_accepted() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let session = fixture::session(&[hostile("corp", &provider, "")], "  links: true\n");
    let mut gateway = Gateway::with(&[upstream.address], &session);
    let person = member(&gateway, "acme", PERSON, &[]);
    let link = link_of(&gateway, person);
    gateway.restart_with(|text| text.replace("links: true", "links: false"));
    let mut visitor = GatewayBrowser::new(&gateway);
    fixture::assert_refused(&visitor.arrive(&link), 409);
    fixture::assert_refused(&visitor.submit(&link, &[]), 409);
    let refused = gateway.refused(async |to, now| management::create_link(to, OPERATOR, "acme", PERSON, now).await);
    assert_eq!(refused, "no_links");
    assert!(!text(&visitor.open("/settings/sign-in")).contains("sign-in link"));
    assert_eq!(visitor.sign_in("corp").status, 303);
}
