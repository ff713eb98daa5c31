//! Attacks on a sign-in: each is refused with an error page and without a session.

use domain::session::Token;
use url::Url;

use super::ORIGIN;
use super::fixture::{self, PERSON, Setup, given, hostile, is_admitted, is_signed_in, member, setup, signed_in};
use super::gateway_browser::{GatewayBrowser, SESSION, SIGN_IN, text};
use crate::oidc::hostile::Hostile;
use crate::support::Upstream;

/// The value of a query parameter.
fn parameter(path: &str, name: &str) -> String {
    let url = Url::parse(ORIGIN).unwrap().join(path).unwrap();
    let found = url.query_pairs().find(|(given, _)| given == name);
    found.unwrap_or_else(|| panic!("no {name} in {path}")).1.into_owned()
}

fn with_parameter(path: &str, name: &str, value: &str) -> String {
    let mut url = Url::parse(ORIGIN).unwrap().join(path).unwrap();
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let changed = |(given, old): (String, String)| if given == name { (given, value.to_owned()) } else { (given, old) };
    url.query_pairs_mut().clear().extend_pairs(pairs.into_iter().map(changed));
    super::gateway_browser::path_here(&url)
}

#[test]
fn callback_of_another_browser_is_refused() {
    let Setup { provider, gateway, .. } = setup();
    for has_own in [false, true] {
        let (mut attacker, mut victim) = (GatewayBrowser::new(&gateway), GatewayBrowser::new(&gateway));
        let trap = attacker.begin_and_come_back("corp");
        if has_own {
            victim.begin("corp", "");
        }
        let answer = victim.arrive(&trap);
        fixture::assert_refused(&answer, 400);
        assert!(text(&answer).contains("another browser"), "{}", text(&answer));
        assert!(!is_signed_in(&mut victim));
        // The sign-in is used up, also for the browser that began it.
        fixture::assert_refused(&attacker.arrive(&trap), 400);
    }
    assert_eq!(provider.asked("/token"), 0, "the code went to the provider");
}

#[test]
fn state_is_refused_in_another_browser() {
    let Setup { provider, gateway, .. } = setup();
    let (mut attacker, mut victim) = (GatewayBrowser::new(&gateway), GatewayBrowser::new(&gateway));
    let of_victim = victim.begin_and_come_back("corp");
    let of_attacker = attacker.begin_and_come_back("corp");
    let state = parameter(&of_victim, "state");
    // With the attacker's own code, then with the victim's.
    fixture::assert_refused(&attacker.arrive(&with_parameter(&of_attacker, "state", &state)), 400);
    let of_victim = victim.begin_and_come_back("corp");
    attacker.begin("corp", "");
    fixture::assert_refused(&attacker.arrive(&of_victim), 400);
    attacker.plant(SIGN_IN, Token::generate().unwrap().expose());
    let of_victim = victim.begin_and_come_back("corp");
    fixture::assert_refused(&attacker.arrive(&of_victim), 400);
    assert_eq!(provider.asked("/token"), 0, "the code went to the provider");
    assert!(fixture::sessions(&gateway).is_empty());
}

#[test]
fn code_of_another_sign_in_is_refused() {
    let Setup { gateway, provider: _provider, .. } = setup();
    let (mut attacker, mut victim) = (GatewayBrowser::new(&gateway), GatewayBrowser::new(&gateway));
    let code = parameter(&attacker.begin_and_come_back("corp"), "code");
    let back = victim.begin_and_come_back("corp");
    // PKCE: the code was issued for another verifier.
    fixture::assert_refused(&victim.arrive(&with_parameter(&back, "code", &code)), 400);
    assert!(!is_signed_in(&mut victim));
}

#[test]
fn callback_works_once() {
    let Setup { provider, gateway, .. } = setup();
    // The gateway must refuse the second callback itself, even if the provider accepts the code again.
    provider.behave(|now| now.codes_last = true);
    let mut visitor = GatewayBrowser::new(&gateway);
    let back = visitor.begin_and_come_back("corp");
    let browser = visitor.sign_in_cookie().unwrap();
    assert_eq!(visitor.arrive(&back).status, 303);
    let mut again = GatewayBrowser::new(&gateway);
    again.plant(SIGN_IN, &browser);
    fixture::assert_refused(&again.arrive(&back), 400);
    assert_eq!(fixture::sessions(&gateway).len(), 1);
    assert_eq!(provider.asked("/token"), 1);
    assert!(is_signed_in(&mut visitor), "the first session is still valid");
}

