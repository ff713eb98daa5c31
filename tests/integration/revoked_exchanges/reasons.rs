//! Everything that is revoked ends its own exchanges, and no others.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use control::management::{self, PolicyUpdate};
use domain::clock;
use journal::audit::Outcome;

use super::upstream::Endless;
use super::{End, PATIENCE, ROUTES, UPGRADE, assert_open, end_of, is_switched, open_tunnel};
use crate::sign_in::fixture::{self, Member, PERSON, link_of, member, sessions};
use crate::sign_in::gateway_browser::{GatewayBrowser, SESSION};
use crate::support::gateway::OPERATOR;
use crate::support::{Gateway, eventually, head};

fn terminated(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric(&format!("keygate_exchanges_terminated_total{{reason=\"{reason}\"}}"))
}

#[test]
fn revocation_ends_the_exchanges_that_it_concerns_and_no_others() {
    let upstream = Endless::start();
    let gateway = Gateway::with(&[upstream.address], ROUTES);
    let (key, stranger) = (gateway.key(), gateway.key());
    let sibling = gateway.another_key(&key);
    let mut others = [&sibling, &stranger].map(|key| open_tunnel(&gateway, &key.text));
    let tunnel = open_tunnel(&gateway, &key.text);
    gateway.revoke(&key);
    assert_eq!(end_of(tunnel), End::Reset);
    others.iter_mut().for_each(assert_open);

    let [of_sibling, mut of_stranger] = others;
    gateway.remove_user(&sibling);
    assert_eq!(end_of(of_sibling), End::Reset);
    assert_open(&mut of_stranger);

    gateway.suspend_user(&stranger);
    assert_eq!(end_of(of_stranger), End::Reset);
    gateway.resume_user(&stranger);
    let mut resumed = open_tunnel(&gateway, &stranger.text);
    assert_open(&mut resumed);

    gateway.suspend(&stranger);
    assert_eq!(end_of(resumed), End::Reset);
    let counts = ["key", "user", "org", "secret", "session"].map(|reason| terminated(&gateway, reason));
    assert_eq!(counts, [1.0, 2.0, 1.0, 0.0, 0.0]);
    assert!(gateway.records().iter().all(|record| record.outcome == Outcome::Terminated));
    upstream.until_all_ended();
}

#[test]
fn rotation_without_an_overlap_ends_the_exchanges_of_the_old_secret() {
    let upstream = Endless::start();
    let gateway = Gateway::with(&[upstream.address], ROUTES);
    let first = gateway.key();
    let tunnel = open_tunnel(&gateway, &first.text);
    let second = gateway.rotate(&first, None);
    assert_eq!(end_of(tunnel), End::Reset);
    let mut current = open_tunnel(&gateway, &second.text);
    assert_open(&mut current);
    assert_eq!(terminated(&gateway, "secret"), 1.0);
    assert_eq!(gateway.explain_in_flight(&second), 1);
}

#[test]
fn rotation_ends_the_exchanges_of_the_old_secret_when_the_overlap_ends() {
    let upstream = Endless::start();
    let gateway = Gateway::with(&[upstream.address], ROUTES);
    let first = gateway.key();
    let mut before = open_tunnel(&gateway, &first.text);
    let overlap = Duration::from_secs(2);
    let begun = clock::now();
    let second = gateway.rotate(&first, Some(overlap));
    let mut meanwhile = open_tunnel(&gateway, &first.text);
    let mut current = open_tunnel(&gateway, &second.text);
    [&mut before, &mut meanwhile].into_iter().for_each(assert_open);
    assert_eq!([end_of(before), end_of(meanwhile)], [End::Reset; 2]);
    assert!(clock::now() >= begun.after(overlap), "the exchanges end with the overlap, and not before");
    assert_open(&mut current);
    assert_eq!(terminated(&gateway, "secret"), 2.0);
}

