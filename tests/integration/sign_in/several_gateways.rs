//! Sessions at several gateways with one state, across restarts, and without Redis.

use super::fixture::{self, PERSON, hostile, is_admitted, is_signed_in, member, sessions, signed_in};
use super::gateway_browser::{GatewayBrowser, SESSION, SIGN_IN, path_here, text};
use super::process::GatewayProcess;
use crate::oidc::hostile::Hostile;
use crate::support::redis::Redis;
use crate::support::{Gateway, Upstream, eventually, until};

struct Setup {
    provider: Hostile,
    redis: Redis,
    upstream: Upstream,
}

impl Setup {
    fn new() -> Self {
        Self { provider: Hostile::start(), redis: Redis::options().appendonly().start(), upstream: Upstream::start() }
    }

    fn gateway(&self, more: &str) -> Gateway {
        let session = fixture::session(&[hostile("corp", &self.provider, "")], more);
        let state = format!("\nstate: {{ redis: {{ url: '{}', deadline: 2s }} }}\n", self.redis.url());
        Gateway::with(&[self.upstream.address], &format!("{session}{state}"))
    }

    fn two(&self, more: &str) -> [Gateway; 2] {
        let two = [self.gateway(more), self.gateway(more)];
        member(&two[0], "acme", PERSON, &[]);
        two
    }
}

/// Returns, for each of these gateways, whether pages and API accept a session.
fn is_good(visitor: &mut GatewayBrowser, gateways: &[Gateway]) -> Vec<bool> {
    let mut good = Vec::new();
    for gateway in gateways {
        visitor.move_to(gateway.address);
        good.push(is_admitted(visitor));
        good.push(is_signed_in(visitor));
    }
    good
}

#[test]
fn sign_in_begins_at_one_gateway_and_finishes_at_another() {
    let setup = Setup::new();
    let [one, other] = setup.two("");
    let mut visitor = GatewayBrowser::new(&one);
    let back = visitor.begin_and_come_back("corp");
    visitor.move_to(other.address);
    assert_eq!(visitor.arrive(&back).status, 303);
    assert_eq!(is_good(&mut visitor, &[one, other]), [true; 4]);
}

#[test]
fn links_and_callbacks_work_once_at_one_of_all_gateways() {
    let setup = Setup::new();
    let two = setup.two("");
    // The gateways must refuse the second callback themselves, even if the provider accepts the code again.
    setup.provider.behave(|now| now.codes_last = true);
    for _ in 0..5 {
        let mut visitor = GatewayBrowser::new(&two[0]);
        let back = visitor.begin_and_come_back("corp");
        let browser = visitor.sign_in_cookie().unwrap();
        let statuses = race(&two, |racer| {
            racer.plant(SIGN_IN, &browser);
            racer.arrive(&back).status
        });
        assert_eq!(statuses, [303, 400]);
        let link = path_here(&two[0].create_link("acme", PERSON));
        assert_eq!(race(&two, |racer| racer.submit(&link, &[]).status), [303, 403]);
    }
}

/// Responses to browsers that do the same at once, one at each gateway.
fn race(gateways: &[Gateway; 2], act: impl Fn(&mut GatewayBrowser) -> u16 + Sync) -> [u16; 2] {
    let mut statuses = std::thread::scope(|scope| {
        let racers = gateways.each_ref().map(|gateway| {
            let (mut racer, act) = (GatewayBrowser::new(gateway), &act);
            scope.spawn(move || act(&mut racer))
        });
        racers.map(|racer| racer.join().unwrap())
    });
    statuses.sort_unstable();
    statuses
}

#[test]
fn session_is_valid_and_ends_at_all_gateways_at_once() {
    let setup = Setup::new();
    let mut two = setup.two("");
    for end in ["sign-out", "operator", "removal"] {
        let mut visitor = signed_in(&two[0], "corp");
        assert_eq!(is_good(&mut visitor, &two), [true; 4], "{end}");
        let mut copy = GatewayBrowser::new(&two[1]);
        copy.plant(SESSION, &visitor.session());
        match end {
            "sign-out" => {
                let answer = visitor.submit("/settings/sign-out", &[]);
                assert!(answer.status < 400, "{}", text(&answer));
            }
            "operator" => {
                let [session] = sessions(&two[1]).try_into().unwrap();
                two[1].end_session(session.id);
            }
            _ => drop(two[0].remove_user_of("acme", PERSON)),
        }
        // In the other order as well.
        two.reverse();
        assert_eq!(is_good(&mut copy, &two), [false; 4], "{end}");
    }
}

#[test]
fn session_expires_at_all_gateways() {
    let setup = Setup::new();
    for more in ["  idle: 10s\n", "  idle: 10s\n  lifetime: 10s\n"] {
        let gateways = [setup.gateway(more), setup.gateway(more)];
        member(&gateways[0], &format!("org-{}", more.len()), PERSON, &[]);
        let mut visitor = signed_in(&gateways[0], "corp");
        assert_eq!(is_good(&mut visitor, &gateways), [true; 4]);
        // Listing sessions does not use them.
        until("the session has ended", || sessions(&gateways[1]).is_empty().then_some(()));
        assert_eq!(is_good(&mut visitor, &gateways), [false; 4], "{more}");
    }
}

