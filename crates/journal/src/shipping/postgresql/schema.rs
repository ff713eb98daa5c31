//! Schema of the records in PostgreSQL.
//!
//! - The columns of `keygate.records` are the fields of an audit record, in the contract's words and text forms.
//! - A record's row is found by its id and time, which never change: delivering it twice changes nothing.
//! - `keygate.checkpoints` has each checkpoint once: found by its tree, size and root, so that a second root of one
//!   size, which no honest journal has, is a second row.
//! - `keygate.journals` has the position of each journal, written in the transaction of its rows.

use platform::postgresql::{Migration, Schema};

/// Name of the schema.
pub(super) const NAME: &str = "keygate";
/// Number of the advisory lock for migrations and partitions: "kg-audit" in ASCII.
pub(super) const LOCK: i64 = 0x6b67_2d61_7564_6974;

/// Schema of the records.
pub const SCHEMA: Schema = Schema {
    name: NAME,
    lock: LOCK,
    migrations: &[TABLES, ACTORS, SUSPENDED_USERS, KEY_POLICIES, TOKENS, COSTS, BUDGETS],
};

/// The records, with an index of the uses in progress and a view for reports; the positions; the signed checkpoints.
const TABLES: Migration = Migration(
    "CREATE TABLE keygate.records (
         id uuid NOT NULL,
         time timestamptz NOT NULL,
         gateway text NOT NULL,
         key_id text,
         user_id text,
         org_id text,
         auth_method text NOT NULL,
         ip inet,
         user_agent text,
         action text NOT NULL,
         method text NOT NULL,
         path text NOT NULL,
         provisional boolean NOT NULL,
         outcome text NOT NULL,
         status integer,
         duration_us bigint,
         request_bytes bigint,
         response_bytes bigint,
         count bigint,
         last_time timestamptz,
         addresses bigint,
         ips inet[],
         trace_id text,
         PRIMARY KEY (id, time)
     ) PARTITION BY RANGE (time);
     CREATE INDEX ON keygate.records (time, id);
     CREATE INDEX ON keygate.records (org_id, time, id) WHERE org_id IS NOT NULL;
     CREATE INDEX ON keygate.records (user_id, time, id) WHERE user_id IS NOT NULL;
     CREATE INDEX ON keygate.records (key_id, time, id) WHERE key_id IS NOT NULL;
     CREATE INDEX ON keygate.records (time, id) WHERE outcome = 'in_progress';
     COMMENT ON TABLE keygate.records IS 'Audit records of all gateways: one row for each use';
     COMMENT ON COLUMN keygate.records.outcome IS 'in_progress until the use has ended';
     COMMENT ON COLUMN keygate.records.count IS 'refusals that the row stands for; NULL is one use';

     CREATE TABLE keygate.journals (
         journal uuid NOT NULL,
         gateway text NOT NULL,
         segment bigint NOT NULL,
         \"offset\" bigint NOT NULL,
         line bigint NOT NULL,
         last_line bigint NOT NULL,
         checksum bigint NOT NULL,
         records bigint NOT NULL,
         complete_until timestamptz NOT NULL,
         updated_at timestamptz NOT NULL DEFAULT now(),
         PRIMARY KEY (journal, gateway)
     );
     COMMENT ON TABLE keygate.journals IS 'Position up to which each journal is in keygate.records';
     COMMENT ON COLUMN keygate.journals.complete_until IS 'the records before this time are in keygate.records';

     CREATE VIEW keygate.audit AS SELECT
         time, id, gateway, org_id, user_id, key_id, auth_method, host(ip) AS ip, user_agent, action, method, path,
         outcome, status, coalesce(count, 1) AS uses, coalesce(last_time, time) AS last_time,
         outcome IN ('revoked', 'expired', 'user_removed', 'org_suspended', 'forbidden', 'not_found', 'rate_limited',
                     'too_many_in_flight') AS refused,
         auth_method <> 'api-key' AND method = 'ADMIN' AS is_change,
         duration_us / 1000.0 AS duration_ms, request_bytes, response_bytes, trace_id
     FROM keygate.records;
     COMMENT ON VIEW keygate.audit IS 'Audit records of all gateways, for reports and panels';

     CREATE TABLE keygate.checkpoints (
         origin text NOT NULL,
         size bigint NOT NULL,
         root text NOT NULL,
         gateway text NOT NULL,
         journal uuid NOT NULL,
         time timestamptz NOT NULL,
         note text NOT NULL,
         received_at timestamptz NOT NULL DEFAULT now(),
         PRIMARY KEY (origin, size, root)
     );
     CREATE INDEX ON keygate.checkpoints (gateway, received_at);
     CREATE INDEX ON keygate.checkpoints (received_at);
     COMMENT ON TABLE keygate.checkpoints
         IS 'Signed checkpoints of all journals, for keygate audit verify --checkpoint';
     COMMENT ON COLUMN keygate.checkpoints.size IS 'lines of the journal that it covers';
     COMMENT ON COLUMN keygate.checkpoints.note IS 'the signed note (C2SP tlog-checkpoint)'",
);

