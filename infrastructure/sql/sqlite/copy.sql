-- name: external_ids
-- A page of the platform's ids.
SELECT position, external_id FROM cf_external_id WHERE position > ? ORDER BY position LIMIT ?

-- name: scopes
-- A page of the scopes.
SELECT scope_id, tenant, account, user, key FROM cf_scope WHERE scope_id > ? ORDER BY scope_id LIMIT ?

-- name: subjects
-- A page of those whom pseudonyms stand for.
SELECT pseudonym, scope_id, kind, connection, value FROM cf_subject WHERE pseudonym > ? ORDER BY pseudonym LIMIT ?

-- name: lock_keys
-- A page of the keys that ids of locks stand for.
SELECT lease_id, key FROM cf_lock_key WHERE lease_id > ? ORDER BY lease_id LIMIT ?

-- name: commands
-- A page of the answers that are kept.
SELECT scope_id, command_id, fingerprint, answer, recorded_at FROM cf_command
WHERE (scope_id, command_id) > (?, ?) ORDER BY scope_id, command_id LIMIT ?

-- name: repeats
-- A page of how often operations were delivered again.
SELECT operation, count FROM cf_repeat WHERE operation > ? ORDER BY operation LIMIT ?

-- name: passed_over
-- Up to where positions are passed over beside those of the history; here that is in no table.
SELECT 0

-- name: put_lock_key
-- Keep what key an id of a lock stands for.
INSERT INTO cf_lock_key (lease_id, key) VALUES (?, ?)

-- name: put_repeat
-- Keep how often an operation was delivered again.
INSERT INTO cf_repeat (operation, count) VALUES (?, ?)
