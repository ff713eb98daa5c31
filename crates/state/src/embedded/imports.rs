//! Records of another state as SQL: each is checked and written in one transaction, like a change.

use rusqlite::{Connection, params};

use super::directory::Directory;
use super::key::Usage;
use super::sql::{execute, exists};
use super::{budgets, federation, key_actors, key_creation, key_rows, management_tokens, org_rows, user_rows};
use crate::bucket::Bucket;
use crate::import::Import;
use crate::{ChangeError, FederationRule, Key, KeyExport};
use domain::clock;
use domain::identity::{OrgId, UserId};
use domain::key::{KeyDigest, KeyId};
use domain::quota::Quota;

/// Checks an import and writes it, but for the usage of a new key, which is returned with its row: the caller writes it
/// with that of others. After an error the caller undoes what was written.
pub(super) fn write(
    sql: &Connection,
    import: &Import,
    directory: &Directory,
) -> Result<Option<(u32, Usage)>, ChangeError> {
    if let Import::Key(export) = import {
        return create_key(sql, export, directory.quota_of(&export.key));
    }
    write_whole(sql, import).map(|()| None)
}

fn write_whole(sql: &Connection, import: &Import) -> Result<(), ChangeError> {
    match import {
        Import::Org(org) => org_rows::create(sql, org),
        Import::User { user, creation, .. } => {
            require_org(sql, user.org)?;
            user_rows::create(sql, user)?;
            creation.map_or(Ok(()), |creation| key_creation::write(sql, user.id, &creation))
        }
        Import::Key(_) => unreachable!("written above"),
        Import::Digest(claim) => add_digest(sql, claim.key, &claim.digest),
        Import::Rule { rule, .. } => create_rule(sql, rule),
        Import::Token { token, now } => management_tokens::create(sql, token, *now),
        Import::Spent { spent, .. } => budgets::import(sql, spent),
    }
}

/// Writes a key of this quota in force, and returns its row and its usage; none when the usage is that of a key without
/// an entry.
fn create_key(sql: &Connection, export: &KeyExport, quota: Quota) -> Result<Option<(u32, Usage)>, ChangeError> {
    let KeyExport { key, digest, previous, replaced, actors, .. } = export;
    require_owner(sql, key.org, key.user)?;
    key_rows::create(sql, key, digest)?;
    key_actors::record_all(sql, key.id, actors)?;
    let row = u32::try_from(sql.last_insert_rowid()).map_err(|_| ChangeError::Taken("row"))?;
    if let Some(previous) = previous {
        execute(sql, "UPDATE keys SET previous = ?2 WHERE rowid = ?1", params![row, previous.as_bytes()])?;
    }
    for digest in previous.iter().chain(replaced) {
        add_digest(sql, key.id, digest)?;
    }
    let usage = usage_of(export, quota);
    Ok((usage.bucket != Bucket::full(quota, key.created)).then_some((row, usage)))
}

fn create_rule(sql: &Connection, rule: &FederationRule) -> Result<(), ChangeError> {
    require_owner(sql, rule.org, rule.user)?;
    federation::insert_rule(sql, rule)
}

fn require_org(sql: &Connection, org: OrgId) -> Result<(), ChangeError> {
    let found = exists(sql, "SELECT 1 FROM orgs WHERE id = ?1", [org.to_string()])?;
    if found { Ok(()) } else { Err(ChangeError::NoOrg(org)) }
}

/// Requires a user of the organization, removed or not.
fn require_owner(sql: &Connection, org: OrgId, user: UserId) -> Result<(), ChangeError> {
    let owner = "SELECT 1 FROM users WHERE id = ?1 AND org = ?2";
    let found = exists(sql, owner, [user.to_string(), org.to_string()])?;
    if found { Ok(()) } else { Err(ChangeError::NoUser(user)) }
}

fn add_digest(sql: &Connection, key: KeyId, digest: &KeyDigest) -> Result<(), ChangeError> {
    key_rows::require_new_digest(sql, digest)?;
    execute(sql, "INSERT INTO replaced VALUES (?1, ?2)", params![digest.as_bytes(), key.as_str()]).map(drop)
}

