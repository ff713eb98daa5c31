//! Decoding of the events of a use: the one way by which every reader gets them from a line.
//!
//! Lines are compact (`encode`), or JSON: beginnings that were carried on, and records of several refusals.

use std::borrow::Cow;
use std::str;

use uuid::Uuid;

use super::encode;
use super::event::{OutcomeEvent, UseEvent};
use super::line::{self, EventKind};
use super::record::{Outcome, Settled};
use super::{field, frame, id_text, phrases};
use domain::budget::{BudgetTotal, Cost};
use domain::clock::Micros;
use domain::identity::{AuthMethod, UserId};
use domain::management_token::TokenId;
use domain::trace_context::TraceId;

/// Decodes the line of a use, a record, or a beginning that was carried on; `None` when its checksum or
/// its content is wrong.
pub(crate) fn verified_use(line: &[u8]) -> Option<UseEvent<'_>> {
    frame::verify_line(line)?;
    use_event(line)
}

/// Decodes the line of an outcome; `None` when its checksum or its content is wrong.
pub(crate) fn verified_outcome(line: &[u8]) -> Option<OutcomeEvent> {
    frame::verify_line(line)?;
    outcome_event(line)
}

/// As [`verified_use`], for a line whose checksum is known to be right.
pub(crate) fn use_event(line: &[u8]) -> Option<UseEvent<'_>> {
    if frame::is_json(line) {
        return serde_json::from_slice(line).ok();
    }
    let mut fields = Fields::of_line(line)?;
    let e = line::event_kind(line).filter(|kind| *kind != EventKind::Outcome)?;
    let begun = fields.use_event(e)?;
    if line.first() == Some(&b'c') {
        let actor = Some(fields.text()?);
        return Some(UseEvent { actor, subject: fields.user()?, token_id: fields.token_id()?, ..begun });
    }
    if e == EventKind::Use {
        let trace_id = fields.trace_id();
        return Some(UseEvent { trace_id, budget: fields.budget_total(), ..begun });
    }
    let OutcomeEvent { outcome, status, duration_us, request_bytes, response_bytes, .. } = fields.end(begun.id)?;
    let trace_id = fields.trace_id();
    Some(UseEvent { outcome: Some(outcome), status, duration_us, request_bytes, response_bytes, trace_id, ..begun })
}

/// As [`verified_outcome`], for a line whose checksum is known to be right.
pub(crate) fn outcome_event(line: &[u8]) -> Option<OutcomeEvent> {
    let mut fields = Fields::of_line(line)?;
    (line::event_kind(line)? == EventKind::Outcome).then_some(())?;
    let id = Uuid::from_u128(id_text::decode(fields.next()?)?);
    let ended = fields.end(id)?;
    Some(OutcomeEvent { settled: fields.settled(), ..ended })
}

