-- name: stream
-- A stretch of one aggregate's events, in order of version.
SELECT originator_id, originator_version, type, type_version, state FROM cf_event
WHERE originator_id = ? AND originator_version > ? AND originator_version <= ? ORDER BY originator_version LIMIT ?

-- name: stream_backwards
-- A stretch of one aggregate's events, newest first.
SELECT originator_id, originator_version, type, type_version, state FROM cf_event
WHERE originator_id = ? AND originator_version > ? AND originator_version <= ? ORDER BY originator_version DESC LIMIT ?

-- name: notifications
-- A stretch of the history, in order of position.
SELECT position, originator_id, originator_version, type, type_version, state FROM cf_event
WHERE position BETWEEN ? AND ? ORDER BY position LIMIT ?

-- name: notifications_of_topics
-- A stretch of the history, of some topics only, which come as a JSON array.
SELECT position, originator_id, originator_version, type, type_version, state FROM cf_event
WHERE position BETWEEN :first AND :last
    AND CASE type_version WHEN 0 THEN type ELSE type || '/' || type_version END IN (SELECT value FROM temp.json_each(:topics))
ORDER BY position LIMIT :limit
