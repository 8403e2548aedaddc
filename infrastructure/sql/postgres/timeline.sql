-- fragment: events
-- The rows of events, whole.
SELECT position, recorded_at, originator_id, originator_version, type, type_version, opening_id, actor_kind, scope_id,
    connection, conversation, thread, actor, operation, correlation, causation, state, digest
FROM cf_event

-- fragment: filter
-- What a page of the timeline lets through, beside the way it goes by.
  AND (%(scopes)s::bytea[] IS NULL OR scope_id = ANY(%(scopes)s::bytea[]))
  AND (%(connection)s::text IS NULL OR connection = %(connection)s)
  AND (%(conversations)s::bytea[] IS NULL OR conversation = ANY(%(conversations)s::bytea[]))
  AND (%(threads)s::bytea[] IS NULL OR thread = ANY(%(threads)s::bytea[]))
  AND (%(actors)s::bytea[] IS NULL OR actor = ANY(%(actors)s::bytea[]))
  AND (%(actor_kind)s::text IS NULL OR actor_kind = %(actor_kind)s)
  AND (%(correlation)s::bytea IS NULL OR correlation = %(correlation)s)
  AND (%(types)s::text[] IS NULL OR type = ANY(%(types)s::text[]))
  AND (%(settled)s::text IS NULL
    OR CASE WHEN type_version > 0 THEN convert_from(state, 'UTF8')::jsonb ->> 'outcome' END = %(settled)s)

-- name: by_position
-- A page of the timeline, along the positions, oldest first.
-- include: events
WHERE position > %(after)s AND position < %(before)s
-- include: filter
ORDER BY position LIMIT %(limit)s

-- name: by_position_newest_first
-- A page of the timeline, along the positions, newest first.
-- include: events
WHERE position > %(after)s AND position < %(before)s
-- include: filter
ORDER BY position DESC LIMIT %(limit)s

-- name: by_operation
-- A page of the events on behalf of one operation, its admission included, oldest first.
-- include: events
WHERE (position = %(key)s OR operation = %(key)s)
  AND position > %(after)s AND position < %(before)s
-- include: filter
ORDER BY position LIMIT %(limit)s

-- name: by_operation_newest_first
-- A page of the events on behalf of one operation, its admission included, newest first.
-- include: events
WHERE (position = %(key)s OR operation = %(key)s)
  AND position > %(after)s AND position < %(before)s
-- include: filter
ORDER BY position DESC LIMIT %(limit)s

-- name: by_conversation
-- A page of the events in one conversation, oldest first.
-- include: events
WHERE conversation = %(key)s
  AND position > %(after)s AND position < %(before)s
-- include: filter
ORDER BY position LIMIT %(limit)s

-- name: by_conversation_newest_first
-- A page of the events in one conversation, newest first.
-- include: events
WHERE conversation = %(key)s
  AND position > %(after)s AND position < %(before)s
-- include: filter
ORDER BY position DESC LIMIT %(limit)s

-- name: by_actor
-- A page of what one person or operator did, oldest first.
-- include: events
WHERE actor = %(key)s
  AND position > %(after)s AND position < %(before)s
-- include: filter
ORDER BY position LIMIT %(limit)s

-- name: by_actor_newest_first
-- A page of what one person or operator did, newest first.
-- include: events
WHERE actor = %(key)s
  AND position > %(after)s AND position < %(before)s
-- include: filter
ORDER BY position DESC LIMIT %(limit)s

-- name: first_at
-- The first event at or after a position: positions and times grow together, so a time is found by halving.
SELECT position, recorded_at FROM cf_event WHERE position >= %s ORDER BY position LIMIT 1

-- name: operation_of
-- The admission of an operation: its position and its scope.
SELECT position, scope_id FROM cf_event WHERE originator_id = %s AND originator_version = 1 AND type = 'operation.admitted'

-- name: admissions_by_external_id
-- The admissions of a platform's event id in these scopes.
SELECT cf_event.position
FROM cf_external_id JOIN cf_event USING (position)
WHERE external_id = %(external_id)s AND type = 'operation.admitted'
  AND (%(scopes)s::bytea[] IS NULL OR scope_id = ANY(%(scopes)s::bytea[]))
ORDER BY cf_event.position

-- name: grant_at
-- The position of a grant by its version in the stream of its lock's key.
SELECT position FROM cf_event WHERE originator_id = %s AND originator_version = %s AND type = 'lock.granted'

-- name: unresolved
-- A page of the operations that need attention, oldest first, each with the opening that has it in hand: in whose queue it waits,
-- that claimed its turn, or that was to send its reply.
SELECT operation, operation_id, scope_id, connection, state, reply_state, attempts, version, admitted_at, updated_at, claimed_by,
    CASE
        WHEN state = 'accepted' THEN (SELECT opening_id FROM cf_queues_v1 WHERE operation = cf_unresolved_v1.operation)
        WHEN state = 'executing' THEN claimed_by
        WHEN reply_state = 'pending' THEN (
            SELECT opening_id FROM cf_event
            WHERE operation = cf_unresolved_v1.operation AND type IN ('reply.staged', 'reply.resend_claimed')
            ORDER BY position DESC LIMIT 1
        )
    END
FROM cf_unresolved_v1
WHERE operation > %(after)s AND (%(scopes)s::bytea[] IS NULL OR scope_id = ANY(%(scopes)s::bytea[]))
ORDER BY operation LIMIT %(limit)s

-- fragment: statistics
-- The stored rows with those in their place that the events change into which they were not folded yet.
FROM (
    SELECT hour, scope_id, connection, measure, events, total_us, longest_us FROM cf_statistics_v1 AS stored
    WHERE NOT EXISTS (
        SELECT FROM jsonb_to_recordset(%(pending)s::jsonb) AS later (hour bigint, scope_id bytea, connection text, measure text)
        WHERE (later.hour, later.scope_id, later.connection, later.measure)
            = (stored.hour, stored.scope_id, stored.connection, stored.measure)
    )
    UNION ALL
    SELECT * FROM jsonb_to_recordset(%(pending)s::jsonb) AS later (
        hour bigint, scope_id bytea, connection text, measure text, events bigint, total_us bigint, longest_us bigint
    )
) AS statistics

-- name: statistics_totals
-- Counts and latencies by connection and measure.
SELECT NULL::bigint, connection, measure, sum(events)::bigint, sum(total_us)::bigint, max(longest_us)
-- include: statistics
WHERE %(scopes)s::bytea[] IS NULL OR scope_id = ANY(%(scopes)s::bytea[])
GROUP BY connection, measure ORDER BY connection, measure

-- name: statistics_by_hour
-- Counts and latencies by hour, connection and measure.
SELECT hour, connection, measure, sum(events)::bigint, sum(total_us)::bigint, max(longest_us)
-- include: statistics
WHERE %(scopes)s::bytea[] IS NULL OR scope_id = ANY(%(scopes)s::bytea[])
GROUP BY hour, connection, measure ORDER BY hour, connection, measure

-- name: subjects_by_value
-- What an id is called: in every scope, and on one connection or on each of them.
SELECT pseudonym, scope_id, kind FROM cf_subject
WHERE value = %(value)s AND (%(connection)s::text IS NULL OR connection IS NULL OR connection = %(connection)s)
