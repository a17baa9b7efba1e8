-- format: 1.4

CREATE TABLE leases (                               -- who works on a branch
  token       INTEGER PRIMARY KEY AUTOINCREMENT,    -- never given again
  branch      INTEGER NOT NULL UNIQUE,              -- branches.branch
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
  status         TEXT NOT NULL,                     -- open, met, refused
  ended_at       INTEGER,
  outcome        BLOB,
  UNIQUE (owner, id)
) STRICT;

CREATE INDEX requests_open ON requests (branch, number) WHERE status = 'open';
