//! Last uses of management tokens: the newest one stands, until the token expires.

use std::time::Duration;

use domain::clock::{self, Micros};
use domain::management_token::{PlainToken, TokenId, TokenUse};
use state::{Change, State};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn at(time: Micros, agent: &str) -> TokenUse {
    TokenUse { time, ip: Some([192, 0, 2, 7].into()), user_agent: Some(agent.to_owned()) }
}

async fn store(state: &State, token: TokenId, last: &TokenUse, expires: Micros) {
    state.change(Change::UseToken { token, last: Box::new(last.clone()), expires }).await.unwrap();
}

pub(super) async fn last_use_of_a_token_stands_until_the_token_expires(state: &State) {
    let now = clock::now();
    let [used, gone, unused] = [(); 3].map(|()| PlainToken::generate().unwrap().id());
    let uses = async || state.token_uses(&[used, gone, unused]).await.unwrap();
    assert_eq!(uses().await, [None, None, None]);
    assert_eq!(state.token_uses(&[]).await.unwrap(), []);
    let [first, next] = [at(now.before(SECOND), "first"), at(now, "next \"\u{e4}\"")];
    store(state, used, &first, now.after(HOUR)).await;
    store(state, gone, &first, now.before(SECOND)).await;
    assert_eq!(uses().await, [Some(first.clone()), Some(first), None]);
    store(state, used, &next, now.after(HOUR)).await;
    assert_eq!(uses().await, [Some(next), None, None], "that of the expired token went with the next one");
}
