-- name: tables
-- How many tables the journal has.
SELECT count(*) FROM pg_class
WHERE relnamespace = quote_ident(current_schema())::regnamespace AND relkind = 'r' AND starts_with(relname, 'cf_')

-- name: versions
-- Every stream in order of its versions, from the index alone.
SELECT originator_id, originator_version, position FROM cf_event ORDER BY originator_id, originator_version

-- name: is_ours
-- Whether a stream holds an event of the registry; streams of the eventsourcing library number theirs as they like.
SELECT 1 FROM cf_event WHERE originator_id = %s AND type_version > 0 LIMIT 1

-- name: count_payloads
-- How many texts remain.
SELECT count(*) FROM cf_payload

-- name: count_kept_inbound
-- How many inbound texts remain although their operation has ended; none, unless the host keeps them.
SELECT count(*) FROM cf_payload JOIN cf_event AS admission USING (position)
WHERE admission.type = 'operation.admitted' AND EXISTS (
    SELECT 1 FROM cf_event AS ending WHERE ending.operation = admission.position
        AND ending.type IN ('operation.settled', 'operation.abandoned', 'operation.execution_unknown')
)