/// Actor and subject of a change. Before, the user of a change through the admin socket was the one acted on.
/// The view is replaced and not made anew, so that those who may read it still may: new columns come last.
const ACTORS: Migration = Migration(
    "ALTER TABLE keygate.records ADD COLUMN actor text, ADD COLUMN subject text;
     COMMENT ON COLUMN keygate.records.actor IS 'who made a change; NULL of a request';
     COMMENT ON COLUMN keygate.records.subject IS 'the user who is acted on by a change';
     UPDATE keygate.records SET subject = user_id, user_id = NULL
         WHERE auth_method = 'admin-socket' AND user_id IS NOT NULL;
     CREATE INDEX ON keygate.records (subject, time, id) WHERE subject IS NOT NULL;

     CREATE OR REPLACE VIEW keygate.audit AS SELECT
         time, id, gateway, org_id, user_id, key_id, auth_method, host(ip) AS ip, user_agent, action, method, path,
         outcome, status, coalesce(count, 1) AS uses, coalesce(last_time, time) AS last_time,
         outcome IN ('revoked', 'expired', 'user_removed', 'org_suspended', 'forbidden', 'not_found', 'rate_limited',
                     'too_many_in_flight') AS refused,
         auth_method <> 'api-key' AND method = 'ADMIN' AS is_change,
         duration_us / 1000.0 AS duration_ms, request_bytes, response_bytes, trace_id, actor, subject
     FROM keygate.records",
);

/// Requests of suspended users are refused ones, too.
const SUSPENDED_USERS: Migration = Migration(
    "CREATE OR REPLACE VIEW keygate.audit AS SELECT
         time, id, gateway, org_id, user_id, key_id, auth_method, host(ip) AS ip, user_agent, action, method, path,
         outcome, status, coalesce(count, 1) AS uses, coalesce(last_time, time) AS last_time,
         outcome IN ('revoked', 'expired', 'user_removed', 'user_suspended', 'org_suspended', 'forbidden', 'not_found',
                     'rate_limited', 'too_many_in_flight') AS refused,
         auth_method <> 'api-key' AND method = 'ADMIN' AS is_change,
         duration_us / 1000.0 AS duration_ms, request_bytes, response_bytes, trace_id, actor, subject
     FROM keygate.records",
);

/// Requests that the policy of a key refuses are refused ones, too.
const KEY_POLICIES: Migration = Migration(
    "CREATE OR REPLACE VIEW keygate.audit AS SELECT
         time, id, gateway, org_id, user_id, key_id, auth_method, host(ip) AS ip, user_agent, action, method, path,
         outcome, status, coalesce(count, 1) AS uses, coalesce(last_time, time) AS last_time,
         outcome IN ('revoked', 'expired', 'user_removed', 'user_suspended', 'key_expired', 'key_disabled',
                     'address_refused', 'org_suspended', 'forbidden', 'not_found', 'rate_limited',
                     'too_many_in_flight') AS refused,
         auth_method <> 'api-key' AND method = 'ADMIN' AS is_change,
         duration_us / 1000.0 AS duration_ms, request_bytes, response_bytes, trace_id, actor, subject
     FROM keygate.records",
);

