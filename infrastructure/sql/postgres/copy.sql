-- name: external_ids
-- A page of the platform's ids.
SELECT position, external_id FROM cf_external_id WHERE position > %s ORDER BY position LIMIT %s

-- name: scopes
-- A page of the scopes.
SELECT scope_id, tenant, account, "user", key FROM cf_scope WHERE scope_id > %s ORDER BY scope_id LIMIT %s

-- name: subjects
-- A page of those whom pseudonyms stand for.
SELECT pseudonym, scope_id, kind, connection, value FROM cf_subject WHERE pseudonym > %s ORDER BY pseudonym LIMIT %s

-- name: lock_keys
-- A page of the keys that ids of locks stand for.
SELECT lease_id, key FROM cf_lock_key WHERE lease_id > %s ORDER BY lease_id LIMIT %s

-- name: commands
-- A page of the answers that are kept.
SELECT scope_id, command_id, fingerprint, answer, recorded_at FROM cf_command
WHERE (scope_id, command_id) > (%s, %s) ORDER BY scope_id, command_id LIMIT %s

-- name: repeats
-- A page of how often operations were delivered again.
SELECT operation, count FROM cf_repeat WHERE operation > %s ORDER BY operation LIMIT %s

-- name: passed_over
-- Up to where positions are passed over beside those of the history.
SELECT position FROM cf_head WHERE id = 1

-- name: be_patient
-- A copy takes as long as there are rows.
SET LOCAL statement_timeout TO 0; SET LOCAL idle_in_transaction_session_timeout TO 0

-- name: lock_empty
-- Whether a journal has never been used; nobody begins to use it before the end of this transaction.
SELECT epoch = 0 AND opening_id = 0 AND NOT EXISTS (SELECT FROM cf_event) FROM cf_head WHERE id = 1 FOR UPDATE

-- name: put_events
-- Events as they are.
COPY cf_event (
    position, recorded_at, originator_id, originator_version, type, type_version, opening_id, actor_kind, scope_id, connection,
    conversation, thread, actor, operation, correlation, causation, state, digest
) FROM STDIN (FORMAT BINARY)

-- name: put_payloads
-- Texts with their salts.
COPY cf_payload (position, salt, body) FROM STDIN (FORMAT BINARY)

-- name: put_external_ids
-- The platform's ids.
COPY cf_external_id (position, external_id) FROM STDIN (FORMAT BINARY)

-- name: put_scopes
-- Scopes with their keys.
COPY cf_scope (scope_id, tenant, account, "user", key) FROM STDIN (FORMAT BINARY)

-- name: put_subjects
-- Whom pseudonyms stand for.
COPY cf_subject (pseudonym, scope_id, kind, connection, value) FROM STDIN (FORMAT BINARY)

-- name: put_lock_keys
-- The keys that ids of locks stand for.
COPY cf_lock_key (lease_id, key) FROM STDIN (FORMAT BINARY)

-- name: put_commands
-- The answers that are kept.
COPY cf_command (scope_id, command_id, fingerprint, answer, recorded_at) FROM STDIN (FORMAT BINARY)

-- name: put_repeats
-- How often operations were delivered again.
COPY cf_repeat (operation, count) FROM STDIN (FORMAT BINARY)

-- name: put_head
-- What counts up beside the history. That it says of no place where it was before tells the first opening that this is a copy: it
-- passes over positions and numbers, which the journal that was copied may have given meanwhile.
UPDATE cf_head SET journal_key = %s, epoch = %s, opening_id = %s, position = %s,
    system_identifier = NULL, timeline = NULL, schema_oid = 0
WHERE id = 1

-- name: put_projections
-- How far each projection is folded: those that appends fold are at the head, and those of other releases are folded by these.
UPDATE cf_projection SET position = CASE
    WHEN name || '_v' || version = ANY (%(inline)s) THEN NULL
    WHEN name || '_v' || version = ANY (%(aggregated)s) THEN %(head)s
    ELSE 0
END
