-- name: create
-- Everything of format 1 but the tables of projections, which are made from their declared columns.
CREATE TABLE cf_head (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    format INTEGER NOT NULL,
    position INTEGER NOT NULL,
    digest BLOB NOT NULL,
    recorded_at INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    opening_id INTEGER NOT NULL,
    journal_key BLOB NOT NULL
) STRICT;
CREATE TABLE cf_event (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    recorded_at INTEGER NOT NULL,
    originator_id TEXT NOT NULL,
    originator_version INTEGER NOT NULL,
    type TEXT NOT NULL,
    type_version INTEGER NOT NULL,
    opening_id INTEGER,
    actor_kind TEXT,
    scope_id BLOB,
    connection TEXT,
    conversation BLOB,
    thread BLOB,
    actor BLOB,
    operation INTEGER,
    correlation BLOB,
    causation INTEGER,
    state BLOB NOT NULL,
    digest BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX cf_event_originator ON cf_event (originator_id, originator_version);
CREATE INDEX cf_event_operation ON cf_event (operation) WHERE operation IS NOT NULL;
CREATE INDEX cf_event_conversation ON cf_event (conversation) WHERE conversation IS NOT NULL;
CREATE INDEX cf_event_actor ON cf_event (actor) WHERE actor IS NOT NULL;
CREATE INDEX cf_event_thread ON cf_event (thread) WHERE thread IS NOT NULL;
CREATE INDEX cf_event_scope ON cf_event (scope_id) WHERE type = 'operation.admitted';
CREATE TABLE cf_payload (position INTEGER PRIMARY KEY, salt BLOB NOT NULL, body BLOB NOT NULL) STRICT;
CREATE TABLE cf_external_id (position INTEGER PRIMARY KEY, external_id TEXT NOT NULL) STRICT;
CREATE INDEX cf_external_id_value ON cf_external_id (external_id);
CREATE TABLE cf_scope (
    scope_id BLOB PRIMARY KEY,
    tenant TEXT,
    account TEXT,
    user TEXT,
    key BLOB
) STRICT, WITHOUT ROWID;
CREATE INDEX cf_scope_value ON cf_scope (tenant, account, user);
CREATE TABLE cf_subject (
    pseudonym BLOB PRIMARY KEY,
    scope_id BLOB NOT NULL,
    kind TEXT NOT NULL,
    connection TEXT,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX cf_subject_value ON cf_subject (value);
CREATE TABLE cf_deadline (
    lease_id TEXT PRIMARY KEY,
    opening_id INTEGER NOT NULL,
    token BLOB NOT NULL,
    boot_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    renewal INTEGER NOT NULL,
    ttl INTEGER NOT NULL,
    ends INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE cf_lock_key (lease_id TEXT PRIMARY KEY, key TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE cf_waiter (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    lease_id TEXT NOT NULL,
    opening_id INTEGER NOT NULL,
    token BLOB NOT NULL,
    lock TEXT NOT NULL,
    ttl INTEGER NOT NULL,
    max_hold INTEGER,
    lock_delay INTEGER,
    asked_at INTEGER NOT NULL,
    offered_until INTEGER
) STRICT;
CREATE INDEX cf_waiter_lease ON cf_waiter (lease_id, place);
CREATE INDEX cf_waiter_token ON cf_waiter (token);
CREATE INDEX cf_waiter_stepped_over ON cf_waiter (lease_id, opening_id) WHERE offered_until = 0;
CREATE TABLE cf_held_back (lease_id TEXT PRIMARY KEY, boot_id TEXT NOT NULL, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE cf_command (
    scope_id BLOB NOT NULL,
    command_id BLOB NOT NULL,
    fingerprint BLOB NOT NULL,
    answer BLOB NOT NULL,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (scope_id, command_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX cf_command_recorded_at ON cf_command (recorded_at);
CREATE TABLE cf_repeat (operation INTEGER PRIMARY KEY, count INTEGER NOT NULL) STRICT;
CREATE TABLE cf_projection (
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID

-- name: objects
-- How many tables and indexes the file has; none in one that is only just being made.
SELECT count(*) FROM sqlite_master

-- name: format
-- The format that the journal was written in.
SELECT format FROM cf_head WHERE id = 1
