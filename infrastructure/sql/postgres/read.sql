-- name: head
-- The end of the history, and what counts up with it.
SELECT format, coalesce(newest.position, cf_head.position), coalesce(newest.digest, cf_head.digest),
    coalesce(newest.recorded_at, cf_head.recorded_at), epoch, cf_head.opening_id
FROM cf_head
LEFT JOIN (SELECT position, digest, recorded_at FROM cf_event ORDER BY position DESC LIMIT 1) AS newest ON true
WHERE id = 1

-- fragment: events
-- The rows of events, whole.
SELECT position, recorded_at, originator_id, originator_version, type, type_version, opening_id, actor_kind, scope_id,
    connection, conversation, thread, actor, operation, correlation, causation, state, digest
FROM cf_event

-- name: stream
-- The events of one aggregate, in order.
-- include: events
WHERE originator_id = %s ORDER BY originator_version

-- name: events_after
-- A page of the history, in order of position.
-- include: events
WHERE position > %s ORDER BY position LIMIT %s

-- name: newest_events
-- The end of the history, newest first.
-- include: events
ORDER BY position DESC LIMIT %s

-- name: position_of
-- The position of an aggregate's event with this version.
SELECT position FROM cf_event WHERE originator_id = %s AND originator_version = %s

-- name: stream_version
-- The version of the newest event of an aggregate.
SELECT max(originator_version) FROM cf_event WHERE originator_id = %s

-- name: has_event
-- Whether an aggregate has an event of this version.
SELECT 1 FROM cf_event WHERE originator_id = %s AND originator_version = %s

-- name: grant_at
-- Which opening was given a lease at a position, and the version of the grant in the key's stream.
SELECT opening_id, originator_version FROM cf_event WHERE position = %s AND originator_id = %s AND type = 'lock.granted'

-- name: originator_at
-- The aggregate of the event at a position.
SELECT originator_id FROM cf_event WHERE position = %s

-- name: events_of_operation
-- All events on behalf of one operation, whatever their aggregate.
-- include: events
WHERE position = %(operation)s OR operation = %(operation)s ORDER BY position

-- name: payload
-- A text and its salt.
SELECT salt, body FROM cf_payload WHERE position = %s

-- name: payloads_after
-- A page of the texts that remain.
SELECT position, salt, body FROM cf_payload WHERE position > %s ORDER BY position LIMIT %s

-- name: event_state
-- The state of the event at a position.
SELECT type, type_version, state FROM cf_event WHERE position = %s

-- name: event_of
-- The state of an aggregate's event with this version.
SELECT type, type_version, state FROM cf_event WHERE originator_id = %s AND originator_version = %s

-- name: external_id
-- The platform's id of the event or message at a position.
SELECT external_id FROM cf_external_id WHERE position = %s

-- name: scope_of
-- The scope of a tenant, account and user.
SELECT scope_id, key FROM cf_scope
WHERE tenant = %s AND coalesce(account, '') = coalesce(%s::text, '') AND coalesce("user", '') = coalesce(%s::text, '')
    AND key IS NOT NULL

-- name: scope_by_id
-- What a scope id stands for.
SELECT scope_id, key, tenant, account, "user" FROM cf_scope WHERE scope_id = %s

-- name: scopes_of_tenant
-- The scopes of one tenant.
SELECT scope_id FROM cf_scope WHERE tenant = %s

-- name: subject
-- Whom a pseudonym stands for.
SELECT value FROM cf_subject WHERE pseudonym = %s

-- name: deadline
-- The running deadline of a lease.
SELECT lease_id, opening_id, token, boot_id, at, renewal, ttl, ends FROM cf_deadline WHERE lease_id = %s

-- name: epoch_at
-- The epoch that stands at a position.
SELECT epoch FROM cf_epochs_v1 WHERE position < %s ORDER BY position DESC LIMIT 1

-- name: command
-- The kept answer to a command id.
SELECT fingerprint, answer, recorded_at FROM cf_command WHERE scope_id = %s AND command_id = %s

-- name: repeats
-- How often an operation was delivered again after the first repeat.
SELECT count FROM cf_repeat WHERE operation = %s

-- name: projections
-- How far each projection is folded.
SELECT name, version,
    coalesce(cf_projection.position, (SELECT position FROM cf_event ORDER BY position DESC LIMIT 1), head.position)
FROM cf_projection CROSS JOIN cf_head AS head

-- name: queue
-- The entries of one route in order of their places.
SELECT operation, operation_id, route, place, opening_id, entered_at, grant_version, claimed_by
FROM cf_queues_v1 WHERE route = %s ORDER BY place

-- name: load_of_opening
-- How many entries an opening has in each route, and how many of them wait.
SELECT route, count(*), count(*) FILTER (WHERE grant_version IS NULL) FROM cf_queues_v1 WHERE opening_id = %s GROUP BY route

-- name: waiting_routes
-- Every route with waiting entries, with the opening of its head and the scope of its operations.
SELECT route, place, opening_id, scope_id
FROM (
    SELECT DISTINCT ON (route) route, place, q.opening_id, u.scope_id
    FROM cf_queues_v1 AS q JOIN cf_unresolved_v1 AS u USING (operation) WHERE grant_version IS NULL ORDER BY route, place
) AS head
ORDER BY place

-- name: unresolved_of_subject
-- The unresolved operations that a pseudonym belongs to, as actor, conversation or thread.
SELECT unresolved.operation_id FROM cf_unresolved_v1 AS unresolved JOIN cf_event ON position = unresolved.operation
WHERE %(pseudonym)s IN (actor, conversation, thread) ORDER BY unresolved.operation

-- name: unresolved_of_scope
-- The unresolved operations of a scope.
SELECT operation_id FROM cf_unresolved_v1 WHERE scope_id = %s ORDER BY operation
