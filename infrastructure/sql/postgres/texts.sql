-- name: frame
-- Values as they are hashed: each after its length, and an absent one as four bytes of ones.
CREATE FUNCTION {schema}.cf_frame(VARIADIC parts bytea[]) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $function$
    SELECT string_agg(
        CASE WHEN part IS NULL THEN '\xffffffff'::bytea ELSE int4send(octet_length(part)) || part END, ''::bytea ORDER BY nth
    )
    FROM unnest(parts) WITH ORDINALITY AS each (part, nth)
$function$

-- name: keyed
-- The first 16 bytes of HMAC-SHA256 over framed values, under a key of 32 bytes.
CREATE FUNCTION {schema}.cf_keyed(key bytea, framed bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $function$
DECLARE
    first bytea NOT NULL := key || decode(repeat('00', 64 - octet_length(key)), 'hex');
    second bytea NOT NULL := first;
BEGIN
    FOR nth IN 0 .. 63 LOOP
        first := set_byte(first, nth, get_byte(first, nth) # 54);
        second := set_byte(second, nth, get_byte(second, nth) # 92);
    END LOOP;
    RETURN substring(sha256(second || sha256(first || framed)) FROM 1 FOR 16);
END
$function$

-- name: show_texts
-- Return texts to a role that may not read them, each only when it is on record that this role was shown what its operation says.
--
-- A transaction can be rolled back, and with it what it records. So a text comes only after its record was committed, by an earlier
-- call of the last minute: a call returns NULL in the place of a text whose showing it has recorded itself, and is made again then.
-- What is recorded is an event of an operator, the role that has logged in, in a stream of its own: that of the opening 0.
CREATE FUNCTION {schema}.cf_show_texts(asked bigint[]) RETURNS TABLE (place bigint, shown bytea)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    known CONSTANT bigint NOT NULL := pg_current_xact_id()::text::bigint;
    head record;
    about record;
    done record;
    stream text;
    version bigint;
    wanted bigint[];
    on_record bigint[] NOT NULL := '{}';
    events jsonb NOT NULL := '[]';
    subjects jsonb NOT NULL := '[]';
    leaves bytea NOT NULL := '';
    state CONSTANT bytea NOT NULL := convert_to('{"action":"text_shown"}', 'UTF8');
BEGIN
    SELECT 'opn-' || encode({schema}.cf_keyed(journal_key, {schema}.cf_frame('opening', int8send(0))), 'hex') INTO STRICT stream
    FROM {schema}.cf_head WHERE id = 1;
    wanted := ARRAY(
        SELECT DISTINCT coalesce(event.operation, event.position)
        FROM {schema}.cf_payload AS payload JOIN {schema}.cf_event AS event USING (position) WHERE payload.position = ANY (asked)
    );
    IF cardinality(wanted) > 1000 THEN
        RAISE EXCEPTION 'counterfoil: ask for the texts of at most 1000 operations at once' USING ERRCODE = '22023';
    END IF;
    FOR about IN
        SELECT admission.position, admission.scope_id, admission.connection, admission.conversation, admission.thread,
            admission.correlation,
            {schema}.cf_keyed(scope.key, {schema}.cf_frame('principal', NULL, convert_to(session_user, 'UTF8'))) AS actor
        FROM {schema}.cf_event AS admission LEFT JOIN {schema}.cf_scope AS scope USING (scope_id)
        WHERE admission.position = ANY (wanted) ORDER BY admission.position
    LOOP
        -- Of the last minute, and committed: what this transaction has appended itself, in a savepoint too, is in progress.
        PERFORM FROM {schema}.cf_event AS act
        WHERE act.operation = about.position AND act.originator_id = stream AND act.actor IS NOT DISTINCT FROM about.actor
            AND act.recorded_at > {schema}.cf_clock() - 60000000
            AND pg_xact_status(greatest(0, known - mod(known - act.xmin::text::bigint + 8589934592, 4294967296))::text::xid8)
                = 'committed';
        IF FOUND THEN
            on_record := on_record || about.position;
            CONTINUE;
        END IF;
        IF events = '[]' THEN
            PERFORM pg_advisory_xact_lock({name}::regnamespace::oid::integer, 0);
            SELECT coalesce(max(originator_version), 0) INTO version FROM {schema}.cf_event WHERE originator_id = stream;
        END IF;
        version := version + 1;
        events := events || jsonb_strip_nulls(jsonb_build_object(
            'originator_id', stream, 'version', version, 'type', 'operator.acted', 'type_version', 1, 'actor_kind', 'operator',
            'scope_id', about.scope_id, 'connection', about.connection, 'conversation', about.conversation, 'thread', about.thread,
            'actor', about.actor, 'operation', about.position, 'correlation', about.correlation, 'state', state
        ));
        leaves := leaves || sha256({schema}.cf_frame(
            'counterfoil.event.1', convert_to(stream, 'UTF8'), int8send(version), 'operator.acted', int8send(1), NULL, 'operator',
            about.scope_id, convert_to(about.connection, 'UTF8'), about.conversation, about.thread, about.actor,
            int8send(about.position), about.correlation, NULL, state
        ));
        IF about.actor IS NOT NULL THEN
            subjects := subjects || jsonb_build_object(
                'pseudonym', about.actor, 'scope_id', about.scope_id, 'kind', 'principal', 'value', session_user
            );
        END IF;
    END LOOP;
    IF events <> '[]' THEN
        SELECT coalesce(newest.position, 0) AS position, base.position AS passed, base.erasures, base.schema_oid INTO STRICT head
        FROM {schema}.cf_head AS base LEFT JOIN LATERAL (
            SELECT position FROM {schema}.cf_event ORDER BY position DESC LIMIT 1
        ) AS newest ON true
        WHERE base.id = 1;
        -- A copy passes over positions that others may have seen, and an opening is what does that.
        IF head.passed > head.position OR head.schema_oid IS DISTINCT FROM {name}::regnamespace::oid THEN
            RAISE EXCEPTION 'counterfoil: this is a copy; open it for writing first' USING ERRCODE = '55000';
        END IF;
        SELECT * INTO STRICT done FROM {schema}.cf_append(jsonb_build_object(
            'seen', head.position, 'since', {schema}.cf_clock(), 'erasures', head.erasures, 'events', events, 'leaves', leaves,
            'subjects', subjects, 'conversations', '[]'::jsonb, 'folds', (
                SELECT coalesce(jsonb_agg(name || '_v' || projection.version), '[]')
                FROM {schema}.cf_projection AS projection WHERE position IS NULL
            )
        ));
        IF done.status <> 'appended' THEN
            RAISE EXCEPTION 'counterfoil: somebody else has appended; ask again' USING ERRCODE = '40001';
        END IF;
    END IF;
    RETURN QUERY
        SELECT payload.position, CASE WHEN coalesce(event.operation, event.position) = ANY (on_record) THEN payload.body END
        FROM {schema}.cf_payload AS payload JOIN {schema}.cf_event AS event USING (position) WHERE payload.position = ANY (asked);
END
$function$

-- name: commitments
-- What the texts that remain commit to, from a position on: enough to verify them, and nothing that their events do not say.
CREATE FUNCTION {schema}.cf_commitments(after bigint, most bigint) RETURNS TABLE (place bigint, length integer, commitment text)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $function$
    SELECT position, octet_length(body), encode(sha256(salt || body), 'hex')
    FROM {schema}.cf_payload WHERE position > after ORDER BY position LIMIT most
$function$

-- name: revoke_show_texts
-- It runs with the rights of its owner: whoever may call it is told so.
REVOKE ALL ON FUNCTION {schema}.cf_show_texts(bigint[]) FROM PUBLIC

-- name: revoke_commitments
-- The same.
REVOKE ALL ON FUNCTION {schema}.cf_commitments(bigint, bigint) FROM PUBLIC

-- name: ask
-- Ask for texts: NULL in the place of those whose showing this call has recorded.
SELECT place, shown FROM cf_show_texts(%s::bigint[])

-- name: commitments_after
-- A page of what the texts that remain commit to.
SELECT place, length, commitment FROM cf_commitments(%s, %s)