#[test]
fn disabled_key_ends_its_exchanges_and_expiry_ends_them_in_time() {
    let upstream = Endless::start();
    let (gateway, key) = Gateway::with(&[upstream.address], ROUTES).and_key();
    let (mut sibling, disabled) =
        (open_tunnel(&gateway, &gateway.another_key(&key).text), open_tunnel(&gateway, &key.text));
    gateway.disable(&key);
    assert_eq!(end_of(disabled), End::Reset);
    assert_open(&mut sibling);
    assert_eq!(terminated(&gateway, "key"), 1.0);

    gateway.perform(async |to, now| management::enable_key(to, OPERATOR, key.id, now).await);
    let expire = |after: Duration| {
        let policy = PolicyUpdate { expires: Some(Some(clock::now().after(after))), ..PolicyUpdate::default() };
        gateway.set_policy(key.id, policy);
    };
    let mut before = open_tunnel(&gateway, &key.text);
    let begun = clock::now();
    expire(Duration::from_secs(1));
    expire(Duration::from_secs(3));
    let mut meanwhile = open_tunnel(&gateway, &key.text);
    [&mut before, &mut meanwhile].into_iter().for_each(assert_open);
    assert_eq!([end_of(before), end_of(meanwhile)], [End::Reset; 2]);
    assert!(clock::now() >= begun.after(Duration::from_secs(3)), "the later expiry is the one that ends them");
    assert_open(&mut sibling);
    assert_eq!(terminated(&gateway, "secret"), 2.0);
}

#[test]
fn second_rotation_ends_the_overlap_of_the_first() {
    let upstream = Endless::start();
    let gateway = Gateway::with(&[upstream.address], ROUTES);
    let hour = Some(Duration::from_secs(3600));
    let first = gateway.key();
    let of_first = open_tunnel(&gateway, &first.text);
    let second = gateway.rotate(&first, hour);
    let mut of_second = open_tunnel(&gateway, &second.text);
    let also_of_first = open_tunnel(&gateway, &first.text);
    let third = gateway.rotate(&second, hour);
    assert_eq!([end_of(of_first), end_of(also_of_first)], [End::Reset; 2]);
    assert_open(&mut of_second);
    assert_open(&mut open_tunnel(&gateway, &third.text));
}

#[test]
fn end_of_a_session_ends_its_exchanges() {
    let upstream = Endless::start();
    let gateway = Gateway::with(&[upstream.address], &(fixture::session(&[], "") + ROUTES));
    let person = member(&gateway, "acme", PERSON, &[]);
    let [first, second] = [(); 2].map(|()| session_of(&gateway, person));
    let mut tunnels = [&first, &second].map(|session| open_tunnel_with(&gateway, session));
    tunnels.iter_mut().for_each(assert_open);
    gateway.end_session(sessions(&gateway)[0].id);
    let [of_first, mut of_second] = tunnels;
    assert_eq!(end_of(of_first), End::Reset);
    assert_open(&mut of_second);
    gateway.perform(async |to, now| management::end_sessions(to, OPERATOR, "acme", PERSON, now).await);
    assert_eq!(end_of(of_second), End::Reset);
    assert_eq!(terminated(&gateway, "session"), 2.0);
    eventually("all slots are free", || gateway.metric("keygate_in_flight") == 0.0);
}

#[test]
fn session_that_goes_unused_ends_its_exchanges_when_it_expires() {
    let upstream = Endless::start();
    let gateway = Gateway::with(&[upstream.address], &(fixture::session(&[], "  idle: 10s\n") + ROUTES));
    let person = member(&gateway, "acme", PERSON, &[]);
    let mut tunnel = open_tunnel_with(&gateway, &session_of(&gateway, person));
    assert_open(&mut tunnel);
    assert_eq!(end_of(tunnel), End::Reset);
    assert_eq!(terminated(&gateway, "session"), 1.0);
}

/// Signs in by a link; returns the session's cookie.
pub(super) fn session_of(gateway: &Gateway, person: Member) -> String {
    let mut browser = GatewayBrowser::new(gateway);
    browser.submit(&link_of(gateway, person), &[]);
    format!("{SESSION}={}", browser.session())
}

pub(super) fn open_tunnel_with(gateway: &Gateway, cookie: &str) -> TcpStream {
    let fields = [&UPGRADE[..], &[("Sec-Fetch-Site", "same-origin"), ("Cookie", cookie)]].concat();
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(head("GET", "/tunnel", "", &fields, 0).as_bytes()).unwrap();
    assert!(is_switched(&mut stream), "the session is valid");
    stream
}

#[test]
fn loss_of_a_permission_or_a_lower_limit_ends_nothing() {
    let upstream = Endless::start();
    let gateway = Gateway::with(&[upstream.address], ROUTES);
    let key = gateway.key_with(&["queries:read"]);
    let mut tunnel = open_tunnel(&gateway, &key.text);
    gateway.permit(&key, &[]);
    gateway.limit_org(&key, 1);
    gateway.revoke(&gateway.another_key(&key));
    assert_open(&mut tunnel);
    assert_eq!(gateway.explain_in_flight(&key), 1);
}
