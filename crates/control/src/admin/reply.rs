//! Replies of the admin socket, which are also what `--json` prints. Times are RFC 3339, UTC.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::management::{
    AcceptedState, ActivityReport, Explanation, FederationRule, Key, Link, NewKey, NewToken, Org, Session, Token,
    UsePage, User,
};
use domain::key::KeyId;
use domain::page::Page;

/// Reply to an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
#[allow(missing_docs, reason = "each field is what its type says")]
pub enum Reply {
    /// An organization, as it is now.
    Org { org: Org },
    /// Organizations, in the order of their creation.
    Orgs(Page<Org>),
    /// A user, as it is now.
    User { user: User },
    /// Users, in the order of their creation.
    Users(Page<User>),
    /// A key, as it is now.
    Key { key: Key },
    /// Keys, in the order of their creation.
    Keys(Page<Key>),
    /// Keys by the SHA-256 that they have or had; those that no key has are left out.
    FoundKeys { found: BTreeMap<String, KeyId> },
    /// A key with a new secret: the only time that it is shown.
    NewKey(NewKey),
    /// Requests with a key, newest first.
    #[serde(rename = "requests")]
    Uses(UsePage),
    /// Activity of each key in the last day.
    Activity(ActivityReport),
    /// A sign-in link.
    Link { link: Link },
    /// A web session that was ended.
    Session { session: Session },
    /// Web sessions, oldest first.
    Sessions(Page<Session>),
    /// A new management token: the only time that it is shown.
    NewToken(NewToken),
    /// A management token, as it is now.
    Token { token: Token },
    /// Management tokens, oldest first.
    Tokens(Page<Token>),
    /// A state that was accepted.
    AcceptedState { state: AcceptedState },
    /// A federation rule, as it is now, or was before it was removed.
    FederationRule { rule: Box<FederationRule> },
    /// The federation rules of an organization, by their names.
    FederationRules(Page<FederationRule>),
    /// Reason for which a key is, or would be, refused.
    Explanation { explanation: Box<Explanation> },
}

impl Reply {
    /// The reply as JSON, without the tag that tells a client of the socket which reply it is.
    ///
    /// # Errors
    /// None that can happen: all of it is JSON.
    pub fn untagged(&self) -> serde_json::Result<serde_json::Value> {
        let mut value = serde_json::to_value(self)?;
        value.as_object_mut().and_then(|object| object.remove("reply"));
        Ok(value)
    }

