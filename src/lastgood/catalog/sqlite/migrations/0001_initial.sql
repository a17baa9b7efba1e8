-- format: 1.0
-- Keys of checkpoints and events are task * 2^32 + sequence (docs/format.md).

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value ANY
) STRICT, WITHOUT ROWID;

CREATE TABLE migrations (
  number INTEGER PRIMARY KEY,
  name   TEXT NOT NULL,
  format TEXT NOT NULL,
  at     INTEGER NOT NULL
) STRICT;

CREATE TABLE tasks (
  task          INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again; 0 is the store: its commits and its own log
  owner         TEXT NOT NULL,
  id            TEXT NOT NULL,
  created_at    INTEGER NOT NULL,
  active_branch INTEGER NOT NULL,
  last_sequence INTEGER NOT NULL,
  last_event    INTEGER NOT NULL,
  checkpoints   INTEGER NOT NULL,                   -- neither deleted nor purged
  UNIQUE (owner, id)
) STRICT;

CREATE TABLE branches (
  branch        INTEGER PRIMARY KEY AUTOINCREMENT,
  task          INTEGER NOT NULL,
  owner         TEXT NOT NULL,
  id            TEXT NOT NULL,
  name          TEXT NOT NULL,
  description   TEXT NOT NULL,
  origin_branch INTEGER,                            -- NULL: the first of its task
  origin        INTEGER NOT NULL,                   -- sequence it began from; 0: from nothing
  origin_id     TEXT,
  head          INTEGER NOT NULL,                   -- sequence
  version       INTEGER NOT NULL,
  control_state TEXT NOT NULL,
  own           INTEGER NOT NULL,                   -- checkpoints neither deleted nor purged, on it
  inherited     INTEGER NOT NULL,                   -- and before it
  created_at    INTEGER NOT NULL,
  created_by    TEXT NOT NULL,
  metadata      BLOB NOT NULL,
  UNIQUE (owner, id),
  UNIQUE (task, name)
) STRICT;

CREATE INDEX branches_origin ON branches (origin_branch) WHERE origin_branch IS NOT NULL;

CREATE TABLE checkpoints (
  number      INTEGER PRIMARY KEY,
  branch      INTEGER NOT NULL,
  owner       TEXT NOT NULL,
  id          TEXT NOT NULL,
  type        TEXT NOT NULL,
  version     INTEGER NOT NULL,
  last_event  INTEGER NOT NULL,
  deleted     INTEGER NOT NULL DEFAULT 0,           -- derived: 0, 1 deleted, 2 purged
  verified    INTEGER NOT NULL DEFAULT 0,           -- derived
  verified_at INTEGER,                              -- derived
  checksum    BLOB NOT NULL,
  placement   BLOB NOT NULL,
  record      BLOB,                                 -- NULL: purged, this row is its tombstone
  root_size   INTEGER,
  encoding    INTEGER,
  root        BLOB                                  -- root blob of its state, or NULL
) STRICT;

CREATE UNIQUE INDEX checkpoints_id ON checkpoints (id, owner);
CREATE INDEX checkpoints_branch ON checkpoints (branch, number) WHERE deleted = 0;
CREATE INDEX checkpoints_type ON checkpoints (type, number) WHERE deleted = 0;
CREATE INDEX checkpoints_verified ON checkpoints (branch, number) WHERE verified = 1 AND deleted = 0;

CREATE TABLE keys (
  task   INTEGER NOT NULL,
  key    TEXT NOT NULL,
  number INTEGER NOT NULL,
  PRIMARY KEY (task, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE tags (
  task   INTEGER NOT NULL,
  name   TEXT NOT NULL,
  number INTEGER NOT NULL,
  PRIMARY KEY (task, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX tags_number ON tags (number);

CREATE TABLE attestations (
  attestation INTEGER PRIMARY KEY,
  checkpoint  INTEGER NOT NULL,
  number      INTEGER NOT NULL,                     -- from 1, per checkpoint
  kind        TEXT NOT NULL,
  at          INTEGER NOT NULL,
  actor       TEXT NOT NULL,
  data        BLOB NOT NULL,
  digest      BLOB NOT NULL,
  UNIQUE (checkpoint, number)
) STRICT;

CREATE TABLE events (                               -- all but those that a checkpoint's own row tells: created, branched
  number         INTEGER PRIMARY KEY,
  branch         INTEGER,
  checkpoint     INTEGER,
  kind           TEXT NOT NULL,
  at             INTEGER NOT NULL,
  actor          TEXT NOT NULL,
  correlation_id TEXT,                              -- NULL: the checkpoint's id
  data           BLOB
) STRICT;

CREATE TABLE blobs (
  blob      INTEGER PRIMARY KEY,
  partition INTEGER NOT NULL,                       -- 0: the store's; else the task it belongs to
  digest    BLOB NOT NULL,
  size      INTEGER NOT NULL,
  encoding  INTEGER NOT NULL,
  condemned INTEGER,                                -- when garbage collection marked it
  pack      INTEGER,                                -- the pack that it lies in; NULL: it lies here
  position  INTEGER,                                -- where it begins there
  data      BLOB
) STRICT;

CREATE UNIQUE INDEX blobs_digest ON blobs (partition, digest);

CREATE TABLE slices (                               -- blobs that are parts of other blobs
  partition INTEGER NOT NULL,
  digest    BLOB NOT NULL,
  size      INTEGER NOT NULL,
  whole     INTEGER NOT NULL,                       -- blobs.blob
  position  INTEGER NOT NULL,
  PRIMARY KEY (partition, digest)
) STRICT, WITHOUT ROWID;

CREATE INDEX slices_whole ON slices (whole);
