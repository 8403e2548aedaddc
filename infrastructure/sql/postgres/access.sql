-- name: rights
-- What a role may read: ids of people, platforms and keys, texts, and the key of the journal.
SELECT has_table_privilege('cf_subject', 'SELECT') AND has_table_privilege('cf_external_id', 'SELECT')
        AND has_table_privilege('cf_lock_key', 'SELECT') AND has_table_privilege('cf_scope', 'SELECT'),
    has_table_privilege('cf_payload', 'SELECT'),
    has_column_privilege('cf_head', 'journal_key', 'SELECT')

-- name: journal_key
-- The key under which ids of openings and of keys of locks are made.
SELECT journal_key FROM cf_head WHERE id = 1
