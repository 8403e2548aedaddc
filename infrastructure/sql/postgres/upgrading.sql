-- name: owner
-- Whose a journal is.
SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'cf_event'::regclass

-- name: act_as
-- What is made in this transaction is its owner's, whoever of them makes it.
SET LOCAL ROLE {object}

-- name: be_patient
-- To make an index takes as long as there are rows.
SET LOCAL statement_timeout TO 0

-- name: queue_up
-- Nobody appends before the commit.
SELECT pg_advisory_xact_lock(quote_ident(current_schema())::regnamespace::oid::integer, 0)

-- name: schema_version
-- The version of what a schema is made of.
SELECT schema_version FROM cf_head WHERE id = 1

-- name: set_schema_version
-- What it is from now on.
UPDATE cf_head SET schema_version = %s WHERE id = 1

-- name: overloads
-- The functions of one name, as they are dropped.
SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = quote_ident(current_schema())::regnamespace AND proname = %s

-- name: drop_function
-- One that takes or returns something else than it should.
DROP FUNCTION {function}

-- name: drop_index
-- One that is to be made anew.
DROP INDEX IF EXISTS {schema}.{object}

-- name: drop_trigger
-- The one that is to be made anew.
DROP TRIGGER IF EXISTS cf_staged ON {schema}.cf_staged

-- name: empty
-- The rows of a projection that is folded anew.
DELETE FROM {schema}.{object}

-- name: leave_out
-- A projection is not entered any more.
DELETE FROM cf_projection WHERE name = %s AND version = %s
