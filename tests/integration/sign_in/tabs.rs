//! Several tabs of one browser: each sign-in ends by itself, and a callback in a signed-in browser leads on.

use domain::session::Token;
use serde_json::json;

use super::fixture::{self, PERSON, Setup, given, is_signed_in, sessions, setup};
use super::gateway_browser::{GatewayBrowser, SESSION, SIGN_IN, path_here, text};
use crate::oidc::hostile::Raw;
use crate::support::Response;

const TABS: usize = 12;

fn page(tab: usize) -> String {
    format!("/settings/keys?tab={tab}")
}

fn assert_leads_to(answer: &Response, path: &str) {
    assert_eq!((answer.status, answer.header("location")), (303, Some(path)), "{}", text(answer));
}

/// Begins a sign-in; returns the path of its callback.
fn begin(visitor: &mut GatewayBrowser, return_to: &str) -> String {
    let url = visitor.begin("corp", return_to);
    visitor.at_provider(&url)
}

/// The tabs of a browser do the same at once. Afterwards the browser has the cookies of all their responses.
fn at_once<T: Send>(tabs: &mut [GatewayBrowser], act: impl Fn(usize, &mut GatewayBrowser) -> T + Sync) -> Vec<T> {
    let results = std::thread::scope(|scope| {
        let act = &act;
        let acting: Vec<_> = tabs.iter_mut().enumerate().map(|(n, tab)| scope.spawn(move || act(n, tab))).collect();
        acting.into_iter().map(|tab| tab.join().unwrap()).collect()
    });
    let cookies: Vec<(String, String)> = tabs.iter().flat_map(|tab| tab.cookies().to_vec()).collect();
    for tab in tabs {
        cookies.iter().for_each(|(name, value)| tab.plant(name, value));
    }
    results
}

#[test]
fn twelve_tabs_of_each_of_two_browsers_sign_in_by_provider_and_by_link() {
    let Setup { gateway, provider: _provider, .. } = setup();
    let mut tabs: Vec<_> = (0..TABS).map(|_| GatewayBrowser::new(&gateway)).collect();
    // Restored tabs: none of them has a cookie yet.
    let backs = at_once(&mut tabs, |n, tab| begin(tab, &page(n)));
    let answers = at_once(&mut tabs, |n, tab| tab.arrive(&backs[n]));
    for (n, answer) in answers.iter().enumerate() {
        assert_leads_to(answer, &page(n));
        // The browser keeps one of them, whichever came last.
        let mut any = GatewayBrowser::new(&gateway);
        given(answer).into_iter().for_each(|session| any.plant(SESSION, session));
        assert!(given(answer).is_none() || is_signed_in(&mut any), "{n}");
    }
    assert!(tabs.iter_mut().all(is_signed_in));

    let link = path_here(&gateway.create_link("acme", PERSON));
    let mut browser = GatewayBrowser::new(&gateway);
    assert_eq!((0..TABS).map(|_| browser.arrive(&link).status).collect::<Vec<_>>(), [200; TABS]);
    for _ in 0..TABS {
        assert_leads_to(&browser.submit(&link, &[]), "/settings/keys");
    }
    assert_leads_to(&browser.arrive(&link), "/settings/keys");
    assert!(is_signed_in(&mut browser));
    fixture::assert_refused(&GatewayBrowser::new(&gateway).arrive(&link), 403);
}

#[test]
fn tabs_that_sign_in_one_after_the_other_share_one_session() {
    let Setup { gateway, provider: _provider, .. } = setup();
    let mut browser = GatewayBrowser::new(&gateway);
    let backs: Vec<String> = (0..TABS).map(|n| begin(&mut browser, &page(n))).collect();
    assert_eq!(browser.sign_in_cookies().len(), 1, "the cookie is the browser's");
    for (n, back) in backs.iter().enumerate().rev() {
        assert_leads_to(&browser.arrive(back), &page(n));
    }
    assert_eq!(sessions(&gateway).len(), 1);
    assert!(is_signed_in(&mut browser));
}

#[test]
fn failed_callback_leaves_the_other_tabs() {
    let Setup { gateway, provider, .. } = setup();
    let mut browser = GatewayBrowser::new(&gateway);
    let [bad, unknown, good] = [(); 3].map(|()| begin(&mut browser, ""));
    provider.behave(|now| now.answer_with("/token", Raw::Status(500)));
    fixture::assert_refused(&browser.arrive(&bad), 503);
    fixture::assert_refused(&browser.arrive(&unknown.replace("state=", "state=x")), 400);
    fixture::assert_refused(&browser.arrive("/settings/callback/corp"), 400);
    provider.behave(|now| now.answer_well("/token"));
    assert_eq!(browser.arrive(&good).status, 303);
    assert!(is_signed_in(&mut browser));
}

#[test]
fn callback_in_a_signed_in_browser_leads_on() {
    let Setup { gateway, provider, .. } = setup();
    let mut browser = GatewayBrowser::new(&gateway);
    let [late, back] = [(); 2].map(|()| begin(&mut browser, "/settings/sessions"));
    assert_leads_to(&browser.arrive(&back), "/settings/sessions");
    let session = browser.session();
    // Reloaded, also by a bookmark; and one of another browser, which chooses no page here.
    assert_leads_to(&browser.arrive(&back), "/settings/keys");
    assert_leads_to(&browser.arrive("/settings/callback/corp"), "/settings/keys");
    let of_other = begin(&mut GatewayBrowser::new(&gateway), "/settings/sessions");
    assert_leads_to(&browser.arrive(&of_other), "/settings/keys");
    provider.behave(|now| now.answer_with("/token", Raw::Status(500)));
    assert_leads_to(&browser.arrive(&late), "/settings/sessions");
    assert_eq!(browser.session(), session);
    assert!(is_signed_in(&mut browser));
    // Without the session, each is refused as before.
    browser.plant(SESSION, Token::generate().unwrap().expose());
    fixture::assert_refused(&browser.arrive(&back), 400);
}

#[test]
fn another_person_who_signs_in_by_another_tab_replaces_the_session() {
    let Setup { gateway, provider, .. } = setup();
    let mut browser = GatewayBrowser::new(&gateway);
    let [first, second] = [(); 2].map(|()| begin(&mut browser, ""));
    assert_eq!(browser.arrive(&first).status, 303);
    let session = browser.session();
    provider.behave(|now| now.claims = Box::new(|claims| claims["sub"] = json!("subject-2")));
    assert_eq!(browser.arrive(&second).status, 303);
    assert_ne!(browser.session(), session, "the first person's session stayed");
    assert_eq!(sessions(&gateway).len(), 1);
    // An error about the person is shown, although the browser is signed in.
    let stranger = begin(&mut browser, "");
    provider.behave(|now| now.claims = Box::new(|claims| claims["email_verified"] = json!(false)));
    fixture::assert_refused(&browser.arrive(&stranger), 403);
}

#[test]
fn sign_in_cookies_of_a_browser_are_bounded() {
    let Setup { gateway, provider: _provider, .. } = setup();
    let mut browser = GatewayBrowser::new(&gateway);
    for n in 0..40 {
        browser.plant(&format!("{SIGN_IN}-{n}"), Token::generate().unwrap().expose());
    }
    let back = begin(&mut browser, "");
    let kept = browser.sign_in_cookies();
    assert!(kept.len() <= 17 && kept.iter().all(|(name, _)| *name != format!("{SIGN_IN}-0")), "{}", kept.len());
    assert_eq!(browser.arrive(&back).status, 303);
}