    /// The cursor of the next page; none for a last page, and for replies that are no list.
    pub fn next_cursor(&self) -> Option<&str> {
        match self {
            Self::Orgs(page) => page.next.as_deref(),
            Self::Users(page) => page.next.as_deref(),
            Self::Keys(page) => page.next.as_deref(),
            Self::Uses(uses) => uses.page.next.as_deref(),
            Self::Sessions(page) => page.next.as_deref(),
            Self::Tokens(page) => page.next.as_deref(),
            Self::FederationRules(page) => page.next.as_deref(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORG: &str = concat!(
        r#"{"id":"org_0197c1de000070008000000000000001","name":"acme","tag":"aB3","suspended":false,"#,
        r#""concurrent":null,"concurrent_in_force":100,"created":"2026-11-20T21:08:00.000001Z"}"#,
    );
    const ORG_WITH_POLICY: &str = concat!(
        r#"{"id":"org_0197c1de000070008000000000000001","name":"acme","tag":"aB3","suspended":false,"#,
        r#""concurrent":null,"concurrent_in_force":100,"policy":{"max_expiry":"90d","unused_keys":"never"},"#,
        r#""created":"2026-11-20T21:08:00.000001Z"}"#,
    );
    const USER: &str = concat!(
        r#"{"id":"usr_0197c1de000070008000000000000002","kind":"person","email":"ada@example.com","#,
        r#""org":"org_0197c1de000070008000000000000001","permissions":["queries:read"],"#,
        r#""created":"2026-11-20T21:08:00.000002Z","removed":null,"provider":null,"withdrawn":null}"#,
    );
    const SERVICE: &str = concat!(
        r#"{"id":"usr_0197c1de000070008000000000000003","kind":"service","email":"nightly","#,
        r#""org":"org_0197c1de000070008000000000000001","permissions":[],"#,
        r#""created":"2026-11-20T21:08:00.000002Z","removed":null,"provider":null,"withdrawn":null,"#,
        r#""responsible":{"id":"usr_0197c1de000070008000000000000002","email":"ada@example.com","#,
        r#""status":"suspended"}}"#,
    );
    const KEY: &str = concat!(
        r#"{"id":"aB3dE6gH9","name":"laptop","org":"org_0197c1de000070008000000000000001","#,
        r#""user":"usr_0197c1de000070008000000000000002","email":"ada@example.com","status":"user_removed","#,
        r#""limits":{"requests":1000,"per":"1h30m","burst":10,"own":false},"imported":false,"requests":7,"#,
        r#""last_used":"2026-11-20T21:08:00.000003Z","created":"2026-11-20T21:08:00.000004Z","#,
        r#""created_by":{"kind":"user","id":"usr_0197c1de000070008000000000000002","email":"ada@example.com"},"#,
        r#""rotated":null,"rotated_by":null,"previous_until":null,"revoked":"2026-11-20T21:08:00.000005Z","#,
        r#""revoked_by":{"kind":"operator","name":"unix:ada(1000)"},"marks":[]}"#,
    );
    const SESSION: &str = concat!(
        r#"{"id":"ses_0197c1de000070008000000000000003","email":"ada@example.com","#,
        r#""org":"org_0197c1de000070008000000000000001","orgs":["org_0197c1de000070008000000000000001"],"#,
        r#""provider":"corp","created":"2026-11-20T21:08:00.000000Z","seen":"2026-11-20T21:09:00.000000Z","#,
        r#""expires":"2026-11-21T21:08:00.000000Z","ip":"192.0.2.1","user_agent":null}"#,
    );
    const STANDING: &str = concat!(
        r#"{"remaining":0,"burst":10,"next_token":"2026-11-20T21:08:30.000000Z","full":null,"in_flight":1,"#,
        r#""concurrent":100}"#,
    );
    const ACTIVITY: &str = concat!(
        r#"{"hours":[{"start":"2026-11-20T21:00:00.000000Z","requests":2,"refusals":1}],"#,
        r#""last":{"id":"0197c1de-0000-7000-8000-000000000004","time":"2026-11-20T21:08:00.000000Z","#,
        r#""ip":"192.0.2.1","user_agent":null,"action":"queries","outcome":"completed","status":200},"#,
        r#""last_attempt":null}"#,
    );

    const FLEET: &str = concat!(
        r#"{"scope":"fleet","gateways":[{"gateway":"a","complete_until":"2026-11-20T21:08:00.000000Z","#,
        r#""updated":"2026-11-20T21:08:01.000000Z"}]}"#,
    );

    #[test]
    fn replies_travel_as_the_json_of_the_contract() {
        let link = concat!(
            r#"{"url":"https://gateway.example/link/x","email":"ada@example.com","#,
            r#""expires":"2026-11-20T21:13:00.000000Z"}"#,
        );
        let of_key = format!(r#""verdict":"no","key":{KEY},"user":{USER},"org":{ORG}"#);
        let explanation = format!(r#"{{{of_key},"standing":{STANDING}}}"#);
        for json in [
            format!(r#"{{"reply":"org","org":{ORG}}}"#),
            format!(r#"{{"reply":"orgs","items":[{ORG},{ORG_WITH_POLICY}],"nextCursor":"cursor"}}"#),
            format!(r#"{{"reply":"user","user":{USER}}}"#),
            format!(r#"{{"reply":"users","items":[{USER},{SERVICE}]}}"#),
            format!(r#"{{"reply":"key","key":{KEY}}}"#),
            format!(r#"{{"reply":"keys","items":[{KEY}]}}"#),
            format!(r#"{{"reply":"new_key","api_key":"sk_live_x","key":{KEY}}}"#),
            r#"{"reply":"requests","items":[],"nextCursor":"cursor","gateway":"gateway-1"}"#.to_owned(),
            format!(r#"{{"reply":"activity","keys":{{"aB3dE6gH9":{ACTIVITY}}},"gateway":"gateway-1"}}"#),
            r#"{"reply":"requests","items":[],"gateway":"a","view":{"scope":"gateway","reason":"unavailable"}}"#
                .to_owned(),
            format!(r#"{{"reply":"activity","keys":{{}},"gateway":"gateway-1","view":{FLEET}}}"#),
            format!(r#"{{"reply":"link","link":{link}}}"#),
            format!(r#"{{"reply":"session","session":{SESSION}}}"#),
            format!(r#"{{"reply":"sessions","items":[{SESSION}]}}"#),
            [r#"{"reply":"explanation","explanation":"#, &explanation, "}"].concat(),
        ] {
            let reply: Reply = serde_json::from_str(&json).unwrap();
            assert_eq!(serde_json::to_string(&reply).unwrap(), json);
        }
    }

    #[test]
    fn replies_are_shown_without_their_tag() {
        let org: Org = serde_json::from_str(ORG).unwrap();
        let key: Key = serde_json::from_str(KEY).unwrap();
        let json = |reply: Reply| reply.untagged().unwrap().to_string();
        assert!(json(Reply::Org { org: org.clone() }).starts_with(r#"{"org":{"#));
        assert!(json(Reply::Orgs(Page { items: vec![org], next: None })).starts_with(r#"{"items":[{"#));
        assert!(json(Reply::Keys(Page { items: vec![key], next: None })).starts_with(r#"{"items":[{"#));
    }
}
