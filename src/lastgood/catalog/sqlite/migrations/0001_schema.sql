-- format: 2.0
-- Keys of checkpoints and events are task * 2^32 + sequence (docs/reference/format.md).

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
  deleted       INTEGER NOT NULL DEFAULT 0,
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
  length    INTEGER,                                -- bytes that it takes there
  data      BLOB
) STRICT;

CREATE UNIQUE INDEX blobs_digest ON blobs (partition, digest);
CREATE INDEX blobs_pack ON blobs (pack) WHERE pack IS NOT NULL;

CREATE TABLE slices (                               -- blobs that are parts of other blobs
  partition INTEGER NOT NULL,
  digest    BLOB NOT NULL,
  size      INTEGER NOT NULL,
  whole     INTEGER NOT NULL,                       -- blobs.blob
  position  INTEGER NOT NULL,
  PRIMARY KEY (partition, digest)
) STRICT, WITHOUT ROWID;

CREATE INDEX slices_whole ON slices (whole);

CREATE TABLE packs (
  pack       INTEGER PRIMARY KEY,
  name       TEXT NOT NULL UNIQUE,                  -- of the object
  size       INTEGER NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE announced_packs (                      -- packs that a process is about to commit
  name    TEXT PRIMARY KEY,                         -- of the object
  at      INTEGER NOT NULL,
  process BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE steps (                                -- begun and not ended; the task may not be there yet
  owner     TEXT NOT NULL,
  id        TEXT NOT NULL,
  task_id   TEXT NOT NULL,
  began_at  INTEGER NOT NULL,
  step      BLOB NOT NULL,                          -- what else is known of it
  size      INTEGER,
  encoding  INTEGER,
  snapshot  BLOB,                                   -- the state that was given when it began, or NULL
  PRIMARY KEY (owner, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE moves (                                -- of a task's active branch: what undo and redo go along
  task        INTEGER NOT NULL,
  number      INTEGER NOT NULL,                     -- from 1, per task
  from_branch INTEGER NOT NULL,                     -- branches.branch
  to_branch   INTEGER NOT NULL,
  undone      INTEGER,                              -- version of `from_branch` when the move was undone; NULL: it was not
  before      INTEGER,                              -- files alone were restored: the checkpoint that has them as they were
  after       INTEGER,                              -- and the one that has them as they are since
  PRIMARY KEY (task, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE workspaces (                           -- which branch's files lie in a folder
  task   INTEGER NOT NULL,
  inode  TEXT NOT NULL,
  device TEXT NOT NULL,
  path   TEXT NOT NULL,
  boot   TEXT NOT NULL,                             -- of the system, when it was bound; '': not known
  branch INTEGER NOT NULL,                          -- branches.branch
  PRIMARY KEY (task, inode, device, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE journals (                             -- restores of files that were begun and not ended
  id         TEXT PRIMARY KEY,
  owner      TEXT NOT NULL,
  task_id    TEXT NOT NULL,
  began_at   INTEGER NOT NULL,
  journal    BLOB NOT NULL,                         -- what else is known of it
  made       TEXT,                                  -- the checkpoint that has the restored files; NULL: none yet
  applied_at INTEGER                                -- when all of them were in place
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (                               -- which process works on a branch, or does what one process does at a time
  token       INTEGER PRIMARY KEY AUTOINCREMENT,    -- never given again
  branch      INTEGER UNIQUE,                       -- branches.branch; NULL: a lease of the store
  name        TEXT UNIQUE,                          -- of a lease of the store; NULL: a branch's
  process     BLOB NOT NULL,
  executor    TEXT NOT NULL,
  acquired_at INTEGER NOT NULL,
  expires_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE requests (                             -- what people want of work
  number         INTEGER PRIMARY KEY,
  branch         INTEGER NOT NULL,                  -- branches.branch
  owner          TEXT NOT NULL,
  id             TEXT NOT NULL,
  kind           TEXT NOT NULL,
  at             INTEGER NOT NULL,
  actor          TEXT NOT NULL,
  correlation_id TEXT,
  data           BLOB NOT NULL,
  status         TEXT NOT NULL,                     -- open, fulfilled, refused
  ended_at       INTEGER,
  outcome        BLOB,
  UNIQUE (owner, id)
) STRICT;

CREATE INDEX requests_open ON requests (branch, number) WHERE status = 'open';
