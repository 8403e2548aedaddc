-- name: create
-- What the bench compares with: one row an event and nothing else, in the columns of the eventsourcing library.
CREATE TABLE event (
    originator_id TEXT,
    originator_version INTEGER,
    topic TEXT,
    state BLOB,
    PRIMARY KEY (originator_id, originator_version)
)

-- name: begin
-- As the journal begins its transactions.
BEGIN IMMEDIATE

-- name: insert
-- One event.
INSERT INTO event (originator_id, originator_version, topic, state) VALUES (?, ?, ?, ?)

-- name: commit
-- With a sync, in `synchronous = FULL`.
COMMIT

-- name: payload_bytes
-- The bytes of the texts that a journal keeps.
SELECT coalesce(sum(length(body)), 0) FROM cf_payload
