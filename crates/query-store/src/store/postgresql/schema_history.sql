-- Schema 2 of query-store: first pages that pass no ended row version, and a bound of each organization's history.
-- Never changed once released: a change is a new migration.
--
-- * `orgs.history` is the sum of `history_cost` over the ended row versions of the organization. What ends or deletes a row
--   version changes it in the same transaction, under the lock of the organization's row.
-- * A function that would exceed its `history_limit` fails with SQLSTATE KG001 and changes nothing.
-- * The functions of schema 1 stay, without a limit, for query-stores that were started before this migration.

ALTER TABLE query_store.orgs ADD COLUMN history bigint NOT NULL DEFAULT 0;

CREATE UNIQUE INDEX queries_current ON query_store.queries (org, position) WHERE version_ended = 9223372036854775807;

-- Bytes that a row version counts: its name and text, and 512 for the rest of it and its entries in the indexes.
CREATE FUNCTION query_store.history_cost(q query_store.queries) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT octet_length(q.name)::bigint + octet_length(q.sql) + 512 $$;

UPDATE query_store.orgs AS o SET history = coalesce((
    SELECT sum(query_store.history_cost(q))::bigint FROM query_store.queries AS q
    WHERE q.org = o.number AND q.version_ended < 9223372036854775807), 0);

-- Ends the current row version of a query, and returns it; null when the organization has no such query. The lock is taken in a
-- statement of its own, as in schema 1.
CREATE FUNCTION query_store.end_query(an_org text, query_id uuid, history_limit bigint) RETURNS query_store.queries
LANGUAGE plpgsql AS $$
DECLARE
    org_number bigint;
    taken bigint;
    kept bigint;
    ended query_store.queries;
BEGIN
    SELECT o.number, o.version + 1, o.history INTO org_number, taken, kept
        FROM query_store.orgs AS o WHERE o.org = an_org FOR NO KEY UPDATE;
    UPDATE query_store.queries AS q SET version_ended = taken
        WHERE q.org = org_number AND q.id = query_id AND q.version_ended = 9223372036854775807
        RETURNING q.* INTO ended;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    kept := kept + query_store.history_cost(ended);
    IF kept > history_limit THEN
        RAISE EXCEPTION 'the history of the organization is full' USING ERRCODE = 'KG001';
    END IF;
    UPDATE query_store.orgs AS o SET version = taken, history = kept WHERE o.number = org_number;
    RETURN ended;
END $$;

CREATE FUNCTION query_store.replace_query(
    an_org text, query_id uuid, new_name text, new_sql text, changed_at bigint, history_limit bigint)
RETURNS SETOF query_store.queries
LANGUAGE plpgsql AS $$
DECLARE
    ended query_store.queries := query_store.end_query(an_org, query_id, history_limit);
BEGIN
    IF ended.id IS NULL THEN
        RETURN;
    END IF;
    -- A clock that was set back must not make the query look older.
    RETURN QUERY INSERT INTO query_store.queries AS q
        (org, position, version_created, id, name, sql, created_at, updated_at, created_by)
        VALUES (ended.org, ended.position, ended.version_ended, ended.id, new_name, new_sql,
                ended.created_at, greatest(ended.updated_at, changed_at), ended.created_by)
        RETURNING q.*;
END $$;

CREATE FUNCTION query_store.delete_query(an_org text, query_id uuid, history_limit bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    ended query_store.queries := query_store.end_query(an_org, query_id, history_limit);
BEGIN
    RETURN ended.id IS NOT NULL;
END $$;

-- As in schema 1. A version that is registered already may always be extended.
CREATE FUNCTION query_store.register_snapshot(an_org text, expires bigint, history_limit bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    org_number bigint;
    current_version bigint;
    kept bigint;
BEGIN
    SELECT o.number, o.version, o.history INTO org_number, current_version, kept
        FROM query_store.orgs AS o WHERE o.org = an_org FOR SHARE;
    IF kept >= history_limit AND NOT EXISTS (
        SELECT FROM query_store.snapshots AS s WHERE s.org = org_number AND s.version = current_version) THEN
        RAISE EXCEPTION 'the history of the organization is full' USING ERRCODE = 'KG001';
    END IF;
    INSERT INTO query_store.snapshots AS s (org, version, expires_at) VALUES (org_number, current_version, expires)
        ON CONFLICT (org, version) DO UPDATE SET expires_at = greatest(s.expires_at, excluded.expires_at);
    RETURN current_version;
END $$;

CREATE OR REPLACE FUNCTION query_store.replace_query(
    an_org text, query_id uuid, new_name text, new_sql text, changed_at bigint)
RETURNS SETOF query_store.queries
LANGUAGE sql AS $$
    SELECT * FROM query_store.replace_query(an_org, query_id, new_name, new_sql, changed_at, 9223372036854775807)
$$;

CREATE OR REPLACE FUNCTION query_store.delete_query(an_org text, query_id uuid) RETURNS boolean
LANGUAGE sql AS $$ SELECT query_store.delete_query(an_org, query_id, 9223372036854775807) $$;
