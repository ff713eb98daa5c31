//! Two credentials in any two places are refused, in random heads over HTTP/1.1 and HTTP/2; one alone is admitted, and
//! no key reaches the upstream from any place.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2::SendRequest;

use super::{SPELLINGS, assert_unseen, start};
use crate::support::{Client, Random, Upstream, over_http2};

/// Heads over each of the two protocols.
const HEADS: u64 = 1500;

/// Fields of a random head, in the order in which they are sent, and the number of those that carry a credential.
fn random_fields(random: &mut Random, key: &str) -> (Vec<(String, String)>, usize) {
    let own =
        [("accept", "x/y"), ("x-api", "1"), ("api-key", "of the upstream"), ("x-api-keys", "2"), ("cookie", "a=b")];
    let places = 1 + random.index(3);
    let mut fields: Vec<(String, String)> = (0..places).map(|_| random_credential(random, key)).collect();
    for (name, value) in own {
        if random.below(2) == 0 {
            let place = random.index(fields.len() + 1);
            fields.insert(place, (name.to_owned(), value.to_owned()));
        }
    }
    (fields, places)
}

/// A field that carries the valid key, or, where it may be the second one, something else.
fn random_credential(random: &mut Random, key: &str) -> (String, String) {
    let value = match random.below(8) {
        0 => String::new(),
        1 => "other".to_owned(),
        _ => key.to_owned(),
    };
    match random.index(SPELLINGS.len() + 2) {
        place @ 0..8 => (SPELLINGS[place].to_owned(), value),
        8 => ("authorization".to_owned(), format!("Bearer {value}")),
        _ => ("Authorization".to_owned(), format!("bEARER  {value}")),
    }
}

/// Status that a head with these fields must get.
fn expected(fields: &[(String, String)], places: usize, key: &str) -> u16 {
    let values: Vec<&str> = fields.iter().map(|(_, value)| &**value).collect();
    match places {
        1 if values.iter().any(|value| value.ends_with(key)) => 200,
        1 if values.iter().any(|value| value.ends_with("other")) => 401,
        _ => 400,
    }
}

#[test]
fn two_credentials_in_any_two_places_are_refused() {
    let upstream = Upstream::start();
    let (gateway, key) = start(&upstream).and_secret();
    let mut random = Random::new(32);
    let mut client = Client::connect(gateway.address);
    let mut seen = [0; 3];
    for _ in 0..HEADS {
        let (fields, places) = random_fields(&mut random, &key);
        let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!("GET / HTTP/1.1\r\nHost: gateway.test\r\n{lines}\r\n");
        let status = client.send(&head).response().status;
        assert_eq!(status, expected(&fields, places, &key), "{head}");
        seen[usize::from(status == 401) + 2 * usize::from(status == 400)] += 1;
    }
    over_http2(gateway.address, async |mut sender: SendRequest<Full<Bytes>>| {
        for _ in 0..HEADS {
            let (fields, places) = random_fields(&mut random, &key);
            let request = Request::get("http://gateway.test/");
            let request = fields.iter().fold(request, |request, (name, value)| request.header(name, value));
            sender.ready().await.unwrap();
            let response = sender.send_request(request.body(Full::default()).unwrap()).await.unwrap();
            assert_eq!(response.status(), expected(&fields, places, &key), "{fields:?}");
        }
    });
    assert!(seen.iter().all(|count| *count > 10), "{seen:?}: admitted, unknown, refused");
    assert_unseen(&upstream, &key);
}
