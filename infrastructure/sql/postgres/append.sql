-- name: clock
-- The clock that stamps events, in microseconds since 1970.
CREATE FUNCTION {schema}.cf_clock() RETURNS bigint
LANGUAGE sql
AS $function$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$function$

-- name: append
-- Append a record, if what it was decided on still stands: events, rows and all that is written beside them, in one transaction.
--
-- The record was decided when the head was at `seen`. Positions above that and times from `since` on are provisional, and are moved
-- to where the record lands. `own_head` and `own_delay` are given for a record that goes on from others of the same transaction:
-- where the head was before the first of them, and by how much their times were moved.
--
-- A plan is kept for as long as the connection lives, and is made when the tables may be empty: whatever it then costs least to read
-- whole is not read whole for that. Set for the function alone, these settings cost next to nothing, and bind nobody else.
CREATE FUNCTION {schema}.cf_append(
    record jsonb, own_head bigint DEFAULT NULL, own_delay bigint DEFAULT NULL,
    OUT status text, OUT conflict text, OUT head_before bigint, OUT first_position bigint, OUT first_recorded_at bigint,
    OUT epoch_after bigint, OUT clock bigint
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $function$
DECLARE
    seen CONSTANT bigint NOT NULL := (record ->> 'seen')::bigint;
    since CONSTANT bigint NOT NULL := (record ->> 'since')::bigint;
    goes_on CONSTANT bigint NOT NULL := coalesce((record ->> 'goes_on')::bigint, 0);
    events CONSTANT jsonb := record -> 'events';
    part jsonb;
    leaves bytea;
    many bigint NOT NULL := 0;
    last bytea;
    digests bytea[];
    head_time bigint;
    erasures_before bigint;
    folded bigint;
    at_head bigint;
    others_to bigint;
    places bigint;
    delay bigint;
    rings jsonb NOT NULL := '[]';
    kept bigint;
    held bigint;
BEGIN
    -- One after the other. No row is locked for that: dead versions of it would gather under an old snapshot.
    PERFORM pg_advisory_xact_lock({name}::regnamespace::oid::integer, 0);
    clock := {schema}.cf_clock();
    SELECT greatest(newest.position, base.position), coalesce(newest.digest, base.digest),
        coalesce(newest.recorded_at, base.recorded_at), base.epoch, base.erasures
    INTO STRICT head_before, last, head_time, epoch_after, erasures_before
    FROM {schema}.cf_head AS base LEFT JOIN LATERAL (
        SELECT position, digest, recorded_at FROM {schema}.cf_event ORDER BY position DESC LIMIT 1
    ) AS newest ON true
    WHERE base.id = 1;

    -- Whether it stands.
    status := 'conflict';
    IF head_before < seen + goes_on THEN
        conflict := 'head';
        RETURN;
    END IF;
    IF goes_on > 0 AND head_before - own_head IS DISTINCT FROM goes_on THEN
        conflict := 'record';
        RETURN;
    END IF;
    IF erasures_before IS DISTINCT FROM (record ->> 'erasures')::bigint THEN
        conflict := 'erasure';
        RETURN;
    END IF;
    IF record ? 'epoch' AND epoch_after IS DISTINCT FROM (record ->> 'epoch_before')::bigint THEN
        conflict := 'epoch';
        RETURN;
    END IF;
    IF record ? 'leases' THEN
        -- A host's transaction may hold the row of a lease that it is guarded by, for as long as it likes: nobody waits for it here,
        -- where all others would wait too. What holds it ends without us.
        SELECT count(*) INTO held FROM {schema}.cf_leases_v1
        WHERE lease_id IN (SELECT jsonb_array_elements_text(record -> 'leases'));
        PERFORM FROM {schema}.cf_leases_v1
        WHERE lease_id IN (SELECT jsonb_array_elements_text(record -> 'leases'))
        FOR NO KEY UPDATE SKIP LOCKED;
        GET DIAGNOSTICS kept = ROW_COUNT;
        IF kept < held THEN
            conflict := 'guard';
            RETURN;
        END IF;
    END IF;
    IF events IS NOT NULL THEN
        SELECT count(*) FILTER (WHERE record -> 'folds' ? (name || '_v' || version)), count(*) INTO folded, at_head
        FROM {schema}.cf_projection WHERE position IS NULL;
        IF folded < jsonb_array_length(record -> 'folds') THEN
            status := 'behind';
            conflict := 'projection';
            RETURN;
        END IF;
        IF record ? 'presumed' THEN
            PERFORM FROM jsonb_array_elements_text(record -> 'presumed') AS said (conversation), LATERAL (
                SELECT FROM {schema}.cf_event AS event WHERE event.conversation = said.conversation::bytea LIMIT 1
            ) AS ever;
            IF FOUND THEN
                conflict := 'conversation';
                RETURN;
            END IF;
        END IF;
        IF record ? 'presumed_routes' THEN
            PERFORM FROM jsonb_array_elements_text(record -> 'presumed_routes') AS said (route), LATERAL (
                SELECT FROM {schema}.cf_queues_v1 AS queued WHERE queued.route = said.route LIMIT 1
            ) AS queue;
            IF FOUND THEN
                conflict := 'conversation';
                RETURN;
            END IF;
        END IF;
        others_to := CASE WHEN goes_on > 0 THEN own_head ELSE head_before END;
        IF others_to > seen THEN
            PERFORM FROM jsonb_array_elements_text(record -> 'conversations') AS said (conversation), LATERAL (
                SELECT FROM {schema}.cf_event AS event
                WHERE event.conversation = said.conversation::bytea AND event.position > seen AND event.position <= others_to
                LIMIT 1
            ) AS later;
            IF FOUND THEN
                conflict := 'conversation';
                RETURN;
            END IF;
        END IF;
        -- The index would find it too, but by an error, which tells the server's log whatever it comes from.
        PERFORM FROM jsonb_to_recordset(events) AS event (originator_id text, version bigint), LATERAL (
            SELECT FROM {schema}.cf_event AS stored
            WHERE stored.originator_id = event.originator_id AND stored.originator_version = event.version
            LIMIT 1
        ) AS taken;
        IF FOUND THEN
            conflict := 'stream';
            RETURN;
        END IF;
    END IF;
    part := record -> 'relied';
    IF part IS NOT NULL THEN
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            -- An old snapshot does not show a renewal; to lock its row does, by an error.
            PERFORM FROM {schema}.cf_deadline WHERE lease_id IN (
                SELECT lease_id FROM jsonb_to_recordset(part) AS relied (lease_id text)
            ) FOR SHARE;
        END IF;
        PERFORM FROM jsonb_to_recordset(part) AS relied (lease_id text, token bytea, renewal bigint) LEFT JOIN LATERAL (
            SELECT token, renewal FROM {schema}.cf_deadline WHERE lease_id = relied.lease_id
        ) AS stored ON true
        WHERE (stored.token, stored.renewal) IS DISTINCT FROM (relied.token, relied.renewal);
        IF FOUND THEN
            conflict := 'deadline';
            RETURN;
        END IF;
    END IF;
    part := record -> 'commands';
    IF part IS NOT NULL THEN
        PERFORM FROM jsonb_to_recordset(part) AS new (scope_id bytea, command_id bytea, before bigint) LEFT JOIN LATERAL (
            SELECT recorded_at FROM {schema}.cf_command WHERE scope_id = new.scope_id AND command_id = new.command_id
        ) AS stored ON true
        WHERE stored.recorded_at IS DISTINCT FROM new.before;
        IF FOUND THEN
            conflict := 'command';
            RETURN;
        END IF;
    END IF;
    part := record -> 'scopes';
    IF part IS NOT NULL THEN
        PERFORM FROM jsonb_to_recordset(part) AS new (tenant text, account text, "user" text), LATERAL (
            SELECT FROM {schema}.cf_scope AS stored
            WHERE stored.tenant = new.tenant AND coalesce(stored.account, '') = coalesce(new.account, '')
                AND coalesce(stored."user", '') = coalesce(new."user", '') AND stored.key IS NOT NULL
            LIMIT 1
        ) AS begun;
        IF FOUND THEN
            conflict := 'scope';
            RETURN;
        END IF;
    END IF;

    -- It does. Where it lands.
    status := 'appended';
    IF goes_on > 0 THEN
        delay := own_delay;
        first_recorded_at := since + goes_on + delay;
    ELSE
        first_recorded_at := greatest(clock, head_time + 1);
        delay := first_recorded_at - since;
    END IF;
    places := greatest(head_before, coalesce((record ->> 'least')::bigint, 0)) - seen - goes_on;
    IF record ? 'unsynced' THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    IF record ? 'epoch' THEN
        epoch_after := (record ->> 'epoch')::bigint;
        UPDATE {schema}.cf_head SET epoch = epoch_after WHERE id = 1;
    END IF;
    IF events IS NOT NULL THEN
        first_position := seen + goes_on + places + 1;
        leaves := record ->> 'leaves';
        many := jsonb_array_length(events);
        FOR nth IN 0 .. many - 1 LOOP
            last := sha256(
                last || int8send(first_position + nth) || int8send(first_recorded_at + nth)
                || substring(leaves FROM nth::integer * 32 + 1 FOR 32)
            );
            digests[nth] := last;
        END LOOP;
        INSERT INTO {schema}.cf_event (
            position, recorded_at, originator_id, originator_version, type, type_version, opening_id, actor_kind, scope_id, connection,
            conversation, thread, actor, operation, correlation, causation, state, digest
        )
        SELECT first_position + nth - 1, first_recorded_at + nth - 1, originator_id, version, type, type_version, opening_id,
            actor_kind, scope_id, connection, conversation, thread, actor, operation, correlation, causation, state, digest
        FROM ROWS FROM (
            jsonb_to_recordset(events) AS (
                originator_id text, version bigint, type text, type_version integer, opening_id integer, actor_kind text,
                scope_id bytea, connection text, conversation bytea, thread bytea, actor bytea, operation bigint, correlation bytea,
                causation bigint, state bytea
            ),
            unnest(digests)
        ) WITH ORDINALITY AS event (
            originator_id, version, type, type_version, opening_id, actor_kind, scope_id, connection, conversation, thread, actor,
            operation, correlation, causation, state, digest, nth
        );
        IF at_head > folded THEN
            UPDATE {schema}.cf_projection SET position = head_before
            WHERE position IS NULL AND NOT record -> 'folds' ? (name || '_v' || version);
        END IF;
    END IF;
    IF record ? 'scopes' THEN
        INSERT INTO {schema}.cf_scope (scope_id, tenant, account, "user", key)
        SELECT scope_id, tenant, account, "user", key
        FROM jsonb_to_recordset(record -> 'scopes') AS new (scope_id bytea, tenant text, account text, "user" text, key bytea);
    END IF;
    IF record ? 'subjects' THEN
        INSERT INTO {schema}.cf_subject (pseudonym, scope_id, kind, connection, value)
        SELECT pseudonym, scope_id, kind, connection, value
        FROM jsonb_to_recordset(record -> 'subjects')
            AS new (pseudonym bytea, scope_id bytea, kind text, connection text, value text)
        ON CONFLICT DO NOTHING;
    END IF;
    IF record ? 'payloads' THEN
        INSERT INTO {schema}.cf_payload (position, salt, body)
        SELECT CASE WHEN position > seen THEN position + places ELSE position END, salt, body
        FROM jsonb_to_recordset(record -> 'payloads') AS new (position bigint, salt bytea, body bytea);
    END IF;
    IF record ? 'external_ids' THEN
        INSERT INTO {schema}.cf_external_id (position, external_id)
        SELECT CASE WHEN position > seen THEN position + places ELSE position END, external_id
        FROM jsonb_to_recordset(record -> 'external_ids') AS new (position bigint, external_id text);
    END IF;
    IF record ? 'erased' THEN
        DELETE FROM {schema}.cf_payload WHERE position IN (
            SELECT CASE WHEN erased > seen THEN erased + places ELSE erased END
            FROM (SELECT value::bigint AS erased FROM jsonb_array_elements_text(record -> 'erased')) AS ended
        );
    END IF;
    IF record ? 'actions' THEN
        FOR part IN SELECT value FROM jsonb_array_elements(record -> 'actions') LOOP
            PERFORM {schema}.cf_act(part, seen, places, since, delay);
        END LOOP;
        IF record ? 'erases' THEN
            UPDATE {schema}.cf_head SET erasures = erasures + 1 WHERE id = 1;
        END IF;
    END IF;
    IF record ? 'rows' THEN
        PERFORM {schema}.cf_write(record -> 'rows', seen, places, since, delay);
    END IF;
    IF record ? 'deadlines' THEN
        INSERT INTO {schema}.cf_deadline AS stored (lease_id, opening_id, token, boot_id, at, renewal, ttl, ends, renewed_at)
        SELECT lease_id, opening_id, token, boot_id, at, renewal, ttl, ends, clock
        FROM jsonb_to_recordset(record -> 'deadlines') AS new (
            lease_id text, opening_id integer, token bytea, boot_id text, at bigint, renewal bigint, ttl bigint, ends bigint
        )
        ON CONFLICT (lease_id) DO UPDATE SET opening_id = excluded.opening_id, token = excluded.token, boot_id = excluded.boot_id,
            at = excluded.at, renewal = excluded.renewal, ttl = excluded.ttl, ends = excluded.ends, renewed_at = excluded.renewed_at;
    END IF;
    IF record ? 'rings' THEN
        rings := record -> 'rings';
    END IF;
    IF record ? 'ended' THEN
        DELETE FROM {schema}.cf_deadline WHERE lease_id IN (SELECT jsonb_array_elements_text(record -> 'ended'));
        -- Whoever has come to the line since the decision is to look too.
        SELECT rings || coalesce(jsonb_agg(jsonb_build_array(first.opening_id, ended.lease_id)), '[]') INTO rings
        FROM jsonb_array_elements_text(record -> 'ended') AS ended (lease_id), LATERAL (
            SELECT opening_id FROM {schema}.cf_waiter WHERE lease_id = ended.lease_id AND offered_until IS DISTINCT FROM 0
            ORDER BY place LIMIT 1
        ) AS first
        WHERE first.opening_id <> (record ->> 'opening_id')::integer
            AND NOT rings @> jsonb_build_array(jsonb_build_array(first.opening_id, ended.lease_id));
    END IF;
    IF record ? 'commands' THEN
        INSERT INTO {schema}.cf_command AS stored (scope_id, command_id, fingerprint, answer, recorded_at)
        SELECT scope_id, command_id, fingerprint,
            answer,
            CASE WHEN recorded_at >= since THEN recorded_at + delay ELSE recorded_at END
        FROM jsonb_to_recordset(record -> 'commands') AS new (
            scope_id bytea, command_id bytea, fingerprint bytea, answer bytea, recorded_at bigint
        )
        ON CONFLICT (scope_id, command_id) DO UPDATE
        SET fingerprint = excluded.fingerprint, answer = excluded.answer, recorded_at = excluded.recorded_at;
        DELETE FROM {schema}.cf_command WHERE recorded_at < first_recorded_at - (record ->> 'keep_commands')::bigint;
    END IF;
    IF rings <> '[]' THEN
        PERFORM {schema}.cf_ring(rings);
    END IF;
END
$function$

-- name: act
-- Do what is rare: an action by its name, with its values, as a record holds it.
CREATE FUNCTION {schema}.cf_act(action jsonb, seen bigint, places bigint, since bigint, delay bigint) RETURNS void
LANGUAGE plpgsql
AS $function$
DECLARE
    about bigint;
    named bytea;
BEGIN
    CASE action ->> 0
    -- An operation was delivered once more after the first repeat.
    WHEN 'count_repeat' THEN
        about := (action ->> 1)::bigint;
        INSERT INTO {schema}.cf_repeat AS stored (operation, count)
        VALUES (CASE WHEN about > seen THEN about + places ELSE about END, 1)
        ON CONFLICT (operation) DO UPDATE SET count = stored.count + 1;

    -- Lines of locks. The key of a lock's id is remembered, or is to be known no longer.
    WHEN 'remember_key' THEN
        INSERT INTO {schema}.cf_lock_key (lease_id, key) VALUES (action ->> 1, action ->> 2) ON CONFLICT DO NOTHING;
    WHEN 'forget_keys' THEN
        DELETE FROM {schema}.cf_lock_key WHERE key = action ->> 1;
    WHEN 'forget_keys_of_scope' THEN
        DELETE FROM {schema}.cf_lock_key WHERE key IN (
            SELECT value FROM {schema}.cf_subject WHERE scope_id = (action ->> 1)::bytea
        );
    -- Somebody takes the last place in the line of a key, or gives one up.
    WHEN 'enter' THEN
        INSERT INTO {schema}.cf_waiter (lease_id, opening_id, token, lock, ttl, max_hold, lock_delay, asked_at)
        VALUES (
            action ->> 1, (action ->> 2)::integer, (action ->> 3)::bytea, action ->> 4, (action ->> 5)::bigint, (action ->> 6)::bigint,
            (action ->> 7)::bigint,
            (action ->> 8)::bigint + CASE WHEN (action ->> 8)::bigint >= since THEN delay ELSE 0 END
        )
        ON CONFLICT DO NOTHING;
    WHEN 'leave' THEN
        DELETE FROM {schema}.cf_waiter WHERE lease_id = action ->> 1 AND token = (action ->> 2)::bytea;
    WHEN 'leave_with_opening' THEN
        DELETE FROM {schema}.cf_waiter WHERE opening_id = (action ->> 1)::integer;
    -- An opening has let an offer pass, so its places are stepped over; or it looks again.
    WHEN 'step_over' THEN
        UPDATE {schema}.cf_waiter SET offered_until = 0 WHERE lease_id = action ->> 1 AND opening_id = (action ->> 2)::integer;
    WHEN 'awake' THEN
        UPDATE {schema}.cf_waiter SET offered_until = NULL
        WHERE lease_id = action ->> 1 AND opening_id = (action ->> 2)::integer AND offered_until = 0;
    -- The key is free, and one in line has until then to take it; or nobody gets it before then.
    WHEN 'offer' THEN
        UPDATE {schema}.cf_waiter SET offered_until = (action ->> 3)::bigint
        WHERE lease_id = action ->> 1 AND token = (action ->> 2)::bytea;
    WHEN 'hold_back' THEN
        INSERT INTO {schema}.cf_held_back (lease_id, boot_id, at) VALUES (action ->> 1, action ->> 2, (action ->> 3)::bigint)
        ON CONFLICT (lease_id) DO UPDATE SET boot_id = excluded.boot_id, at = excluded.at;
    WHEN 'let_go' THEN
        DELETE FROM {schema}.cf_held_back WHERE lease_id = action ->> 1;

    -- Erasures: of whom a pseudonym stands for, and the texts and platform ids of the operations that it belongs to, as actor,
    -- conversation or thread.
    WHEN 'erase_subject' THEN
        DELETE FROM {schema}.cf_subject WHERE pseudonym = (action ->> 1)::bytea;
    WHEN 'erase_payloads_of_subject', 'erase_external_ids_of_subject' THEN
        named := (action ->> 1)::bytea;
        PERFORM {schema}.cf_erase(action ->> 0, ARRAY(
            SELECT position FROM {schema}.cf_event WHERE actor = named AND type = 'operation.admitted'
            UNION SELECT position FROM {schema}.cf_event WHERE conversation = named AND type = 'operation.admitted'
            UNION SELECT position FROM {schema}.cf_event WHERE thread = named AND type = 'operation.admitted'
        ));
    -- Of a scope: its texts, platform ids, people, kept answers, and its key and what it stands for.
    WHEN 'erase_payloads_of_scope', 'erase_external_ids_of_scope' THEN
        named := (action ->> 1)::bytea;
        PERFORM {schema}.cf_erase(action ->> 0, ARRAY(
            SELECT position FROM {schema}.cf_event WHERE scope_id = named AND type = 'operation.admitted'
        ));
    WHEN 'erase_subjects_of_scope' THEN
        DELETE FROM {schema}.cf_subject WHERE scope_id = (action ->> 1)::bytea;
    WHEN 'erase_commands_of_scope' THEN
        DELETE FROM {schema}.cf_command WHERE scope_id = (action ->> 1)::bytea;
    WHEN 'erase_scope' THEN
        UPDATE {schema}.cf_scope SET tenant = NULL, account = NULL, "user" = NULL, key = NULL WHERE scope_id = (action ->> 1)::bytea;
    END CASE;
END
$function$

-- name: erase
-- Erase the texts or the platform's ids of operations, which their admissions name, and of all that was done on their behalf.
CREATE FUNCTION {schema}.cf_erase(what text, admissions bigint[]) RETURNS void
LANGUAGE plpgsql
AS $function$
DECLARE
    erased bigint[] := admissions || ARRAY(SELECT position FROM {schema}.cf_event WHERE operation = ANY (admissions));
BEGIN
    IF what LIKE 'erase_payloads%' THEN
        DELETE FROM {schema}.cf_payload WHERE position = ANY (erased);
    ELSE
        DELETE FROM {schema}.cf_external_id WHERE position = ANY (erased);
    END IF;
END
$function$

-- name: ring
-- Tell openings, once this has been committed, which keys they are to look at: one notification holds all, or says that all look.
CREATE FUNCTION {schema}.cf_ring(rings jsonb) RETURNS void
LANGUAGE plpgsql
AS $function$
DECLARE
    told text NOT NULL := jsonb_build_object('rings', rings);
BEGIN
    IF octet_length(told) > 7900 THEN
        told := '{"rings": "all"}';
    END IF;
    PERFORM pg_notify('cf_' || {name}::regnamespace::oid, told);
END
$function$

-- name: append_staged
-- Append what a host's transaction has staged, inside its COMMIT: all of its records in order, at the first of them.
--
-- Each of them goes on from the one before, or it does not stand.
CREATE FUNCTION {schema}.cf_append_staged() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
AS $function$
DECLARE
    staged record;
    done record;
    own_head bigint;
    own_delay bigint;
BEGIN
    -- Whoever has it done before the COMMIT would have all others wait for that; a COMMIT that has been prepared may never come, and
    -- is refused to whoever has notified.
    IF current_query() ~* 'cf_staged|set[[:space:]]+constraints' THEN
        RAISE EXCEPTION 'counterfoil: what a transaction stages is appended by its COMMIT; leave its constraint deferred'
        USING ERRCODE = '0A000';
    END IF;
    -- What is sent once this has been committed must not be lost with the machine, whatever the host's session says.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM pg_notify('cf_staged', '');
    FOR staged IN SELECT id, cf_staged.record FROM {schema}.cf_staged WHERE id >= NEW.id ORDER BY id LOOP
        DELETE FROM {schema}.cf_staged WHERE id = staged.id;
        SELECT * INTO STRICT done FROM {schema}.cf_append(staged.record, own_head, own_delay);
        IF done.status <> 'appended' THEN
            RAISE EXCEPTION 'counterfoil: the decision is stale; roll back and do it again'
            USING ERRCODE = '40001', DETAIL = 'What no longer stands: ' || done.conflict || '.';
        END IF;
        own_head := coalesce(own_head, done.head_before);
        own_delay := coalesce(own_delay, done.first_recorded_at - (staged.record ->> 'since')::bigint);
    END LOOP;
    RETURN NULL;
EXCEPTION
    WHEN unique_violation THEN
        -- Under the snapshot of a repeatable read somebody else's append is not seen, but stands in the way.
        RAISE EXCEPTION 'counterfoil: the decision is stale; roll back and do it again' USING ERRCODE = '40001';
END
$function$

-- name: arrive
-- A projection that was behind is folded by each append from now on, if it is at the head; tells whether it is.
CREATE FUNCTION {schema}.cf_arrive(folded text, of_version integer) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    PERFORM pg_advisory_xact_lock({name}::regnamespace::oid::integer, 0);
    UPDATE {schema}.cf_projection SET position = NULL
    WHERE name = folded AND version = of_version
        AND position = coalesce((SELECT max(position) FROM {schema}.cf_event), (SELECT position FROM {schema}.cf_head WHERE id = 1));
    RETURN EXISTS (SELECT FROM {schema}.cf_projection WHERE name = folded AND version = of_version AND position IS NULL);
END
$function$

-- name: trigger
-- Have what is staged appended inside the COMMIT of its transaction.
CREATE CONSTRAINT TRIGGER cf_staged AFTER INSERT ON {schema}.cf_staged DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION {schema}.cf_append_staged()

-- name: call
-- Append one record.
SELECT status, conflict, head_before, first_position, first_recorded_at, epoch_after, clock FROM {schema}.cf_append($1::jsonb)

-- name: stage
-- Have one record appended by the COMMIT of the running transaction.
INSERT INTO {schema}.cf_staged (record) VALUES (%s::jsonb)
