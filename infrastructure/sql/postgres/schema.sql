-- name: create_schema
-- The schema, unless an owner has made it: whoever may create in it need not have the right to make it.
DO $function$
BEGIN
    IF to_regnamespace({name}) IS NULL THEN
        CREATE SCHEMA {schema};
    END IF;
END
$function$

-- name: create
-- Everything of format 1 but the functions (append.sql) and the tables of projections, which are made from their declared columns.
CREATE TABLE {schema}.cf_head (
    id integer PRIMARY KEY CHECK (id = 1),
    format integer NOT NULL,
    -- Of tables, functions and indexes, which an upgrade changes by itself where the format of what they hold stays.
    schema_version integer NOT NULL,
    -- The end of the history below the first event that the table holds: the head is the newest event, and this where there is none.
    position bigint NOT NULL,
    digest bytea NOT NULL,
    recorded_at bigint NOT NULL,
    epoch bigint NOT NULL,
    opening_id integer NOT NULL,
    erasures bigint NOT NULL,
    journal_key bytea NOT NULL,
    -- Where the journal was last written: another server, history of one, or schema says that it was restored, copied or promoted.
    system_identifier text COLLATE "C",
    timeline integer,
    schema_oid oid
);
CREATE TABLE {schema}.cf_event (
    -- What is of fixed width stands first, so that nothing is padded.
    position bigint NOT NULL,
    recorded_at bigint NOT NULL,
    originator_version bigint NOT NULL,
    operation bigint,
    causation bigint,
    opening_id integer,
    type_version integer NOT NULL,
    originator_id text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    actor_kind text COLLATE "C",
    scope_id bytea,
    connection text COLLATE "C",
    conversation bytea,
    thread bytea,
    actor bytea,
    correlation bytea,
    state bytea NOT NULL,
    digest bytea NOT NULL,
    PRIMARY KEY (position)
);
-- A stream in order, and that no version comes twice.
CREATE UNIQUE INDEX cf_event_originator ON {schema}.cf_event (originator_id, originator_version);
-- What was done on behalf of an operation.
CREATE INDEX cf_event_operation ON {schema}.cf_event (operation) WHERE operation IS NOT NULL;
-- Pages of the timeline of a conversation, and whether anything was appended in one since a position: each append looks.
CREATE INDEX cf_event_conversation ON {schema}.cf_event (conversation, position) WHERE conversation IS NOT NULL;
-- Pages of the timeline of a person or operator.
CREATE INDEX cf_event_actor ON {schema}.cf_event (actor, position) WHERE actor IS NOT NULL;
-- What an erasure looks for.
CREATE INDEX cf_event_thread ON {schema}.cf_event (thread) WHERE thread IS NOT NULL;
CREATE INDEX cf_event_scope ON {schema}.cf_event (scope_id) WHERE type = 'operation.admitted';
-- Texts are not compressed: that would be done while all others wait for their turn to append.
-- Tables that shrink again keep their pages: VACUUM would lock out all others while it cuts them off.
CREATE TABLE {schema}.cf_payload (
    position bigint PRIMARY KEY, salt bytea NOT NULL, body bytea NOT NULL
) WITH (vacuum_truncate = false);
ALTER TABLE {schema}.cf_payload ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE {schema}.cf_external_id (position bigint PRIMARY KEY, external_id text COLLATE "C" NOT NULL);
CREATE INDEX cf_external_id_value ON {schema}.cf_external_id (external_id);
CREATE TABLE {schema}.cf_scope (
    scope_id bytea PRIMARY KEY, tenant text COLLATE "C", account text COLLATE "C", "user" text COLLATE "C", key bytea
);
-- One scope for the same people, whoever comes first; an erased one is nobody's.
CREATE UNIQUE INDEX cf_scope_value ON {schema}.cf_scope (tenant, coalesce(account, ''), coalesce("user", ''))
WHERE key IS NOT NULL;
CREATE TABLE {schema}.cf_subject (
    pseudonym bytea PRIMARY KEY,
    scope_id bytea NOT NULL,
    kind text COLLATE "C" NOT NULL,
    connection text COLLATE "C",
    value text COLLATE "C" NOT NULL
);
CREATE INDEX cf_subject_value ON {schema}.cf_subject (value);
CREATE INDEX cf_subject_scope ON {schema}.cf_subject (scope_id);
-- The rows below are changed or gone soon after they have come: half of each page is left free, so that a change stays in it and
-- no index is touched, and what is left of them is cleared away by their number, not by a share of a table that is small.
CREATE TABLE {schema}.cf_deadline (
    lease_id text COLLATE "C" PRIMARY KEY,
    opening_id integer NOT NULL,
    token bytea NOT NULL,
    boot_id text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    renewal bigint NOT NULL,
    ttl bigint NOT NULL,
    ends bigint,
    -- The server's clock at the append that began or moved it, in microseconds: what another machine judges it by.
    renewed_at bigint NOT NULL
) WITH (fillfactor = 50, vacuum_truncate = false, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE TABLE {schema}.cf_lock_key (lease_id text COLLATE "C" PRIMARY KEY, key text COLLATE "C" NOT NULL);
CREATE INDEX cf_lock_key_key ON {schema}.cf_lock_key (key);
CREATE TABLE {schema}.cf_waiter (
    place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lease_id text COLLATE "C" NOT NULL,
    opening_id integer NOT NULL,
    token bytea NOT NULL,
    lock text COLLATE "C" NOT NULL,
    ttl bigint NOT NULL,
    max_hold bigint,
    lock_delay bigint,
    asked_at bigint NOT NULL,
    offered_until bigint
) WITH (fillfactor = 50, vacuum_truncate = false, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX cf_waiter_lease ON {schema}.cf_waiter (lease_id, place);
CREATE UNIQUE INDEX cf_waiter_token ON {schema}.cf_waiter (token, lease_id);
CREATE INDEX cf_waiter_opening ON {schema}.cf_waiter (opening_id);
CREATE TABLE {schema}.cf_held_back (
    lease_id text COLLATE "C" PRIMARY KEY, boot_id text COLLATE "C" NOT NULL, at bigint NOT NULL
) WITH (fillfactor = 50, vacuum_truncate = false, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE TABLE {schema}.cf_command (
    scope_id bytea NOT NULL,
    command_id bytea NOT NULL,
    fingerprint bytea NOT NULL,
    answer bytea NOT NULL,
    recorded_at bigint NOT NULL,
    PRIMARY KEY (scope_id, command_id)
) WITH (vacuum_truncate = false);
CREATE INDEX cf_command_recorded_at ON {schema}.cf_command (recorded_at);
CREATE TABLE {schema}.cf_repeat (operation bigint PRIMARY KEY, count bigint NOT NULL);
CREATE TABLE {schema}.cf_projection (
    name text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    -- NULL while every append folds it, so that it is at the head; otherwise up to where it is folded.
    position bigint,
    PRIMARY KEY (name, version)
);
-- Records that hosts' transactions append when they commit; none outlives its transaction, so nothing of it needs the log.
CREATE UNLOGGED TABLE {schema}.cf_staged (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, record jsonb NOT NULL
) WITH (vacuum_truncate = false, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)

-- name: create_head
-- The head of an empty journal. Its key is made where it stays: no script and no terminal ever holds it.
INSERT INTO {schema}.cf_head (
    id, format, schema_version, position, digest, recorded_at, epoch, opening_id, erasures, journal_key
)
VALUES (
    1, 1, 1, 0, decode(repeat('00', 32), 'hex'), 0, 0, 0, 0,
    sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))
)
