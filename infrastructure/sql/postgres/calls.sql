-- name: append
-- Append a record; see cf_append.
SELECT status, conflict, head_before, first_position, first_recorded_at, epoch_after, clock FROM cf_append(%s::jsonb)

-- name: standpoint
-- What a decision stands on beside the head.
SELECT erasures, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM cf_head WHERE id = 1

-- name: next_opening
-- Give a number to an opening that begins.
UPDATE cf_head SET opening_id = opening_id + 1 WHERE id = 1 RETURNING opening_id

-- name: landed
-- The event of an aggregate with this version, if it is the very one that an opening sent.
SELECT position, recorded_at FROM cf_event
WHERE originator_id = %s AND originator_version = %s AND opening_id IS NOT DISTINCT FROM %s AND state = %s

-- name: end_backend
-- End a session of which nothing was heard, so that what it was doing has happened or never will.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND pid <> pg_backend_pid()

-- name: backend
-- Whether a session is still there.
SELECT 1 FROM pg_stat_activity WHERE pid = %s
