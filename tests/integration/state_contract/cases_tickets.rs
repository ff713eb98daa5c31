//! Tickets: handed out once, and not after their expiry.

use std::time::Duration;

use domain::clock::{self, Micros};
use domain::identity::OrgId;
use domain::session::{Token, TokenDigest};
use state::{Change, ChangeError, State, TicketSource};

use super::runtime::block_on;

pub(super) async fn put(state: &State, content: &[u8], expires: Micros) -> TokenDigest {
    put_by(state, TicketSource::Operator, content, expires).await
}

pub(super) async fn put_by(state: &State, source: TicketSource, content: &[u8], expires: Micros) -> TokenDigest {
    let digest = Token::generate().unwrap().digest();
    state.change(Change::PutTicket { digest, content: content.to_vec(), expires, source }).await.unwrap();
    digest
}

pub(super) async fn take(state: &State, digest: &TokenDigest, now: Micros) -> Option<Vec<u8>> {
    state.take_ticket(digest, now).await.unwrap()
}

pub(super) async fn ticket_is_taken_once(state: &State) {
    let (now, content) = (clock::now(), [0, 255, b'"', b'\n', 0x80]);
    let [digest, other] = [put(state, &content, soon(now)).await, put(state, b"", soon(now)).await];
    assert_eq!(take(state, &digest, now).await.as_deref(), Some(&content[..]));
    assert_eq!(take(state, &digest, now).await, None);
    assert_eq!(take(state, &Token::generate().unwrap().digest(), now).await, None);
    assert_eq!(take(state, &other, Micros(soon(now).0 - 1)).await.as_deref(), Some(&b""[..]));
}

pub(super) async fn expired_ticket_is_not_handed_out(state: &State) {
    let now = clock::now();
    let digest = put(state, b"late", soon(now)).await;
    assert_eq!(take(state, &digest, soon(now)).await, None);
    assert_eq!(take(state, &digest, now).await, None, "the late attempt has removed it");
    let over = put(state, b"over", now.before(Duration::from_secs(1))).await;
    assert_eq!(take(state, &over, now).await, None);
}

pub(super) async fn ticket_goes_to_one_of_several_takers(state: &State) {
    let now = clock::now();
    for _ in 0..20 {
        let digest = put(state, b"only one", soon(now)).await;
        let got = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..8).map(|_| scope.spawn(|| block_on(take(state, &digest, now)))).collect();
            takers.into_iter().filter_map(|taker| taker.join().unwrap()).count()
        });
        assert_eq!(got, 1);
    }
}

pub(super) async fn announcement_is_claimed_once_and_extended_by_the_same_gateway(state: &State) {
    let (now, org) = (clock::now(), OrgId::generate());
    let claim = async |start: u64, mark: &[u8], expires| {
        state.change(Change::claim(&format!("quota.near {org} {start}"), mark, expires)).await
    };
    for start in [1, 2] {
        claim(start, b"one", soon(now)).await.unwrap();
        assert!(matches!(claim(start, b"other", soon(now)).await, Err(ChangeError::Taken("ticket"))));
        claim(start, b"one", soon(soon(now))).await.expect("a change whose answer was lost is made again");
        assert!(matches!(claim(start, b"other", soon(now)).await, Err(ChangeError::Taken("ticket"))));
    }
}

fn soon(now: Micros) -> Micros {
    now.after(Duration::from_secs(300))
}
