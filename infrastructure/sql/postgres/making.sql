-- name: found
-- Whether a role may use a schema, NULL where there is none; whether it holds a journal, and how many tables it has by our names.
SELECT (SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = %(schema)s),
    coalesce(bool_or(relname = 'cf_head'), false), count(*)
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %(schema)s AND relkind IN ('r', 'p') AND starts_with(relname, 'cf_')

-- name: one_at_a_time
-- Of those who would make the same journal, or upgrade it, one does it, and the others wait.
SELECT pg_advisory_xact_lock(hashtextextended('counterfoil:' || %(schema)s, 0))

-- name: format
-- The format of what a journal holds, whatever else is different in it.
SELECT format FROM cf_head WHERE id = 1

-- name: made_of
-- What a journal is made of, in short: the version of its schema, the projections that it keeps, and whether what appends to it writes
-- to this schema; NULL where nothing does. In a schema that was renamed it writes to the one of the old name.
SELECT schema_version, ARRAY(SELECT name || '_v' || version FROM cf_projection),
    (
        SELECT bool_and(position(%(here)s IN prosrc) > 0)
        FROM pg_proc WHERE proname = 'cf_append' AND pronamespace = quote_ident(current_schema())::regnamespace
    )
FROM cf_head WHERE id = 1

-- name: snapshot
-- What is read in this transaction is of one moment.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ
