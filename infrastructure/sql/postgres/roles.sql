-- name: make
-- Three roles in which nobody logs in: grant them to those who do. They may connect; to compare the schema with what it should be, its
-- owner also makes temporary tables.
DO $function$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY[{owner_name}, {writer_name}, {reader_name}] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        END IF;
        EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), wanted);
    END LOOP;
    EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO %I', current_database(), {owner_name});
END
$function$

-- name: own_schema
-- The owner creates and upgrades.
ALTER SCHEMA {schema} OWNER TO {owner}

-- name: own_table
-- It has each table,
ALTER TABLE {schema}.{object} OWNER TO {owner}

-- name: own_function
-- and each function.
ALTER FUNCTION {schema}.{object} OWNER TO {owner}

-- name: grants
-- The writer appends, and changes no event. The reader sees neither texts nor ids of people, platforms and keys of locks.
GRANT USAGE ON SCHEMA {schema} TO {writer}, {reader};

GRANT SELECT, UPDATE (position, epoch, opening_id, erasures, system_identifier, timeline, schema_oid)
    ON {schema}.cf_head TO {writer};
GRANT SELECT, INSERT ON {schema}.cf_event TO {writer};
GRANT SELECT, INSERT, DELETE ON {schema}.cf_payload TO {writer};
GRANT SELECT, INSERT, DELETE ON {schema}.cf_external_id TO {writer};
GRANT SELECT, INSERT, DELETE, UPDATE (tenant, account, "user", key) ON {schema}.cf_scope TO {writer};
GRANT SELECT, INSERT, DELETE ON {schema}.cf_subject TO {writer};
GRANT SELECT, INSERT, DELETE ON {schema}.cf_lock_key TO {writer};
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.cf_deadline TO {writer};
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.cf_waiter TO {writer};
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.cf_held_back TO {writer};
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.cf_command TO {writer};
GRANT SELECT, INSERT, UPDATE ON {schema}.cf_repeat TO {writer};
GRANT SELECT, INSERT, DELETE ON {schema}.cf_staged TO {writer};
GRANT SELECT, UPDATE (position) ON {schema}.cf_projection TO {writer};

GRANT SELECT (
    id, format, schema_version, position, digest, recorded_at, epoch, opening_id, erasures, system_identifier, timeline, schema_oid
) ON {schema}.cf_head TO {reader};
GRANT SELECT ON {schema}.cf_event TO {reader};
GRANT SELECT (position) ON {schema}.cf_payload TO {reader};
GRANT SELECT (scope_id, tenant) ON {schema}.cf_scope TO {reader};
GRANT SELECT (lease_id, opening_id, boot_id, at, renewal, ttl, ends, renewed_at) ON {schema}.cf_deadline TO {reader};
GRANT SELECT (place, lease_id, opening_id, lock, ttl, max_hold, lock_delay, asked_at, offered_until)
    ON {schema}.cf_waiter TO {reader};
GRANT SELECT ON {schema}.cf_repeat TO {reader};
GRANT SELECT ON {schema}.cf_projection TO {reader};
GRANT EXECUTE ON FUNCTION {schema}.cf_clock TO {reader};
GRANT EXECUTE ON FUNCTION {schema}.cf_show_texts TO {reader};
GRANT EXECUTE ON FUNCTION {schema}.cf_commitments TO {reader}

-- name: grant_rows
-- The rows of a projection, which hold pseudonyms and words of the host.
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.{object} TO {writer};
GRANT SELECT ON {schema}.{object} TO {reader}

-- name: grant_function
-- What an append calls.
GRANT EXECUTE ON FUNCTION {schema}.{object} TO {writer}

-- name: are_there
-- Whether all of these roles are there.
SELECT count(*) = 3 FROM pg_roles WHERE rolname = ANY(%s)
