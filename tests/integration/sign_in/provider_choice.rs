//! The sign-in page with several providers: those of customers are found by an address, and not listed.

use super::fixture::{self, hostile};
use super::gateway_browser::{GatewayBrowser, refresh, text};
use crate::oidc::hostile::Hostile;
use crate::support::{Gateway, Response, Upstream};

/// A provider of one organization, with this domain.
fn of_customer(name: &str, provider: &Hostile, domains: &str) -> String {
    hostile(name, provider, &format!("only: [{name}]"))
        .replace(", people:", &format!(", domains: [{domains}], people:"))
}

/// Returns whether a page has a button for each of these providers.
fn buttons<const N: usize>(page: &Response, names: [&str; N]) -> [bool; N] {
    names.map(|name| text(page).contains(&format!("Continue with The {name} one")))
}

#[test]
fn providers_of_customers_are_found_by_an_address_and_not_listed() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let providers = [
        hostile("corp", &provider, "only: all"),
        of_customer("acme", &provider, "acme.example, acme.test"),
        of_customer("globex", &provider, ""),
    ];
    let gateway = fixture::gateway(&upstream, &providers);
    let mut visitor = GatewayBrowser::new(&gateway);
    let all = ["corp", "acme", "globex"];
    for page in
        ["/settings/sign-in", "/settings/sign-in?provider=nobody", "/settings/sign-in?return_to=/settings/sessions"]
    {
        let shown = visitor.open(page);
        assert_eq!((shown.status, buttons(&shown, all)), (200, [true, false, false]), "{page}");
        assert!(!text(&shown).contains("acme") && !text(&shown).contains("globex"), "{page}: {}", text(&shown));
    }
    let named = visitor.open("/settings/sign-in?provider=globex&return_to=/settings/sessions");
    assert_eq!(buttons(&named, all), [false, false, true]);
    assert!(text(&named).contains("value=\"/settings/sessions\""), "{}", text(&named));

    for email in ["ada@acme.example", "Ada@ACME.test"] {
        let leaving = visitor.submit("/settings/sign-in", &[("email", email), ("return_to", "/settings/sessions")]);
        let url = refresh(&leaving).unwrap_or_else(|| panic!("{email}: {}", text(&leaving)));
        assert!(url.as_str().starts_with(&provider.issuer()) && url.as_str().contains("callback%2Facme"), "{url}");
    }
    for email in ["ada@other.example", "ada@sub.acme.example", "acme.example", "", "<script>@x"] {
        let unknown = visitor.submit("/settings/sign-in", &[("email", email)]);
        assert_eq!(unknown.status, 422, "{email}");
        assert!(text(&unknown).contains("No sign-in is known for this address"), "{email}");
        assert_eq!(buttons(&unknown, all), [true, false, false], "{email}");
    }
}

#[test]
fn addresses_that_are_tried_out_count_as_attempts() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let providers = [of_customer("acme", &provider, "acme.example"), of_customer("globex", &provider, "")];
    let session = fixture::session(&providers, "");
    let limits = "limits: { sign_ins: { requests: 3, per: 1h, burst: 3 } }\n";
    let gateway = Gateway::with(&[upstream.address], &format!("{session}{limits}"));
    let mut visitor = GatewayBrowser::new(&gateway);
    let tried = ["a@a.example", "a@acme.example", "a@b.example", "a@acme.example", "a@c.example"];
    let statuses = tried.map(|email| visitor.submit("/settings/sign-in", &[("email", email)]).status);
    assert_eq!(statuses, [422, 200, 422, 429, 429]);
}

#[test]
fn only_provider_has_a_button_and_listed_shows_or_hides_others() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let only = fixture::gateway(&upstream, &[of_customer("acme", &provider, "")]);
    assert_eq!(buttons(&GatewayBrowser::new(&only).open("/settings/sign-in"), ["acme"]), [true]);
    let listed = |text: String, listed: bool| text.replace(", people:", &format!(", listed: {listed}, people:"));
    let providers =
        [listed(hostile("corp", &provider, "only: all"), false), listed(of_customer("acme", &provider, ""), true)];
    let chosen = fixture::gateway(&upstream, &providers);
    let page = GatewayBrowser::new(&chosen).open("/settings/sign-in");
    assert_eq!(buttons(&page, ["corp", "acme"]), [false, true]);
}
