-- name: create_schema
-- A schema for what the bench makes.
CREATE SCHEMA {schema}

-- name: drop_schema
-- All that the bench has made in it goes with it.
DROP SCHEMA IF EXISTS {schema} CASCADE

-- name: create
-- What the bench compares with: one row an event and nothing else, in the columns of the eventsourcing library.
CREATE TABLE {schema}.event (
    originator_id uuid NOT NULL,
    originator_version bigint NOT NULL,
    topic text,
    state bytea,
    notification_id bigserial,
    PRIMARY KEY (originator_id, originator_version)
)

-- name: insert
-- One event.
INSERT INTO {schema}.event (originator_id, originator_version, topic, state) VALUES (%s, %s, %s, %s)

-- name: settings
-- What a commit costs depends on.
SELECT name, current_setting(name)
FROM unnest(ARRAY['server_version', 'fsync', 'synchronous_commit', 'wal_sync_method', 'full_page_writes', 'shared_buffers', 'max_wal_size'])
    WITH ORDINALITY AS asked (name, place)
ORDER BY place

-- name: size
-- The bytes of a journal's tables with their indexes, but for those of the texts that it keeps.
SELECT
    (
        SELECT sum(pg_total_relation_size(pg_class.oid))
        FROM pg_class
        JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE nspname = %s AND relkind = 'r'
    )::bigint - (SELECT coalesce(sum(octet_length(body)), 0) FROM {schema}.cf_payload)::bigint

-- name: everything
-- What a slow reader reads.
SELECT position, type, state FROM {schema}.cf_event ORDER BY position

-- name: long_query
-- What an analyst asks who does not look at the clock: even for twenty events it takes minutes.
SELECT count(*)
FROM {schema}.cf_event AS a
CROSS JOIN {schema}.cf_event AS b
CROSS JOIN {schema}.cf_event AS c
CROSS JOIN {schema}.cf_event AS d
CROSS JOIN {schema}.cf_event AS e
CROSS JOIN {schema}.cf_event AS f
CROSS JOIN {schema}.cf_event AS g
WHERE a.digest <> b.digest
