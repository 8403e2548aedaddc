-- name: unsynced
-- What is lost with the machine is folded anew.
SET LOCAL synchronous_commit TO off

-- name: lock_free
-- Up to where a projection is folded, unless somebody else is folding it.
SELECT position FROM cf_projection WHERE name = %s AND version = %s FOR UPDATE SKIP LOCKED

-- name: lock
-- Up to where a projection is folded; NULL while every append folds it.
SELECT position FROM cf_projection WHERE name = %s AND version = %s FOR UPDATE

-- name: move
-- A projection is folded up to here.
UPDATE cf_projection SET position = %s WHERE name = %s AND version = %s

-- name: arrive
-- A projection is at the head, if nobody has appended meanwhile, and is folded by each append from now on.
SELECT cf_arrive(%s, %s)

-- name: hiding
-- Temporary tables come first, until the transaction ends.
SELECT set_config('search_path', %s, true)
