-- What a role reads that sees no ids: the statements of the same names, without the columns and tables that hold them.

-- name: holders
-- Who holds what, of one lock or of all, in the order of the grants; not of which key, and without what a holder shows.
SELECT lock, NULL, position, granted_at,
    cf_deadline.lease_id, cf_deadline.opening_id, ''::bytea, boot_id, at, renewal, cf_deadline.ttl, ends
FROM cf_deadline
JOIN cf_leases_v1 USING (lease_id)
WHERE held = 1 AND (%(lock)s::text IS NULL OR lock = %(lock)s)
ORDER BY position

-- name: waiters
-- Who waits for what, of one lock or of all, in the order of the lines; not for which key.
SELECT cf_waiter.lease_id, lock, NULL, opening_id, asked_at
FROM cf_waiter
WHERE %(lock)s::text IS NULL OR lock = %(lock)s
ORDER BY place
