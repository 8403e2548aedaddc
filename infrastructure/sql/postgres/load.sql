-- name: streams
-- The events of several aggregates, each in order.
SELECT position, recorded_at, originator_id, originator_version, type, type_version, opening_id, actor_kind, scope_id,
    connection, conversation, thread, actor, operation, correlation, causation, state, digest
FROM cf_event WHERE originator_id = ANY(%(ids)s::text[]) ORDER BY originator_id, originator_version

-- name: queues
-- The entries of several routes, each in order of their places.
SELECT operation, operation_id, route, place, opening_id, entered_at, grant_version, claimed_by
FROM cf_queues_v1 WHERE route = ANY(%(routes)s::text[]) ORDER BY route, place

-- name: deadlines
-- The running deadlines of several leases.
SELECT lease_id, opening_id, token, boot_id, at, renewal, ttl, ends FROM cf_deadline WHERE lease_id = ANY(%(ids)s::text[])

-- name: touched
-- In which conversations something has happened, and by which openings.
SELECT position, conversation, opening_id FROM cf_event WHERE position > %s AND position <= %s

-- name: events
-- Some events, whole.
SELECT position, recorded_at, originator_id, originator_version, type, type_version, opening_id, actor_kind, scope_id,
    connection, conversation, thread, actor, operation, correlation, causation, state, digest
FROM cf_event WHERE position = ANY(%(positions)s::bigint[]) ORDER BY position

-- name: scopes
-- Several scopes, by their tenants, accounts and users, in lists of one length.
SELECT scope_id, key, cf_scope.tenant, cf_scope.account, cf_scope."user"
FROM unnest(%(tenants)s::text[], %(accounts)s::text[], %(users)s::text[]) AS asked (tenant, account, "user")
JOIN cf_scope ON cf_scope.tenant = asked.tenant AND coalesce(cf_scope.account, '') = coalesce(asked.account, '')
    AND coalesce(cf_scope."user", '') = coalesce(asked."user", '')
WHERE key IS NOT NULL