#[test]
fn callback_sent_twice_at_once_works_once() {
    let Setup { provider, gateway, .. } = setup();
    provider.behave(|now| now.codes_last = true);
    for _ in 0..5 {
        let mut visitor = GatewayBrowser::new(&gateway);
        let back = visitor.begin_and_come_back("corp");
        let browser = visitor.sign_in_cookie().unwrap();
        let statuses = std::thread::scope(|scope| {
            let racers = [(); 2].map(|()| {
                let mut racer = GatewayBrowser::new(&gateway);
                racer.plant(SIGN_IN, &browser);
                let back = &back;
                scope.spawn(move || racer.arrive(back).status)
            });
            let mut statuses = racers.map(|racer| racer.join().unwrap());
            statuses.sort_unstable();
            statuses
        });
        assert_eq!(statuses, [303, 400]);
    }
}

#[test]
fn session_set_before_the_sign_in_ends_with_it() {
    let Setup { gateway, provider: _provider, .. } = setup();
    // A value that the attacker made up.
    let made_up = Token::generate().unwrap();
    let mut victim = GatewayBrowser::new(&gateway);
    victim.plant(SESSION, made_up.expose());
    assert_eq!(victim.sign_in("corp").status, 303);
    assert_ne!(victim.session(), made_up.expose());
    let mut attacker = GatewayBrowser::new(&gateway);
    attacker.plant(SESSION, made_up.expose());
    assert!(!is_signed_in(&mut attacker) && !is_admitted(&mut attacker));

    // The attacker's own session.
    let mut attacker = signed_in(&gateway, "corp");
    let planted = attacker.session();
    let mut victim = GatewayBrowser::new(&gateway);
    victim.plant(SESSION, &planted);
    let answer = victim.sign_in("corp");
    assert_ne!(given(&answer), Some(planted.as_str()));
    assert!(is_signed_in(&mut victim));
    assert!(
        !is_signed_in(&mut attacker) && !is_admitted(&mut attacker),
        "the session that was set before is still valid"
    );
}

#[test]
fn return_to_stays_on_the_origin() {
    let Setup { gateway, provider: _provider, .. } = setup();
    let mut signed_in = signed_in(&gateway, "corp");
    let origin = Url::parse(ORIGIN).unwrap();
    for evil in [
        "//evil.test",
        "///evil.test",
        "////evil.test/",
        "/\\evil.test",
        "\\\\evil.test",
        "\\/evil.test",
        "/\\/evil.test",
        "https:evil.test",
        "https:/evil.test",
        "https://evil.test/",
        "https://gateway.test@evil.test/",
        "https://gateway.test.evil.test/",
        "@evil.test",
        ".evil.test",
        "/.//evil.test",
        "/..//evil.test",
        "/a/..//evil.test",
        "/%2e//evil.test",
        "/\t/evil.test",
        "/\n/evil.test",
        "\t//evil.test",
        "/\r\n/evil.test",
        " //evil.test",
        "\u{1}//evil.test",
        "/%2f/evil.test",
        "/%5cevil.test",
        "%2f%2fevil.test",
        "/\r\nLocation: https://evil.test",
        "javascript:alert(1)",
        "data:text/html,x",
        "/settings/keys\r\nSet-Cookie: a=b",
    ] {
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("return_to", evil).finish();
        // A signed-in user is redirected at once.
        let at_once = signed_in.arrive(&format!("/settings/sign-in?{query}"));
        let mut visitor = GatewayBrowser::new(&gateway);
        let url = visitor.begin("corp", evil);
        let back = visitor.at_provider(&url);
        let after = visitor.arrive(&back);
        for answer in [at_once, after] {
            assert_eq!(answer.status, 303, "{evil:?}: {}", text(&answer));
            let location = answer.header("location").unwrap();
            assert!(location.starts_with('/') && !location.contains(['\t', '\\']), "{evil:?}: {location}");
            assert_eq!(origin.join(location).unwrap().origin(), origin.origin(), "{evil:?}: {location}");
            assert!(answer.headers.iter().all(|(_, value)| !value.starts_with("a=b")), "{evil:?}");
        }
    }
}

