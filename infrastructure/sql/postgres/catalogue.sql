-- name: schema
-- The schema of a journal, and where temporary things of this session lie, once there are any.
SELECT to_regnamespace(%(schema)s)::oid::bigint, pg_my_temp_schema()::bigint

-- name: kept
-- The projections that a journal keeps, as records call them.
SELECT name || '_v' || version FROM cf_projection

-- name: parts
-- What a schema is made of, by kind and name: how each thing is, in words that are the same in every schema, and the text of functions.
-- How tables are stored is whoever runs the server's to tune, and so are indexes that only find things.
SELECT 'table', relname::text, '', NULL
FROM pg_class WHERE relnamespace = %(schema)s AND relkind IN ('r', 'p') AND starts_with(relname, 'cf_')
UNION ALL
SELECT 'column', relname || '.' || attname, concat_ws(
        ' ', format_type(atttypid, atttypmod), 'COLLATE ' || nullif(collname, 'default'), CASE WHEN attnotnull THEN 'NOT NULL' END,
        CASE WHEN attidentity <> '' THEN 'IDENTITY' END, CASE WHEN attgenerated <> '' THEN 'GENERATED' END,
        'DEFAULT ' || pg_get_expr(adbin, adrelid)
    ), NULL
FROM pg_attribute
JOIN pg_class ON pg_class.oid = attrelid
LEFT JOIN pg_collation ON pg_collation.oid = attcollation
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE relnamespace = %(schema)s AND relkind IN ('r', 'p') AND starts_with(relname, 'cf_') AND attnum > 0 AND NOT attisdropped
UNION ALL
SELECT 'constraint', relname || '.' || conname, pg_get_constraintdef(pg_constraint.oid), NULL
FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid
WHERE relnamespace = %(schema)s AND starts_with(relname, 'cf_') AND contype IN ('p', 'u', 'c', 'f', 'x')
UNION ALL
SELECT CASE WHEN indisunique THEN 'unique index' ELSE 'index' END, own.relname, concat_ws(
        ' ', replace(replace(pg_get_indexdef(indexrelid), quote_ident(nspname) || '.', ''), 'pg_temp.', ''), CASE WHEN NOT indisvalid THEN '(invalid)' END
    ), NULL
FROM pg_index
JOIN pg_class AS own ON own.oid = indexrelid
JOIN pg_class AS indexed ON indexed.oid = indrelid
JOIN pg_namespace ON pg_namespace.oid = own.relnamespace
WHERE own.relnamespace = %(schema)s AND indexed.relkind = 'r' AND starts_with(indexed.relname, 'cf_')
    AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
UNION ALL
SELECT 'function', proname, concat_ws(
        ' ', pg_get_function_arguments(pg_proc.oid), 'RETURNS', pg_get_function_result(pg_proc.oid), lanname, provolatile, proparallel,
        CASE WHEN proisstrict THEN 'STRICT' END,
        CASE WHEN prosecdef THEN 'SECURITY DEFINER' END,
        CASE WHEN prosecdef AND has_function_privilege('public', pg_proc.oid, 'EXECUTE') THEN 'for everybody' END,
        array_to_string(proconfig, ' ')
    ), prosrc
FROM pg_proc JOIN pg_language ON pg_language.oid = prolang
WHERE pronamespace = %(schema)s AND starts_with(proname, 'cf_')
UNION ALL
SELECT 'trigger', tgname, concat_ws(
        ' ', replace(replace(pg_get_triggerdef(pg_trigger.oid), quote_ident(nspname) || '.', ''), 'pg_temp.', ''),
        CASE WHEN tgenabled <> 'O' THEN '(not enabled)' END
    ), NULL
FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE relnamespace = %(schema)s AND starts_with(relname, 'cf_') AND NOT tgisinternal
