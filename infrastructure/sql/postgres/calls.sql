-- name: standpoint
-- The end of the history with what counts up beside it, how often anything was erased, and the server's clock.
SELECT format, greatest(newest.position, cf_head.position), coalesce(newest.digest, cf_head.digest),
    coalesce(newest.recorded_at, cf_head.recorded_at), epoch, cf_head.opening_id,
    erasures, cf_clock(),
    EXISTS (
        SELECT FROM cf_projection WHERE cf_projection.position IS NOT NULL AND name || '_v' || version = ANY (%(folds)s::text[])
    )
FROM cf_head
LEFT JOIN (SELECT position, digest, recorded_at FROM cf_event ORDER BY position DESC LIMIT 1) AS newest ON true
WHERE id = 1

-- name: behind
-- Whether a projection that each append folds was left behind by somebody who does not.
SELECT EXISTS (
    SELECT FROM cf_projection WHERE position IS NOT NULL AND name || '_v' || version = ANY (%(folds)s::text[])
)

-- name: next_opening
-- Give a number to an opening that begins. Where the journal is another copy than before, of a dump or a promoted replica, it may lack
-- what others have seen: positions and numbers are passed over, more than can have been given meanwhile.
UPDATE cf_head SET
    opening_id = opening_id + CASE WHEN copied THEN 1001 ELSE 1 END,
    position = CASE WHEN copied THEN greatest(newest, position) + 1048576 ELSE position END,
    system_identifier = here.system_identifier, timeline = here.timeline, schema_oid = here.schema_oid
FROM (
    SELECT here.*, (SELECT max(position) FROM cf_event) AS newest, head.schema_oid IS NOT NULL
        AND (head.system_identifier, head.timeline, head.schema_oid)
            IS DISTINCT FROM (here.system_identifier, here.timeline, here.schema_oid) AS copied
    FROM cf_head AS head CROSS JOIN (VALUES (%s::text, %s::integer, %s::oid)) AS here (system_identifier, timeline, schema_oid)
    WHERE head.id = 1
) AS here
WHERE id = 1
RETURNING opening_id

-- name: landed
-- The event of an aggregate with this version, if it is the very one that an opening sent.
SELECT position, recorded_at FROM cf_event
WHERE originator_id = %s AND originator_version = %s AND opening_id IS NOT DISTINCT FROM %s AND state = %s

-- name: end_backend
-- End a session of which nothing was heard, so that what it was doing has happened or never will.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = %s AND (extract(epoch FROM backend_start) * 1000000)::bigint = %s

-- name: backend
-- Whether a session is still there.
SELECT 1 FROM pg_stat_activity WHERE pid = %s AND (extract(epoch FROM backend_start) * 1000000)::bigint = %s
