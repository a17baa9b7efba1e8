-- What a commit reads and writes.

-- name: branch
SELECT t.task, b.branch, b.id, t.active_branch = b.branch, b.version, b.control_state, t.last_sequence, t.last_event,
       c.number, c.id, c.checksum, c.record IS NULL, l.token, l.expires_at
FROM branches b JOIN tasks t USING (task) JOIN checkpoints c ON c.number = (b.task << 32) + b.head
     LEFT JOIN leases l ON l.branch = b.branch

-- name: holder
SELECT token, expires_at FROM leases WHERE branch = :branch

-- name: branch_by_id
{branch} WHERE b.owner = :owner AND b.id = :branch_id AND t.id = :task_id AND b.deleted = 0

-- name: active_branch
{branch} WHERE t.owner = :owner AND t.id = :task_id AND b.branch = t.active_branch

-- name: record
SELECT record, checksum FROM checkpoints WHERE number = :number

-- name: is_step_open
SELECT 1 FROM steps WHERE owner = :owner AND id = :id

-- name: is_request_open
SELECT 1 FROM requests WHERE owner = :owner AND id = :id AND status = 'open'

-- name: is_pack_expected
SELECT 1 FROM announced_packs WHERE name = :name UNION ALL SELECT 1 FROM packs WHERE name = :name

-- name: has_record
SELECT 1 FROM checkpoints WHERE id = :id AND owner = :owner AND record IS NOT NULL

-- name: is_name_taken
SELECT 1 FROM branches WHERE task = :task AND name = :name

-- name: deleted_branch
SELECT deleted FROM branches WHERE owner = :owner AND id = :id

-- name: origin
SELECT branch, inherited + (SELECT count(*) FROM checkpoints c
                            WHERE c.branch = b.branch AND c.number <= :number AND c.deleted = 0)
FROM branches b WHERE owner = :owner AND id = :branch_id

-- name: insert_task
INSERT INTO tasks (owner, id, created_at, active_branch, last_sequence, last_event, checkpoints)
VALUES (:owner, :id, :created_at, 0, 0, 0, 0) RETURNING task

-- name: insert_branch
INSERT INTO branches (task, owner, id, name, description, origin_branch, origin, origin_id, head, version,
                      control_state, own, inherited, created_at, created_by, metadata)
VALUES (:task, :owner, :id, :name, :description, :origin_branch, :origin, :origin_id, 0, 0,
        'idle', 0, :inherited, :created_at, :created_by, :metadata) RETURNING branch

-- name: insert_note
INSERT INTO events (number, branch, checkpoint, kind, at, actor, correlation_id, data)
VALUES (:number, (SELECT branch FROM branches WHERE owner = :owner AND id = :branch_id),
        (SELECT number FROM checkpoints WHERE id = :checkpoint_id AND owner = :owner),
        :kind, :at, :actor, :correlation_id, :data)

-- name: insert_blob
INSERT INTO blobs (partition, digest, size, encoding, data) VALUES (:partition, :digest, :size, :encoding, :data)
ON CONFLICT (partition, digest) DO UPDATE SET condemned = NULL WHERE blobs.condemned IS NOT NULL

-- name: pack_number
SELECT pack FROM packs WHERE name = :name

-- name: insert_packed_blob
INSERT INTO blobs (partition, digest, size, encoding, pack, position, length)
VALUES (:partition, :digest, :size, :encoding, :pack, :position, :length)
ON CONFLICT (partition, digest) DO UPDATE SET condemned = NULL WHERE blobs.condemned IS NOT NULL

-- name: insert_slice
INSERT INTO slices (partition, digest, size, whole, position)
SELECT b.partition, b.digest, b.size, w.blob, :position FROM blobs b, blobs w
WHERE b.partition = :partition AND b.digest = :digest AND w.partition = :partition AND w.digest = :whole
  AND NOT EXISTS (SELECT 1 FROM slices WHERE whole = b.blob) ON CONFLICT DO NOTHING

-- name: remove_sliced_blob
DELETE FROM blobs WHERE partition = :partition AND digest = :digest

-- name: insert_checkpoint
INSERT INTO checkpoints (number, branch, owner, id, type, version, last_event, checksum, placement, record,
                         verified, verified_at, root_size, encoding, root)
VALUES (:number, :branch, :owner, :id, :type, :version, :last_event, :checksum, :placement, :record,
        :verified, :verified_at, :root_size, :encoding, :root)

-- name: insert_checkpoint_with_root_of_parent
INSERT INTO checkpoints (number, branch, owner, id, type, version, last_event, checksum, placement, record,
                         verified, verified_at, root_size, encoding, root)
SELECT :number, :branch, :owner, :id, :type, :version, :last_event, :checksum, :placement, :record,
       :verified, :verified_at, root_size, encoding, root
FROM checkpoints WHERE number = :parent

-- name: advance_branch
UPDATE branches SET head = :sequence, version = :version, own = own + 1, control_state = :control_state
WHERE branch = :branch

-- name: advance_task
UPDATE tasks SET last_sequence = :sequence, last_event = :last_event, checkpoints = checkpoints + 1,
                 active_branch = coalesce(:active_branch, active_branch)
WHERE task = :task

-- name: insert_key
INSERT INTO keys (task, key, number) VALUES (:task, :key, :number)