/// The fields of a compact line after its kind.
struct Fields<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    fn of_line(line: &'a [u8]) -> Option<Self> {
        let mut fields = Self { rest: Some(frame::body_of(line)?) };
        fields.next()?;
        Some(fields)
    }

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let end = memchr::memchr(b'\t', rest);
        self.rest = end.map(|end| &rest[end + 1..]);
        Some(end.map_or(rest, |end| &rest[..end]))
    }

    fn use_event(&mut self, e: EventKind) -> Option<UseEvent<'a>> {
        let id = id_text::decode(self.next()?)?;
        let (time, number) = (self.time(id)?, self.number()?);
        let (provisional, cost) = self.flags()?;
        Some(UseEvent {
            e,
            id: Uuid::from_u128(id),
            time,
            number,
            provisional,
            cost,
            budget: None,
            auth_method: self.auth_method()?,
            key_id: self.optional(|key| str::from_utf8(key).ok()?.parse().ok())?,
            user_id: self.user()?,
            org_id: self.optional(|org| Some(id_text::decode(org)?.to_be_bytes().into()))?,
            ip: self.optional(|ip| str::from_utf8(ip).ok()?.parse().ok())?,
            user_agent: self.optional(|agent| match str::from_utf8(agent).ok()? {
                field::EMPTY_TEXT => Some(Cow::Borrowed("")),
                agent => phrases::expand(agent),
            })?,
            action: self.text()?,
            method: self.text()?,
            path: self.text()?,
            actor: None,
            subject: None,
            token_id: None,
            outcome: None,
            status: None,
            duration_us: None,
            request_bytes: None,
            response_bytes: None,
            from: None,
            count: None,
            last: None,
            addresses: None,
            ips: Vec::new(),
            trace_id: None,
        })
    }

    fn end(&mut self, id: Uuid) -> Option<OutcomeEvent> {
        Some(OutcomeEvent {
            id,
            outcome: Outcome::from_name(str::from_utf8(self.next()?).ok()?)?,
            status: self.number()?.map(u16::try_from).transpose().ok()?,
            duration_us: self.number()?,
            request_bytes: self.number()?,
            response_bytes: self.number()?,
            settled: None,
        })
    }

    /// The next field; inside, `None` when it is empty.
    fn optional<T>(&mut self, parse: impl FnOnce(&'a [u8]) -> Option<T>) -> Option<Option<T>> {
        match self.next()? {
            b"" => Some(None),
            field => parse(field).map(Some),
        }
    }

    fn user(&mut self) -> Option<Option<UserId>> {
        self.optional(|user| Some(id_text::decode(user)?.to_be_bytes().into()))
    }

    fn number(&mut self) -> Option<Option<u64>> {
        self.optional(|number| str::from_utf8(number).ok()?.parse().ok())
    }

    /// The flags of a use: admitted while the shared state was away; and its cost, if that is not one.
    fn flags(&mut self) -> Option<(bool, Option<Cost>)> {
        let flags = self.next()?;
        let rest = flags.strip_prefix(b"p");
        let cost = rest.unwrap_or(flags);
        if cost.is_empty() {
            return Some((rest.is_some(), None));
        }
        let metered = cost.strip_prefix(b"m");
        let number = str::from_utf8(metered.unwrap_or(cost)).ok()?.parse().ok()?;
        let cost = if metered.is_some() { Cost::at_most(number) } else { Cost::fixed(number) };
        Some((rest.is_some(), Some(cost)))
    }

    fn text(&mut self) -> Option<Cow<'a, str>> {
        str::from_utf8(self.next()?).ok().map(Cow::Borrowed)
    }

    fn time(&mut self, id: u128) -> Option<Micros> {
        let since: i64 = str::from_utf8(self.next()?).ok()?.parse().ok()?;
        Some(Micros(encode::time_in_id(id).0.wrapping_add(since.cast_unsigned())))
    }

    /// The id of the trace, which lines of untraced requests do not have.
    fn trace_id(&mut self) -> Option<TraceId> {
        TraceId::from_bits(id_text::decode(self.next()?)?)
    }

    /// The total of a budget, which lines of requests without one do not have.
    fn budget_total(&mut self) -> Option<BudgetTotal> {
        str::from_utf8(self.next()?).ok()?.parse().ok()
    }

    /// The settlement of a budget, which most outcomes do not have.
    fn settled(&mut self) -> Option<Settled> {
        let cost = self.number()??;
        Some(Settled { cost, returned: self.budget_total()? })
    }

    /// The id of the token, which lines of changes by people do not have.
    fn token_id(&mut self) -> Option<Option<TokenId>> {
        match self.next() {
            None | Some(b"") => Some(None),
            Some(id) => str::from_utf8(id).ok()?.parse().ok().map(Some),
        }
    }

    fn auth_method(&mut self) -> Option<AuthMethod> {
        let letter = self.next()?;
        AuthMethod::ALL.into_iter().find(|method| field::auth_letter(*method).as_bytes() == letter)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::audit::format::encode::{ChangeLine, UseLine};
    use crate::audit::format::escape::{self, escape_capped};
    use crate::audit::format::frame::Line;
    use crate::audit::format::record::{ChangeUse, Use, UseEnd};
    use domain::budget::BudgetSubject;

    fn line_of(line: &impl Line, n: u64) -> Vec<u8> {
        let mut out = Vec::new();
        line.write_line(n, &mut out);
        assert_eq!(out.pop(), Some(b'\n'));
        assert!(!out.contains(&b'\n'));
        out
    }

    fn any_end() -> impl Strategy<Value = UseEnd> {
        let outcomes: Vec<Outcome> = Outcome::all().collect();
        (prop::sample::select(outcomes), any::<Option<u16>>(), any::<[u64; 3]>()).prop_map(|(outcome, status, n)| {
            UseEnd { outcome, status, duration_us: n[0], request_bytes: n[1], response_bytes: n[2] }
        })
    }

    /// Texts of a request: any bytes, or characters that matter to the format.
    fn any_text() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            prop::collection::vec(prop::sample::select(b"\\\t\n\r\"{} ,u-p\x1b%".to_vec()), 0..40),
            ".{0,10}".prop_map(|text| format!("Mozilla/5.0 (X11; Linux x86_64) {text}").into_bytes()),
        ]
    }

    fn total_of((org, start, units): ([u8; 16], u32, u64)) -> BudgetTotal {
        let start = Micros(u64::from(start) * 1_000_000);
        BudgetTotal { subject: BudgetSubject::Org(org.into()), start, units }
    }

    type Caller = (Option<[u8; 16]>, Option<[u8; 16]>, Option<[u8; 9]>, AuthMethod);

    fn any_caller() -> impl Strategy<Value = Caller> {
        let method = prop::sample::select(AuthMethod::ALL.to_vec());
        (any::<Option<[u8; 16]>>(), any::<Option<[u8; 16]>>(), any::<Option<[u8; 9]>>(), method)
    }

    proptest! {
        #[test]
        fn use_comes_back_as_it_was_written(
            (id, at_id, time, number, n) in any::<(u128, bool, u64, Option<u64>, u64)>(),
            (user, org, key, auth_method) in any_caller(),
            (ip, provisional, trace) in any::<(Option<IpAddr>, bool, Option<u128>)>(),
            cost in (1_u32..2_000_000_000, any::<bool>()),
            total in prop::option::of(any::<([u8; 16], u32, u64)>()),
            (agent, action, path) in (prop::option::of(any_text()), any_text(), any_text()),
            end in prop::option::of(any_end()),
        ) {
            let [action, path] = [action, path].map(|text| String::from_utf8_lossy(&text).into_owned());
            let time = if at_id { encode::time_in_id(id).0 + time % 2000 } else { time };
            let cost = if cost.1 { Cost::at_most(cost.0) } else { Cost::fixed(cost.0) };
            let key = key.map(|key| key.map(|byte| b"09AZaz"[usize::from(byte) % 6]));
            let opening = Use {
                id: Uuid::from_u128(id),
                time: Micros(time),
                number,
                key_id: key.map(|key| str::from_utf8(&key).unwrap().parse().unwrap()),
                user_id: user.map(Into::into),
                org_id: org.map(Into::into),
                auth_method,
                ip,
                user_agent: agent.as_deref(),
                action: &action,
                method: "GET",
                path: &path,
                provisional,
                cost,
                budget: total.filter(|_| end.is_none()).map(total_of),
                trace_id: trace.and_then(TraceId::from_bits),
            };
            let line = match end {
                None => line_of(&UseLine::of_use(&opening, None), n),
                Some(end) => line_of(&UseLine::of_record(&opening, end), n),
            };
            prop_assert_eq!(frame::verify_line(&line), Some(n));
            prop_assert_eq!(line::event_id(&line), Some(id));
            let kind = if end.is_some() { EventKind::Record } else { EventKind::Use };
            prop_assert_eq!(line::event_kind(&line), Some(kind));
            let event = verified_use(&line).unwrap();
            let ended = event.outcome.map(|outcome| (outcome, event.status, event.duration_us, event.request_bytes,
                event.response_bytes));
            let expected = end.map(|end| (end.outcome, end.status, Some(end.duration_us), Some(end.request_bytes),
                Some(end.response_bytes)));
            prop_assert_eq!(ended, expected);
            prop_assert_eq!((event.e, event.id, event.time, event.number), (kind, opening.id, opening.time, number));
            prop_assert_eq!((event.key_id, event.user_id, event.org_id), (opening.key_id, opening.user_id,
                opening.org_id));
            prop_assert_eq!((event.auth_method, event.ip, event.provisional), (auth_method, ip, provisional));
            prop_assert_eq!(event.cost, Some(cost).filter(|cost| cost.units() > 1));
            prop_assert_eq!(event.budget, opening.budget);
            prop_assert_eq!(event.trace_id, opening.trace_id);
            let agent = agent.as_ref().map(|agent| escape_capped(agent, escape::USER_AGENT_CAP));
            prop_assert_eq!(event.user_agent, agent);
            prop_assert_eq!(event.action, escape_capped(action.as_bytes(), escape::ACTION_CAP));
            prop_assert_eq!(event.path, escape_capped(path.as_bytes(), escape::PATH_CAP));
            prop_assert_eq!(event.method, "GET");
        }

        #[test]
        fn change_comes_back_as_it_was_written(
            subject in any::<Option<[u8; 16]>>(),
            user in any::<Option<[u8; 16]>>(),
            token in prop::option::of("[0-9A-Za-z]{10}"),
            actor in any_text(),
            n: u64,
        ) {
            let actor = String::from_utf8_lossy(&actor).into_owned();
            let opening = Use { number: None, user_id: user.map(Into::into), ..long_opening() };
            let token_id = token.map(|id| id.parse().unwrap());
            let change = ChangeUse { opening, actor: &actor, subject: subject.map(Into::into), token_id };
            let line = line_of(&ChangeLine::new(&change), n);
            prop_assert_eq!(frame::verify_line(&line), Some(n));
            prop_assert_eq!(line::event_id(&line), Some(change.opening.id.as_u128()));
            prop_assert_eq!(line::event_kind(&line), Some(EventKind::Use));
            let event = verified_use(&line).unwrap();
            prop_assert_eq!(event.actor.as_deref(), Some(&*escape_capped(actor.as_bytes(), escape::ACTOR_CAP)));
            prop_assert_eq!((event.subject, event.user_id), (change.subject, change.opening.user_id));
            prop_assert_eq!(event.token_id, token_id);
            prop_assert_eq!((event.path, event.outcome), (Cow::Borrowed("/api/queries"), None));
        }

        #[test]
        fn outcome_comes_back_as_it_was_written(id: u128, end in any_end(), is_bare: bool, n: u64) {
            let id = Uuid::from_u128(id);
            let written = if is_bare { OutcomeEvent::bare(id, end.outcome) } else { OutcomeEvent::new(id, end) };
            let line = line_of(&written, n);
            prop_assert_eq!(frame::verify_line(&line), Some(n));
            prop_assert_eq!(line::event_kind(&line), Some(EventKind::Outcome));
            prop_assert_eq!(line::event_id(&line), Some(id.as_u128()));
            prop_assert_eq!(verified_outcome(&line), Some(written));
            prop_assert!(verified_use(&line).is_none());
        }

        #[test]
        fn any_fields_are_read_or_not_but_do_no_harm(
            kind in prop::sample::select(b"urco".to_vec()),
            fields in prop::collection::vec("[A-Za-z0-9.:\\\\-]{0,22}", 0..22),
        ) {
            let mut line = format!("{}\t{}", char::from(kind), fields.join("\t")).into_bytes();
            frame::finish_compact(&mut line, 0, 1);
            line.pop();
            prop_assert!(verified_use(&line).is_none() || kind != b'o');
            prop_assert!(verified_outcome(&line).is_none() || kind == b'o');
        }
    }

    #[test]
    fn use_and_outcome_in_json_are_no_events() {
        let id = Uuid::nil();
        for event in [
            serde_json::json!({"e": "use", "id": id, "time": 1, "auth_method": "api-key", "action": "a",
                "method": "GET"}),
            serde_json::json!({"e": "outcome", "id": id, "outcome": "completed"}),
        ] {
            let mut line = Vec::new();
            frame::with_serialized(&event, |body| body.write_line(1, &mut line));
            line.pop();
            assert_eq!((line::event_kind(&line), verified_outcome(&line)), (None, None));
        }
    }

    #[test]
    fn use_and_outcome_of_a_browser_take_less_than_250_bytes() {
        let agent =
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36";
        let opening = Use { user_agent: Some(agent.as_bytes()), ..long_opening() };
        let begun = line_of(&UseLine::of_use(&opening, None), 123_456_789);
        let ended = line_of(&OutcomeEvent::new(opening.id, LONG_END), 123_456_790);
        let bytes = begun.len() + ended.len() + 2;
        assert!(bytes < 250, "{bytes}");
        assert_eq!(verified_use(&begun).unwrap().user_agent.as_deref(), Some(agent));
    }

    #[test]
    fn trace_is_one_more_field_at_the_end_of_a_use() {
        let trace_id: TraceId = "4bf92f3577b34da6a3ce929d0e0e4736".parse().unwrap();
        let traced = Use { trace_id: Some(trace_id), ..long_opening() };
        for end in [None, Some(LONG_END)] {
            let line = |opening: &Use<'_>| match end {
                None => line_of(&UseLine::of_use(opening, None), 1),
                Some(end) => line_of(&UseLine::of_record(opening, end), 1),
            };
            let with = line(&traced);
            let without = line(&long_opening());
            assert_eq!(with.len(), without.len() + 23, "a tab and the text of an id");
            let fields = frame::body_of(&without).unwrap();
            assert_eq!(&with[..fields.len()], fields);
            assert_eq!(verified_use(&with).unwrap().trace_id, Some(trace_id));
            assert_eq!(verified_use(&without).unwrap().trace_id, None);
        }
    }

    #[test]
    fn token_is_one_more_field_at_the_end_of_a_change() {
        let line = |auth_method, token_id| {
            let opening = Use { auth_method, method: "ADMIN", number: None, ..long_opening() };
            line_of(&ChangeLine::new(&ChangeUse { opening, actor: "unix:root(0)", subject: None, token_id }), 1)
        };
        // The bytes of lines of changes by people are those of the releases before tokens.
        assert_eq!(
            String::from_utf8_lossy(&line(AuthMethod::AdminSocket, None)),
            "c\tAaH-_9tacPqbvUf14xtyvg\t943\t\t\ta\tmZvzkepCv\tAaH-_9tHcJOIrD3nvO6ByA\tAaH-_9tFceKPSitBR10GFw\t\
             203.0.113.171\t\\D; rv:128.0)\tqueries.list\tADMIN\t/api/queries\tunix:root(0)\t\t1\t3fac7b8e"
        );
        let token_id: TokenId = "AbcDEF1239".parse().unwrap();
        let without = line(AuthMethod::Token, None);
        let with = line(AuthMethod::Token, Some(token_id));
        let fields = frame::body_of(&without).unwrap();
        assert_eq!(frame::body_of(&with), Some(&*[fields, b"\tAbcDEF1239"].concat()));
        let event = verified_use(&with).unwrap();
        assert_eq!((event.auth_method, event.token_id), (AuthMethod::Token, Some(token_id)));
        assert_eq!(verified_use(&without).unwrap().token_id, None);
        for (field, is_read) in [("", true), ("AbcDEF123", false), ("AbcDEF1239\tlater", true)] {
            let mut other = [fields, b"\t", field.as_bytes()].concat();
            frame::finish_compact(&mut other, 0, 1);
            other.pop();
            assert_eq!(verified_use(&other).is_some(), is_read, "{field}");
        }
    }

    const LONG_END: UseEnd = UseEnd {
        outcome: Outcome::Completed,
        status: Some(200),
        duration_us: 12_345,
        request_bytes: 0,
        response_bytes: 4096,
    };

    fn long_opening() -> Use<'static> {
        Use {
            id: "01a1feff-db5a-70fa-9bbd-47f5e31b72be".parse().unwrap(),
            time: Micros(1_795_279_543_130_943),
            number: Some(123_456),
            key_id: Some("mZvzkepCv".parse().unwrap()),
            user_id: Some("usr_01a1feffdb47709388ac3de7bcee81c8".parse().unwrap()),
            org_id: Some("org_01a1feffdb4571e28f4a2b41475d0617".parse().unwrap()),
            auth_method: AuthMethod::ApiKey,
            ip: Some(IpAddr::from([203, 0, 113, 171])),
            user_agent: Some(b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0)"),
            action: "queries.list",
            method: "GET",
            path: "/api/queries",
            provisional: false,
            cost: Cost::ONE,
            budget: None,
            trace_id: None,
        }
    }

    #[test]
    fn use_and_outcome_take_less_than_300_bytes() {
        let opening = long_opening();
        let begun = line_of(&UseLine::of_use(&opening, None), 123_456_789);
        let ended = line_of(&OutcomeEvent::new(opening.id, LONG_END), 123_456_790);
        assert_eq!(
            String::from_utf8_lossy(&begun),
            "u\tAaH-_9tacPqbvUf14xtyvg\t943\t123456\t\tk\tmZvzkepCv\tAaH-_9tHcJOIrD3nvO6ByA\tAaH-_9tFceKPSitBR10GFw\t\
             203.0.113.171\t\\D; rv:128.0)\tqueries.list\tGET\t/api/queries\t123456789\t0bb60763"
        );
        assert_eq!(
            String::from_utf8_lossy(&ended),
            "o\tAaH-_9tacPqbvUf14xtyvg\tcompleted\t200\t12345\t0\t4096\t123456790\t9dc571f4"
        );
        let bytes = begun.len() + ended.len() + 2;
        assert!(bytes < 300, "{bytes}");
        let event = verified_use(&begun).unwrap();
        assert_eq!(event.user_agent.as_deref(), Some("Mozilla/5.0 (X11; Linux x86_64; rv:128.0)"));
    }
}