#[test]
fn provider_cannot_respond_for_another() {
    let (good, evil, upstream) = (Hostile::start(), Hostile::start(), Upstream::start());
    let gateway =
        fixture::gateway(&upstream, &[hostile("good", &good, "only: all"), hostile("evil", &evil, "only: all")]);
    member(&gateway, "acme", PERSON, &[]);
    for (begun, other) in [("good", "evil"), ("evil", "good")] {
        let mut visitor = GatewayBrowser::new(&gateway);
        let back = visitor.begin_and_come_back(begun);
        let mixed_up = back.replace(&format!("/callback/{begun}"), &format!("/callback/{other}"));
        assert_ne!(back, mixed_up);
        let answer = visitor.arrive(&mixed_up);
        fixture::assert_refused(&answer, 400);
        assert!(text(&answer).contains("another identity provider"), "{}", text(&answer));
        // The sign-in is used up: the right callback is refused, too.
        fixture::assert_refused(&visitor.arrive(&back), 400);
    }
    assert_eq!((good.asked("/token"), evil.asked("/token")), (0, 0), "a code went to the wrong provider");
    fixture::assert_refused(&GatewayBrowser::new(&gateway).arrive("/settings/callback/unknown?state=a&code=b"), 404);
}

#[test]
fn callbacks_without_a_pending_sign_in_are_refused() {
    let Setup { provider, gateway, .. } = setup();
    let mut visitor = GatewayBrowser::new(&gateway);
    let back = visitor.begin_and_come_back("corp");
    let (state, code) = (parameter(&back, "state"), parameter(&back, "code"));
    let mut other = GatewayBrowser::new(&gateway);
    for query in [
        String::new(),
        "?".into(),
        format!("?code={code}"),
        "?state=".into(),
        format!("?state=&code={code}"),
        format!("?state={}&code={code}", Token::generate().unwrap().expose()),
        format!("?state={}&code={code}", "a".repeat(8000)),
        "?error=access_denied".into(),
        "?%ff=%ff&state=%00".into(),
    ] {
        fixture::assert_refused(&other.arrive(&format!("/settings/callback/corp{query}")), 400);
    }
    // Each parameter may occur once (RFC 6749, section 3.1).
    let twice = visitor.arrive(&format!("{back}&state={state}"));
    fixture::assert_refused(&twice, 400);
    assert_eq!(provider.asked("/token"), 0);
}

#[test]
fn sign_in_begins_only_on_the_gateways_own_pages() {
    let Setup { provider, gateway, .. } = setup();
    let kind = ("Content-Type", "application/x-www-form-urlencoded");
    for fields in [
        vec![("Sec-Fetch-Site", "cross-site"), ("Origin", "https://evil.test"), kind],
        vec![("Sec-Fetch-Site", "same-site"), ("Origin", "https://other.gateway.test"), kind],
        vec![("Origin", "https://evil.test"), kind],
        vec![("Origin", "null"), kind],
        vec![kind],
    ] {
        for path in ["/settings/sign-in/corp", "/settings/sign-out", "/settings/org", "/settings/keys/new"] {
            let mut visitor = signed_in(&gateway, "corp");
            let cookies = visitor.cookies().to_vec();
            let answer = visitor.send("POST", path, &fields, "return_to=%2F");
            fixture::assert_refused(&answer, 403);
            assert!(visitor.cookies() == cookies && is_signed_in(&mut visitor), "{path} {fields:?}");
        }
    }
    let asked = provider.asked("/authorize");
    let mut visitor = GatewayBrowser::new(&gateway);
    assert_ne!(visitor.open("/settings/sign-in/corp").status, 200, "a link to the page began a sign-in");
    assert_eq!(provider.asked("/authorize"), asked);
}

#[test]
fn two_session_cookies_in_one_request_are_refused() {
    let Setup { gateway, provider: _provider, .. } = setup();
    let [one, other] = [signed_in(&gateway, "corp").session(), signed_in(&gateway, "corp").session()];
    let both = format!("{SESSION}={one}; a=b; {SESSION}={other}");
    let mut visitor = GatewayBrowser::new(&gateway);
    let page = visitor.send("GET", "/settings/keys", &[("Cookie", &both)], "");
    fixture::assert_refused(&page, 400);
    assert!(text(&page).contains("more than one session cookie"), "{}", text(&page));
    let answer = visitor.send("GET", "/x", &[("Cookie", &both)], "");
    assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"));
    let answer = visitor.send("GET", "/settings/api/v1/session", &[("Cookie", &both)], "");
    assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"));
    // In two header fields as well.
    let [first, second] = [format!("{SESSION}={one}"), format!("{SESSION}={other}")];
    let answer = visitor.send("GET", "/x", &[("Cookie", &first), ("Cookie", &second)], "");
    assert_eq!(answer.code(), "invalid_request");
    let answer = visitor.send("GET", "/x", &[("Cookie", &first), ("Cookie", &first)], "");
    assert_eq!(answer.status, 200, "the same cookie twice is one session");
}
