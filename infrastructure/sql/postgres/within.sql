-- What is asked and staged in a host's transaction, on its own connection, whose search path is the host's.

-- name: look
-- Tells of a connection whether it writes to where an opening lives, and whether its role may stage and append there: the oid of
-- the schema, the opening, and the oid twice again. Nothing of it fails, which would end the transaction.
SELECT
  EXISTS (
    SELECT FROM pg_catalog.pg_locks
    WHERE locktype = 'advisory'
      AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
      AND classid = (%s)::oid
      AND objid = (%s)::oid
      AND objsubid = 2
      AND mode = 'ExclusiveLock'
      AND granted
  ) AND pg_catalog.to_regnamespace({name})::oid = (%s)::oid,
  pg_catalog.current_setting('transaction_read_only') = 'off',
  pg_catalog.current_setting('session_replication_role') <> 'replica',
  (
    SELECT pg_catalog.bool_and(
      pg_catalog.has_schema_privilege(relnamespace, 'USAGE')
      AND pg_catalog.has_table_privilege(oid, 'INSERT')
      AND pg_catalog.has_table_privilege(oid, 'SELECT')
      AND (relname = 'cf_event' OR pg_catalog.has_table_privilege(oid, 'DELETE'))
    )
    FROM pg_catalog.pg_class
    WHERE relnamespace = (%s)::oid AND relname IN ('cf_staged', 'cf_event') AND relkind = 'r'
  )

-- name: staged
-- Those of the records that are staged in the running transaction: a savepoint that was rolled back has taken others with it.
SELECT id FROM {schema}.cf_staged WHERE id = ANY (%s::bigint[])

-- name: replace
-- Have a record appended by the COMMIT of the running transaction in the place of others.
WITH gone AS (DELETE FROM {schema}.cf_staged WHERE id = ANY (%s::bigint[]))
INSERT INTO {schema}.cf_staged (record) VALUES (%s::jsonb) RETURNING id

-- name: take_back
-- Have records not appended.
DELETE FROM {schema}.cf_staged WHERE id = ANY (%s::bigint[])

-- name: hold
-- Keep a lease from ending and from being given away until the transaction has ended, if it is the very grant.
SELECT 1 FROM {schema}.cf_leases_v1
WHERE lease_id = %s AND position = %s::bigint AND opening_id = %s::integer AND held = 1
FOR SHARE

-- name: transaction
-- The number of the running transaction, by which can be told later what became of it; none if it has changed nothing.
SELECT pg_current_xact_id_if_assigned()::text

-- name: outcome
-- What became of a transaction.
SELECT pg_xact_status(%s::text::xid8)
