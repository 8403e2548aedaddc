-- name: stream
-- A stretch of one aggregate's events, in order of version.
SELECT originator_id, originator_version, type, type_version, state FROM cf_event
WHERE originator_id = %s AND originator_version > %s AND originator_version <= %s
ORDER BY originator_version LIMIT nullif(%s::bigint, -1)

-- name: stream_backwards
-- A stretch of one aggregate's events, newest first.
SELECT originator_id, originator_version, type, type_version, state FROM cf_event
WHERE originator_id = %s AND originator_version > %s AND originator_version <= %s
ORDER BY originator_version DESC LIMIT nullif(%s::bigint, -1)

-- name: notifications
-- A stretch of the history, in order of position.
SELECT position, originator_id, originator_version, type, type_version, state FROM cf_event
WHERE position BETWEEN %s AND %s ORDER BY position LIMIT nullif(%s::bigint, -1)

-- name: notifications_of_topics
-- A stretch of the history, of some topics only.
SELECT position, originator_id, originator_version, type, type_version, state FROM cf_event
WHERE position BETWEEN %(first)s AND %(last)s
    AND CASE type_version WHEN 0 THEN type ELSE type || '/' || type_version END = ANY(%(topics)s::text[])
ORDER BY position LIMIT nullif(%(limit)s::bigint, -1)
