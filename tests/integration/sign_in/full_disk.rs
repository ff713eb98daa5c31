//! Sessions on a full disk: they end when users or operators end them.

use super::fixture::{self, PERSON, is_signed_in, link_of, member};
use super::gateway_browser::GatewayBrowser;
use crate::support::gateway::OPERATOR;
use crate::support::{Gateway, SmallDisk, Upstream, eventually};
use control::management;

#[test]
fn user_signs_out_with_no_byte_free() {
    let Some(disk) = SmallDisk::mount("sign_in::full_disk::user_signs_out_with_no_byte_free", 40) else { return };
    let upstream = Upstream::start();
    let path = disk.path().display();
    let state = format!("{}\nstate: {{ embedded: {{ path: {path}/state.db }} }}\n", fixture::session(&[], ""));
    let mut gateway = Gateway::with(&[upstream.address], &state);
    gateway.restart_with(|text| text.replace("path: audit }", &format!("path: {path}/audit }}")));
    let person = member(&gateway, "acme", PERSON, &[]);
    let sign_in = |gateway: &Gateway| {
        let mut browser = GatewayBrowser::new(gateway);
        assert_eq!(browser.submit(&link_of(gateway, person), &[]).status, 303);
        browser
    };
    let (mut browser, mut other) = (sign_in(&gateway), sign_in(&gateway));
    disk.fill();
    assert_eq!(browser.submit("/settings/sign-out", &[]).status, 303);
    assert!(!is_signed_in(&mut browser) && is_signed_in(&mut other));
    gateway.perform(async |to, now| management::end_sessions(to, OPERATOR, "acme", PERSON, now).await);
    assert!(!is_signed_in(&mut other));
    // The space that is kept also lets operators sign in, in order to revoke what they must.
    let mut operator = sign_in(&gateway);
    assert!(is_signed_in(&mut operator));
    gateway.remove_user_of("acme", PERSON);
    assert!(!is_signed_in(&mut operator));
    assert_eq!(disk.free(), 0);
    let path = disk.path().join("audit");
    let ended = || {
        let records = journal::audit::Reader::open(&path).unwrap().list(&journal::audit::Filter::default(), 100, None);
        let records = records.unwrap().records;
        records.iter().filter(|record| record.action == "session.end" && record.outcome.name() == "completed").count()
    };
    eventually("the ends are recorded", || ended() == 2);
    disk.make_room();
}
