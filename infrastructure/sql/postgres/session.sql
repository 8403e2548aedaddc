-- What a connection asks of its server beside the journal's own tables.

-- name: facts
-- Tells whom a connection has reached; the mark is what it has set itself, unless somebody else has the session. What has
-- returned is durable, whatever the default of the role.
SELECT
  pg_backend_pid(),
  current_setting('counterfoil.mark', true),
  pg_is_in_recovery(),
  (SELECT (extract(epoch FROM backend_start) * 1000000)::bigint FROM pg_stat_activity WHERE pid = pg_backend_pid()),
  set_config(
    'synchronous_commit',
    CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,
    false
  )

-- name: system
-- Names the cluster: its copies have the same name, what was restored from a dump has not. Some services hide it.
SELECT system_identifier::text
FROM pg_control_system()

-- name: timeline
-- Names the timeline in hexadecimal digits: it goes up with every promotion and every recovery to a point in time.
SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)

-- name: schema_oid
-- Tells a schema from another one of its name; NULL where there is none.
SELECT oid::bigint
FROM pg_namespace
WHERE nspname = %s

-- name: show_life
-- Takes the lock that is an opening's sign of life; false when it is taken.
SELECT pg_try_advisory_lock(%s, %s)

-- name: wait_for_end
-- Waits until an opening has ended, by a lock that is no sign of life.
SELECT pg_advisory_lock_shared($1, $2)

-- name: live
-- Tells which openings live: class, openings. The locks of a primary are not seen on its standby, where all count as living.
SELECT opening
FROM unnest(%s::int[]) AS opening
WHERE pg_is_in_recovery()
  OR opening::bigint IN (
    SELECT objid::bigint
    FROM pg_locks
    WHERE locktype = 'advisory'
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND classid = %s::oid
      AND objsubid = 2
      AND mode = 'ExclusiveLock'
      AND granted
  )
