//! Changes as SQL: each is planned and written in one transaction, whole or not at all.
//!
//! The plans read the file, not the memory: so a change sees the changes before it in the same transaction.

use rusqlite::Connection;

use super::file_records::FileRecords;
use super::{
    federation, key_actors, key_creation, key_policies, key_rows, management_tokens, org_rows, preconditions,
    session_rows, tickets, user_rows,
};
use crate::plan::{self, Planned};
use crate::{Bounds, Change, ChangeError};

/// Plans a change and writes it as it was planned. After an error the caller rolls the savepoint back.
pub(super) fn write(sql: &Connection, change: &Change, bounds: &Bounds) -> Result<Planned, ChangeError> {
    match change {
        Change::ByPerson { person, change } => {
            plan::require_person(*person, change, &FileRecords(sql))?;
            let planned = write(sql, change, bounds)?;
            key_creation::check(sql, *person, change, bounds)?;
            Ok(planned)
        }
        Change::ByActor { actor, is_imported, change } => {
            if let Some(token) = actor.token().filter(|_| !is_imported) {
                management_tokens::require_live(sql, token)?;
            }
            let planned = write(sql, change, bounds)?;
            if let Some(event) = change.key_event() {
                key_actors::record(sql, event, actor)?;
            }
            Ok(planned)
        }
        Change::IfMatch { etag, change } => {
            preconditions::check_etag(sql, change, *etag)?;
            write(sql, change, bounds)
        }
        Change::Once { request, change } => {
            preconditions::write_record(sql, request, change.withdraws())?;
            write(sql, change, bounds)
        }
        Change::ByFederation { exchange, change } => {
            plan::require_service(&exchange.rule, &FileRecords(sql))?;
            let planned = write(sql, change, bounds)?;
            federation::record_exchange(sql, exchange, change)?;
            Ok(planned)
        }
        made => {
            let planned = plan::plan(made, &FileRecords(sql))?;
            write_planned(sql, &planned, bounds)?;
            Ok(planned)
        }
    }
}

fn write_planned(sql: &Connection, planned: &Planned, bounds: &Bounds) -> Result<(), ChangeError> {
    match planned {
        Planned::NewOrg(org) => org_rows::create_new(sql, org),
        Planned::Org(org) => org_rows::update(sql, org),
        Planned::NewUser(user) => user_rows::create(sql, user),
        Planned::User(user) => user_rows::update(sql, user),
        Planned::NewKey(key, digest) => key_rows::create(sql, key, digest),
        Planned::PatchedKey(key, patch) => {
            if patch.policy.is_some() {
                key_policies::write(sql, key.id, key.policy.as_deref())?;
            }
            key_rows::update(sql, key)
        }
        Planned::RevokedKey(key, _) => key_rows::update(sql, key),
        Planned::RotatedKey(key, rotation) => {
            key_rows::replace_digest(sql, key.id, &rotation.digest)?;
            key_rows::update(sql, key)
        }
        Planned::Rule(change) => federation::change_rule(sql, change),
        Planned::NewSession(session, digest) => session_rows::create(sql, session, digest, bounds.sessions_per_person),
        Planned::Session(session) => session_rows::update(sql, session),
        Planned::EndOfSession(session) => session_rows::end(sql, *session),
        Planned::NewToken(token) => management_tokens::create_in_room(sql, token),
        Planned::EndOfToken(token, at) => management_tokens::revoke(sql, *token, *at),
        Planned::UseOfToken(token, last, expires) => management_tokens::write_use(sql, *token, last, *expires),
        Planned::Ticket { digest, content, expires, source } => tickets::put(sql, digest, content, *expires, *source),
    }
}
