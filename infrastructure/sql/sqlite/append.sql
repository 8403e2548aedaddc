-- name: create_head
-- The head of an empty journal.
INSERT INTO cf_head (id, format, position, digest, recorded_at, epoch, opening_id, journal_key) VALUES (1, ?, 0, ?, 0, 0, 0, ?)

-- name: move_head
-- Move the end of the history in the append that lengthened it.
UPDATE cf_head SET position = ?, digest = ?, recorded_at = ?, epoch = ?, opening_id = ? WHERE id = 1

-- name: insert_event
-- Append one event at its place.
INSERT INTO cf_event (position, recorded_at, originator_id, originator_version, type, type_version, opening_id, actor_kind, scope_id,
    connection, conversation, thread, actor, operation, correlation, causation, state, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_payload
-- Keep a text under the position of the event that commits to it.
INSERT INTO cf_payload (position, salt, body) VALUES (?, ?, ?)

-- name: erase_payload
-- Erase a text and its salt.
DELETE FROM cf_payload WHERE position = ?

-- name: insert_external_id
-- Keep the platform's id of the event or message at a position.
INSERT INTO cf_external_id (position, external_id) VALUES (?, ?)

-- name: insert_scope
-- Begin a scope.
INSERT INTO cf_scope (scope_id, tenant, account, user, key) VALUES (?, ?, ?, ?, ?)

-- name: insert_subject
-- Remember whom a pseudonym stands for.
INSERT OR IGNORE INTO cf_subject (pseudonym, scope_id, kind, connection, value) VALUES (?, ?, ?, ?, ?)

-- name: put_deadline
-- Begin or move the running deadline of a lease.
INSERT OR REPLACE INTO cf_deadline (lease_id, opening_id, token, boot_id, at, renewal, ttl, ends) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: delete_deadline
-- The lease has ended.
DELETE FROM cf_deadline WHERE lease_id = ?

-- name: insert_command
-- Keep the answer to a command that carried a command id.
INSERT OR REPLACE INTO cf_command (scope_id, command_id, fingerprint, answer, recorded_at) VALUES (?, ?, ?, ?, ?)

-- name: forget_commands
-- Drop the answers to command ids that are too old to be given again.
DELETE FROM cf_command WHERE recorded_at < ?

-- name: count_repeat
-- Count a repeat beyond the first.
INSERT INTO cf_repeat (operation, count) VALUES (?, 1) ON CONFLICT (operation) DO UPDATE SET count = count + 1

-- name: move_projection
-- Say up to which position a projection is folded.
UPDATE cf_projection SET position = ? WHERE name = ? AND version = ?

-- name: add_projection
-- Begin a projection in this version.
INSERT OR IGNORE INTO cf_projection (name, version, position) VALUES (?, ?, 0)

-- name: erase_subject
-- Erase whom a pseudonym stands for.
DELETE FROM cf_subject WHERE pseudonym = ?

-- name: erase_payloads_of_subject
-- Erase the texts of the operations that a pseudonym belongs to, as actor, conversation or thread.
DELETE FROM cf_payload WHERE position IN (
    WITH admission AS (
        SELECT position FROM cf_event WHERE actor = ?1 AND type = 'operation.admitted'
        UNION SELECT position FROM cf_event WHERE conversation = ?1 AND type = 'operation.admitted'
        UNION SELECT position FROM cf_event WHERE thread = ?1 AND type = 'operation.admitted'
    )
    SELECT position FROM admission
    UNION ALL SELECT event.position FROM cf_event AS event JOIN admission ON event.operation = admission.position
)

-- name: erase_external_ids_of_subject
-- Erase the platform's ids of the events and messages of those operations.
DELETE FROM cf_external_id WHERE position IN (
    WITH admission AS (
        SELECT position FROM cf_event WHERE actor = ?1 AND type = 'operation.admitted'
        UNION SELECT position FROM cf_event WHERE conversation = ?1 AND type = 'operation.admitted'
        UNION SELECT position FROM cf_event WHERE thread = ?1 AND type = 'operation.admitted'
    )
    SELECT position FROM admission
    UNION ALL SELECT event.position FROM cf_event AS event JOIN admission ON event.operation = admission.position
)

-- name: erase_payloads_of_scope
-- Erase the texts of a scope.
DELETE FROM cf_payload WHERE position IN (
    WITH admission AS (
        SELECT position FROM cf_event WHERE scope_id = ?1 AND type = 'operation.admitted'
    )
    SELECT position FROM admission
    UNION ALL SELECT event.position FROM cf_event AS event JOIN admission ON event.operation = admission.position
)

-- name: erase_external_ids_of_scope
-- Erase the platform's ids of the events and messages of a scope.
DELETE FROM cf_external_id WHERE position IN (
    WITH admission AS (
        SELECT position FROM cf_event WHERE scope_id = ?1 AND type = 'operation.admitted'
    )
    SELECT position FROM admission
    UNION ALL SELECT event.position FROM cf_event AS event JOIN admission ON event.operation = admission.position
)

-- name: erase_subjects_of_scope
-- Erase whom the pseudonyms of a scope stand for.
DELETE FROM cf_subject WHERE scope_id = ?

-- name: erase_commands_of_scope
-- Erase the kept answers of a scope.
DELETE FROM cf_command WHERE scope_id = ?

-- name: erase_scope
-- Erase the key of a scope and what it stands for.
UPDATE cf_scope SET tenant = NULL, account = NULL, user = NULL, key = NULL WHERE scope_id = ?