/// Management token of a change by a program. No row has one before, so that its index is empty where it is made.
const TOKENS: Migration = Migration(
    "ALTER TABLE keygate.records ADD COLUMN token_id text;
     COMMENT ON COLUMN keygate.records.token_id IS 'the management token with which a program made a change';
     CREATE INDEX ON keygate.records (token_id, time, id) WHERE token_id IS NOT NULL;

     CREATE OR REPLACE VIEW keygate.audit AS SELECT
         time, id, gateway, org_id, user_id, key_id, auth_method, host(ip) AS ip, user_agent, action, method, path,
         outcome, status, coalesce(count, 1) AS uses, coalesce(last_time, time) AS last_time,
         outcome IN ('revoked', 'expired', 'user_removed', 'user_suspended', 'key_expired', 'key_disabled',
                     'address_refused', 'org_suspended', 'forbidden', 'not_found', 'rate_limited',
                     'too_many_in_flight') AS refused,
         auth_method <> 'api-key' AND method = 'ADMIN' AS is_change,
         duration_us / 1000.0 AS duration_ms, request_bytes, response_bytes, trace_id, actor, subject,
         token_id
     FROM keygate.records",
);

/// Tokens that a request took. Requests that cost more than a key may ever use at once are refused ones, too.
const COSTS: Migration = Migration(
    "ALTER TABLE keygate.records ADD COLUMN cost bigint;
     COMMENT ON COLUMN keygate.records.cost IS 'tokens that it took; NULL: one, or none of a refused request';

     CREATE OR REPLACE VIEW keygate.audit AS SELECT
         time, id, gateway, org_id, user_id, key_id, auth_method, host(ip) AS ip, user_agent, action, method, path,
         outcome, status, coalesce(count, 1) AS uses, coalesce(last_time, time) AS last_time,
         outcome IN ('revoked', 'expired', 'user_removed', 'user_suspended', 'key_expired', 'key_disabled',
                     'address_refused', 'org_suspended', 'forbidden', 'not_found', 'cost_over_limit', 'rate_limited',
                     'quota_exhausted', 'too_many_in_flight') AS refused,
         auth_method <> 'api-key' AND method = 'ADMIN' AS is_change,
         duration_us / 1000.0 AS duration_ms, request_bytes, response_bytes, trace_id, actor, subject,
         token_id, cost
     FROM keygate.records",
);

/// Budget that a request spent, indexed byte by byte: the totals of one subject are a range.
const BUDGETS: Migration = Migration(
    "ALTER TABLE keygate.records ADD COLUMN budget text;
     COMMENT ON COLUMN keygate.records.budget IS 'the budget that it spent: subject/start in seconds; NULL: none';
     CREATE INDEX ON keygate.records (budget text_pattern_ops) WHERE budget IS NOT NULL;

     CREATE OR REPLACE VIEW keygate.audit AS SELECT
         time, id, gateway, org_id, user_id, key_id, auth_method, host(ip) AS ip, user_agent, action, method, path,
         outcome, status, coalesce(count, 1) AS uses, coalesce(last_time, time) AS last_time,
         outcome IN ('revoked', 'expired', 'user_removed', 'user_suspended', 'key_expired', 'key_disabled',
                     'address_refused', 'org_suspended', 'forbidden', 'not_found', 'cost_over_limit', 'rate_limited',
                     'quota_exhausted', 'too_many_in_flight') AS refused,
         auth_method <> 'api-key' AND method = 'ADMIN' AS is_change,
         duration_us / 1000.0 AS duration_ms, request_bytes, response_bytes, trace_id, actor, subject,
         token_id, cost, budget
     FROM keygate.records",
);
