-- format: 1.2

ALTER TABLE blobs ADD COLUMN length INTEGER;        -- bytes in its pack

CREATE TABLE packs (
  pack       INTEGER PRIMARY KEY,
  name       TEXT NOT NULL UNIQUE,                  -- of the object
  size       INTEGER NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE workspaces (                           -- which branch's files lie in a folder
  task   INTEGER NOT NULL,
  host   TEXT NOT NULL,
  path   TEXT NOT NULL,
  branch INTEGER NOT NULL,                          -- branches.branch
  PRIMARY KEY (task, host, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE journals (                             -- restores of files that were begun and not ended
  id       TEXT PRIMARY KEY,
  host     TEXT NOT NULL,
  owner    TEXT NOT NULL,
  task_id  TEXT NOT NULL,
  began_at INTEGER NOT NULL,
  journal  BLOB NOT NULL                            -- what else is known of it
) STRICT, WITHOUT ROWID;

ALTER TABLE moves ADD COLUMN before INTEGER;        -- files alone were restored: the checkpoint that has them as they were
ALTER TABLE moves ADD COLUMN after INTEGER;         -- and the one that has them as they are since