/// The usage of a key that is created, measured in the effective quota.
fn usage_of(export: &KeyExport, quota: Quota) -> Usage {
    let Key { last_used, uses, .. } = export.key;
    Usage { bucket: export.bucket_under(quota, clock::now()), per_us: quota.per_micros(), last_used, uses }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::SpentExport;
    use crate::embedded::fixture::Fixture;
    use crate::embedded::sql::integer;
    use crate::import::ImportError;
    use domain::budget::BudgetSubject;
    use domain::clock::Micros;

    fn imports(exports: &[KeyExport]) -> Vec<Import> {
        exports.iter().map(|export| Import::Key(Box::new(export.clone()))).collect()
    }

    /// Imports that the writer commits together: it is busy until all of them wait.
    async fn import_together(fixture: &Fixture, exports: &[KeyExport]) -> Result<(), ImportError> {
        let writer = &fixture.state.writer;
        let busy = writer.read(|_| {
            thread::sleep(Duration::from_millis(50));
            Ok(())
        });
        tokio::join!(busy, fixture.state.import(imports(exports))).1
    }

    #[tokio::test]
    async fn usage_of_imported_keys_is_there_after_a_start() {
        let fixture = Fixture::new().await;
        let now = clock::now();
        let exports: Vec<KeyExport> = (0..250_u8)
            .map(|number| {
                let mut export = fixture.export(KeyDigest::of(&[number]));
                if number % 3 == 0 {
                    export.bucket = export.bucket.refill(export.quota, now).charge(export.quota, 2);
                    (export.key.uses, export.key.last_used) = (5 + u64::from(number), Some(now));
                }
                export
            })
            .collect();
        import_together(&fixture, &exports).await.unwrap();
        let fixture = fixture.reopen().await;
        for export in &exports {
            let stored = fixture.state.imported_key(export.key.id).await.unwrap();
            let usage = |export: &KeyExport| (export.bucket, export.key.uses, export.key.last_used);
            assert_eq!(usage(&stored), usage(export));
        }
    }

    #[tokio::test]
    async fn imported_keys_that_were_never_used_have_no_blocks() {
        let fixture = Fixture::new().await;
        let exports = [b"one", b"two"].map(|text| fixture.export(KeyDigest::of(text)));
        import_together(&fixture, &exports).await.unwrap();
        let blocks = "SELECT count(*) FROM usage";
        let blocks = fixture.state.writer.read(|sql| sql.query_row(blocks, [], |row| row.get::<_, i64>(0)));
        assert_eq!(blocks.await.unwrap(), 0);
    }

    #[tokio::test]
    async fn later_spending_of_an_import_is_committed_and_in_force() {
        let fixture = Fixture::new().await;
        let Key { id, org, .. } = fixture.key();
        let (tag, subject) = (id.tag(), BudgetSubject::Org(org));
        let counters = [(2, 5, (2, 5)), (1, 9, (2, 5)), (2, 4, (2, 5)), (2, 9, (2, 9)), (3, 0, (3, 0))];
        for (start, units, expected) in counters {
            let spent = SpentExport { subject, org, start: Micros(start), units };
            fixture.state.import(vec![Import::Spent { tag, spent }]).await.unwrap();
            let row = "SELECT start, reserved FROM budgets";
            let row = fixture.state.writer.read(|sql| {
                sql.query_row(row, [], |row| Ok((row.get::<_, i64>("start")?, row.get::<_, i64>("reserved")?)))
            });
            let memory = fixture.state.spending_of(subject);
            assert_eq!(row.await.unwrap(), expected);
            assert_eq!((integer(memory.start.0), integer(memory.used())), expected);
        }
    }

    #[tokio::test]
    async fn import_that_fails_leaves_those_that_are_committed_with_it() {
        let fixture = Fixture::new().await;
        let exports = [b"one", b"one", b"two"].map(|text| fixture.export(KeyDigest::of(text)));
        let result = import_together(&fixture, &exports).await;
        assert!(matches!(result, Err(ImportError::Conflict)), "{result:?}");
        let fixture = fixture.reopen().await;
        let mut there = Vec::new();
        for export in &exports {
            there.push(fixture.state.key(export.key.id).await.is_some());
        }
        assert_eq!(there, [true, false, true]);
    }
}