#[test]
fn session_in_use_ends_at_its_lifetime() {
    let setup = Setup::new();
    let gateways = setup.two("  idle: 10s\n  lifetime: 10s\n");
    let mut visitor = signed_in(&gateways[0], "corp");
    until("the session has ended", || (!is_signed_in(&mut visitor)).then_some(()));
    assert_eq!(is_good(&mut visitor, &gateways), [false; 4]);
}

#[test]
fn session_survives_the_restart_of_its_gateway() {
    let setup = Setup::new();
    let over_redis = setup.gateway("");
    let embedded = fixture::gateway(&setup.upstream, &[hostile("corp", &setup.provider, "")]);
    for mut gateway in [over_redis, embedded] {
        member(&gateway, "acme", PERSON, &[]);
        let mut visitor = signed_in(&gateway, "corp");
        let mut ended = signed_in(&gateway, "corp");
        let mut under_way = GatewayBrowser::new(&gateway);
        let back = under_way.begin_and_come_back("corp");
        let old = ended.session();
        ended.submit("/settings/sign-out", &[]);
        gateway.restart_with(str::to_owned);
        for browser in [&mut visitor, &mut ended, &mut under_way] {
            browser.move_to(gateway.address);
        }
        assert!(is_signed_in(&mut visitor) && is_admitted(&mut visitor));
        ended.plant(SESSION, &old);
        assert!(!is_signed_in(&mut ended) && !is_admitted(&mut ended), "a session that was ended is valid again");
        assert_eq!(under_way.arrive(&back).status, 303, "a pending sign-in is lost");
    }
}

#[test]
fn acknowledged_changes_survive_a_kill_of_the_gateway() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let mut gateway = GatewayProcess::start(&upstream, &fixture::session(&[hostile("corp", &provider, "")], ""));
    gateway.keygate(&["org", "create", "acme"]);
    gateway.keygate(&["user", "create", "--org", "acme", PERSON]);
    let [mut lasting, mut ended, mut under_way] = [(); 3].map(|()| GatewayBrowser::at(gateway.address));
    assert_eq!((lasting.sign_in("corp").status, ended.sign_in("corp").status), (303, 303));
    let old = ended.session();
    assert!(ended.submit("/settings/sign-out", &[]).status < 400);
    ended.plant(SESSION, &old);
    let back = under_way.begin_and_come_back("corp");
    gateway.restart_suddenly();
    assert!(is_admitted(&mut lasting) && is_signed_in(&mut lasting));
    assert!(!is_admitted(&mut ended) && !is_signed_in(&mut ended), "a session that was ended is valid again");
    assert_eq!(under_way.arrive(&back).status, 303, "a pending sign-in is lost");
}

#[test]
fn pages_report_an_unavailable_redis_and_recover() {
    let setup = Setup::new();
    let gateway = setup.gateway("");
    member(&gateway, "acme", PERSON, &["org:admin"]);
    let mut visitor = signed_in(&gateway, "corp");
    let mut stranger = GatewayBrowser::new(&gateway);
    let back = stranger.begin_and_come_back("corp");
    setup.redis.kill();
    for path in ["/settings", "/settings/keys", "/settings/keys/new", "/settings/sessions", "/settings/sign-in"] {
        let page = visitor.open(path);
        fixture::assert_refused(&page, 503);
        assert!(page.header("retry-after").is_some() && text(&page).contains("state is unavailable"), "{path}");
    }
    for path in ["/settings/sign-out", "/settings/org", "/settings/keys/new", "/settings/sign-in/corp"] {
        fixture::assert_refused(&visitor.submit(path, &[("name", "x")]), 503);
    }
    fixture::assert_refused(&stranger.arrive(&back), 503);
    for path in ["/x", "/settings/api/v1/session", "/settings/api/v1/tokens"] {
        let answer = visitor.fetch("GET", path);
        assert_eq!((answer.status, answer.code().as_str()), (503, "state_unavailable"), "{path}");
        assert!(answer.header("retry-after").is_some(), "{path}");
    }
    // The sign-in page and the assets need no state.
    let mut signed_out = GatewayBrowser::new(&gateway);
    assert_eq!(signed_out.open("/settings/sign-in").status, 200);
    assert_eq!(signed_out.open("/settings/assets/keygate.css").status, 200);
    assert!(visitor.cookie(SESSION).is_some(), "the browser lost its session");
    setup.redis.restart();
    eventually("API requests work again", || visitor.fetch("GET", "/x").status == 200);
    eventually("pages work again", || visitor.open("/settings/keys").status == 200);
    eventually("signing in works again", || stranger.submit("/settings/sign-in/corp", &[]).status == 200);
    assert_eq!(stranger.sign_in("corp").status, 303);
}
