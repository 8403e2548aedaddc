-- name: openings_in_line
-- The openings that have places, some of which may have ended.
SELECT DISTINCT opening_id FROM cf_waiter

-- name: line
-- A page of the places in the line of a key, the first one first.
SELECT place, lease_id, opening_id, token, lock, ttl, max_hold, lock_delay, asked_at, offered_until
FROM cf_waiter WHERE lease_id = %s AND place > %s ORDER BY place LIMIT %s

-- name: has_place
-- Whether an asking has a place.
SELECT 1 FROM cf_waiter WHERE lease_id = %s AND token = %s

-- name: anybody
-- Whether anybody waits for anything.
SELECT 1 FROM cf_waiter LIMIT 1

-- name: count
-- How many wait for a key.
SELECT count(*) FROM cf_waiter WHERE lease_id = %s

-- name: count_of_openings
-- How many of those who wait for a key do so in some openings.
SELECT count(*) FROM cf_waiter WHERE lease_id = %(lease_id)s AND opening_id = ANY(%(openings)s::bigint[])

-- name: held_back
-- Until when a key is held back.
SELECT boot_id, at FROM cf_held_back WHERE lease_id = %s

-- name: holders
-- Who holds what, of one lock or of all, in the order of the grants.
SELECT lock, key, position, granted_at,
    cf_deadline.lease_id, cf_deadline.opening_id, token, boot_id, at, renewal, cf_deadline.ttl, ends
FROM cf_deadline
JOIN cf_leases_v1 USING (lease_id)
LEFT JOIN cf_lock_key USING (lease_id)
WHERE held = 1 AND (%(lock)s::text IS NULL OR lock = %(lock)s)
ORDER BY position

-- name: waiters
-- Who waits for what, of one lock or of all, in the order of the lines.
SELECT cf_waiter.lease_id, lock, key, opening_id, asked_at
FROM cf_waiter LEFT JOIN cf_lock_key USING (lease_id)
WHERE %(lock)s::text IS NULL OR lock = %(lock)s
ORDER BY place

-- name: history
-- A page of what happened to a key, oldest first.
SELECT position, recorded_at, originator_version, opening_id, actor_kind, type, type_version, state FROM cf_event
WHERE originator_id = %s AND originator_version > %s ORDER BY originator_version LIMIT %s

-- name: history_newest_first
-- A page of what happened to a key, newest first.
SELECT position, recorded_at, originator_version, opening_id, actor_kind, type, type_version, state FROM cf_event
WHERE originator_id = %s AND originator_version < %s ORDER BY originator_version DESC LIMIT %s
