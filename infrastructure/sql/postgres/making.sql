-- name: found
-- Whether a schema holds a journal, and how many tables it has by our names.
SELECT coalesce(bool_or(relname = 'cf_head'), false), count(*)
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %(schema)s AND relkind IN ('r', 'p') AND starts_with(relname, 'cf_')

-- name: one_at_a_time
-- Of those who would make the same journal one does it, and the others wait.
SELECT pg_advisory_xact_lock(hashtextextended('counterfoil:' || %(schema)s, 0))

-- name: schema
-- The schema, unless an owner has made it.
CREATE SCHEMA IF NOT EXISTS {schema}

-- name: snapshot
-- What is read in this transaction is of one moment.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ
