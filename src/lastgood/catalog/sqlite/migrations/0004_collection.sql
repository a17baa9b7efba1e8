-- format: 1.3

CREATE INDEX blobs_pack ON blobs (pack) WHERE pack IS NOT NULL;

CREATE TABLE flights (                              -- packs that someone is about to commit
  name    TEXT PRIMARY KEY,                         -- of the object
  at      INTEGER NOT NULL,
  process BLOB NOT NULL                             -- who
) STRICT, WITHOUT ROWID;
