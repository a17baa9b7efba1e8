-- format: 1.1

ALTER TABLE branches ADD COLUMN deleted INTEGER NOT NULL DEFAULT 0;

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
  task    INTEGER NOT NULL,
  number  INTEGER NOT NULL,                         -- from 1, per task
  left    INTEGER NOT NULL,                         -- branches.branch
  entered INTEGER NOT NULL,
  undone  INTEGER,                                  -- version of `left` when the move was undone; NULL: it was not
  PRIMARY KEY (task, number)
) STRICT, WITHOUT ROWID;
