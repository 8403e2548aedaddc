-- name: remember_key
-- Remember what key an id of a lock's key stands for.
INSERT OR IGNORE INTO cf_lock_key (lease_id, key) VALUES (?, ?)

-- name: forget_keys
-- Forget the keys that are written like an id of a person.
DELETE FROM cf_lock_key WHERE key = ?

-- name: forget_keys_of_scope
-- Forget the keys that are written like an id of anybody in a scope.
DELETE FROM cf_lock_key WHERE key IN (SELECT value FROM cf_subject WHERE scope_id = ?)

-- name: enter
-- Take the last place in the line of a key.
INSERT INTO cf_waiter (lease_id, opening_id, token, lock, ttl, max_hold, lock_delay, asked_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: step_over
-- An opening has let an offer pass: its places are stepped over, which an offer that ends at 0 says, until it looks again.
UPDATE cf_waiter SET offered_until = 0 WHERE lease_id = ? AND opening_id = ?

-- name: awake
-- The places of an opening that looks again are stepped over no longer.
UPDATE cf_waiter SET offered_until = NULL WHERE lease_id = ? AND opening_id = ? AND offered_until = 0

-- name: leave
-- Give up a place.
DELETE FROM cf_waiter WHERE lease_id = ? AND token = ?

-- name: leave_with_opening
-- Give up the places of an opening that has ended.
DELETE FROM cf_waiter WHERE opening_id = ?

-- name: openings_in_line
-- The openings that have places, some of which may have ended.
SELECT DISTINCT opening_id FROM cf_waiter

-- name: line
-- The places in the line of a key, the first one first, but for those of others that are stepped over.
SELECT place, lease_id, opening_id, token, lock, ttl, max_hold, lock_delay, asked_at, offered_until
FROM cf_waiter WHERE lease_id = ? AND (offered_until IS NOT 0 OR opening_id = ?) ORDER BY place

-- name: has_place
-- Whether an asking has a place.
SELECT 1 FROM cf_waiter WHERE lease_id = ? AND token = ?

-- name: anybody
-- Whether anybody waits for anything.
SELECT 1 FROM cf_waiter LIMIT 1

-- name: length
-- How many wait for a key, and perhaps waited: no fewer than there are, and without counting them.
SELECT coalesce(max(place) - min(place) + 1, 0) FROM cf_waiter WHERE lease_id = ?

-- name: count
-- How many wait for a key.
SELECT count(*) FROM cf_waiter WHERE lease_id = ?

-- name: offer
-- The key is free, and the first in line has until then to take it.
UPDATE cf_waiter SET offered_until = ? WHERE lease_id = ? AND token = ?

-- name: hold_back
-- Nobody gets the key before then.
INSERT OR REPLACE INTO cf_held_back (lease_id, boot_id, at) VALUES (?, ?, ?)

-- name: held_back
-- Until when a key is held back.
SELECT boot_id, at FROM cf_held_back WHERE lease_id = ?

-- name: let_go
-- The key is no longer held back.
DELETE FROM cf_held_back WHERE lease_id = ?

-- name: holders
-- Who holds what, of one lock or of all, in the order of the grants.
SELECT lock, key, position, granted_at,
    cf_deadline.lease_id, cf_deadline.opening_id, token, boot_id, at, renewal, cf_deadline.ttl, ends
FROM cf_deadline
JOIN cf_leases_v1 USING (lease_id)
LEFT JOIN cf_lock_key USING (lease_id)
WHERE held AND (:lock IS NULL OR lock = :lock)
ORDER BY position

-- name: waiters
-- Who waits for what, of one lock or of all, in the order of the lines.
SELECT cf_waiter.lease_id, lock, key, opening_id, asked_at
FROM cf_waiter LEFT JOIN cf_lock_key USING (lease_id)
WHERE :lock IS NULL OR lock = :lock
ORDER BY place

-- name: history
-- A page of what happened to a key, oldest first.
SELECT position, recorded_at, originator_version, opening_id, actor_kind, type, type_version, state FROM cf_event
WHERE originator_id = ? AND originator_version > ? ORDER BY originator_version LIMIT ?

-- name: history_newest_first
-- A page of what happened to a key, newest first.
SELECT position, recorded_at, originator_version, opening_id, actor_kind, type, type_version, state FROM cf_event
WHERE originator_id = ? AND originator_version < ? ORDER BY originator_version DESC LIMIT ?
