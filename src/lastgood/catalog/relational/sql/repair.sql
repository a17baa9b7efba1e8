-- Rows set right, from what the rest of the store proves.

-- name: insert_tombstone
INSERT INTO checkpoints (number, branch, owner, id, type, version, last_event, deleted, checksum, placement)
VALUES (:number, :branch, :owner, :id, 'lost', :version, :last_event, :deleted, :checksum, :placement)

-- name: remove_attestations
DELETE FROM attestations WHERE checkpoint = :number

-- name: set_checksum
UPDATE checkpoints SET checksum = :checksum WHERE number = :number

-- name: set_marks
UPDATE checkpoints SET type = :type, deleted = :deleted, verified = :verified, verified_at = :verified_at
WHERE number = :number

-- name: set_branch
UPDATE branches SET head = :head, version = :version, own = :own, inherited = :inherited WHERE branch = :branch

-- name: set_task
UPDATE tasks SET last_sequence = :last_sequence, last_event = :last_event, checkpoints = :checkpoints
WHERE task = :task

-- name: set_active
UPDATE tasks SET active_branch = :branch WHERE task = :task

-- name: put_key
INSERT INTO keys (task, key, number) VALUES (:task, :name, :number)
ON CONFLICT (task, key) DO UPDATE SET number = excluded.number

-- name: remove_key
DELETE FROM keys WHERE task = :task AND key = :name

-- name: put_tag
INSERT INTO tags (task, name, number) VALUES (:task, :name, :number)
ON CONFLICT (task, name) DO UPDATE SET number = excluded.number

-- name: remove_tag
DELETE FROM tags WHERE task = :task AND name = :name

-- name: remove_move
DELETE FROM moves WHERE task = :task AND number = :number

-- name: remove_workspace
DELETE FROM workspaces WHERE task = :task AND inode = :inode AND device = :device AND path = :path

-- name: remove_step
DELETE FROM steps WHERE owner = :owner AND id = :id

-- name: remove_journal
DELETE FROM journals WHERE id = :id

-- name: put_blob
INSERT INTO blobs (partition, digest, size, encoding, pack, position, length, data)
VALUES (:partition, :digest, :size, :encoding, NULL, NULL, NULL, :data)
ON CONFLICT (partition, digest) DO UPDATE
SET size = excluded.size, encoding = excluded.encoding, pack = excluded.pack, position = excluded.position,
    length = excluded.length, data = excluded.data, condemned = NULL

-- name: put_packed_blob
INSERT INTO blobs (partition, digest, size, encoding, pack, position, length, data)
VALUES (:partition, :digest, :size, :encoding, (SELECT pack FROM packs WHERE name = :pack), :position, :length, NULL)
ON CONFLICT (partition, digest) DO UPDATE
SET size = excluded.size, encoding = excluded.encoding, pack = excluded.pack, position = excluded.position,
    length = excluded.length, data = excluded.data, condemned = NULL

-- name: remove_slices_of_blob
DELETE FROM slices WHERE whole IN (SELECT blob FROM blobs WHERE partition = :partition AND digest = :digest)

-- name: remove_blob
DELETE FROM blobs WHERE partition = :partition AND digest = :digest
