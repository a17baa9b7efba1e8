-- Tasks, checkpoints, blobs, events: what is read of them.

-- name: facts
SELECT key, value FROM meta

-- name: set_fact
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: newest_migration
SELECT number, format FROM migrations ORDER BY number DESC LIMIT 1

-- name: task
SELECT t.task, t.id, t.owner, t.created_at, b.id, t.last_sequence, t.last_event, t.checkpoints
FROM tasks t JOIN branches b ON b.branch = t.active_branch

-- name: task_by_id
{task} WHERE t.owner = :owner AND t.id = :id

-- name: tasks_page
{task} WHERE t.task < :below AND (:owner IS NULL OR t.owner = :owner) ORDER BY t.task DESC LIMIT :limit

-- name: branch
SELECT b.branch, b.id, t.id, b.owner, b.name, b.description, b.origin_id, b.origin, b.head, c.id, c.checksum,
       b.version, b.control_state, b.own + b.inherited, b.created_at, b.created_by, b.metadata, b.deleted
FROM branches b JOIN tasks t USING (task) LEFT JOIN checkpoints c ON c.number = (b.task << 32) + b.head

-- name: branch_by_id
{branch} WHERE b.owner = :owner AND b.id = :id AND b.deleted = 0

-- name: branches_of_task
{branch} WHERE b.task = :task AND (b.deleted = 0 OR b.own > 0) ORDER BY b.branch

-- name: all_branches_of_task
{branch} WHERE b.task = :task ORDER BY b.branch

-- name: branch_numbers
SELECT branch FROM branches WHERE task = :task

-- name: origin_of_branch
SELECT origin_branch, origin FROM branches WHERE branch = :branch

-- name: checkpoint
SELECT c.number, c.id, c.owner, t.id, c.record, c.checksum, b.id, c.version, c.last_event, c.placement,
       c.verified, c.verified_at, c.deleted,
       (SELECT string_agg(name, '
') FROM tags WHERE tags.number = c.number)
FROM checkpoints c JOIN branches b USING (branch) JOIN tasks t USING (task)

-- name: checkpoint_by_id
{checkpoint} WHERE c.id = :id AND c.owner = :owner

-- name: checkpoint_by_number
{checkpoint} WHERE c.number = :number

-- name: checkpoint_by_key
{checkpoint} WHERE c.number = (
  SELECT k.number FROM keys k JOIN tasks USING (task)
  WHERE tasks.owner = :owner AND tasks.id = :task_id AND k.key = :key)

-- name: checkpoints_after
{checkpoint} WHERE c.number > :number AND c.record IS NOT NULL ORDER BY c.number LIMIT :limit

-- name: checkpoint_number
SELECT number FROM checkpoints WHERE id = :id AND owner = :owner

-- name: tagged
SELECT number FROM tags WHERE task = :task AND name = :name

-- name: tags
SELECT g.name, c.id, c.checksum, c.number, b.id
FROM tags g JOIN checkpoints c USING (number) JOIN branches b USING (branch)
WHERE g.task = :task ORDER BY g.name

-- name: ids_between
SELECT id FROM checkpoints WHERE id >= :prefix AND id < :beyond AND owner = :owner LIMIT :limit

-- Pages of a range, newest first. One statement for each filter, so that each has the index that it needs.

-- name: page
{checkpoint} WHERE c.number BETWEEN :low AND :high AND c.deleted = 0 ORDER BY c.number DESC LIMIT :limit

-- name: page_of_type
{checkpoint} WHERE c.number BETWEEN :low AND :high AND c.deleted = 0 AND c.type = :type
ORDER BY c.number DESC LIMIT :limit

-- name: page_of_branch
{checkpoint} WHERE c.number BETWEEN :low AND :high AND c.deleted = 0 AND c.branch = :branch
ORDER BY c.number DESC LIMIT :limit

-- name: page_of_branch_and_type
{checkpoint} WHERE c.number BETWEEN :low AND :high AND c.deleted = 0 AND c.type = :type AND c.branch = :branch
ORDER BY c.number DESC LIMIT :limit

-- name: verified_page_of_branch
{checkpoint} WHERE c.branch = :branch AND c.number BETWEEN :low AND :high AND c.verified = 1 AND c.deleted = 0
  AND (:type IS NULL OR c.type = :type)
ORDER BY c.number DESC LIMIT :limit

-- name: last_sequence
SELECT last_sequence FROM tasks WHERE task = :task

-- name: count_between
SELECT count(*) FROM checkpoints WHERE number BETWEEN :low AND :high

-- name: count_of_task
SELECT checkpoints FROM tasks WHERE task = :task

-- name: count_of_branch
SELECT own + inherited FROM branches WHERE branch = :branch

-- name: count_of_type
SELECT count(*) FROM checkpoints
WHERE type = :type AND number BETWEEN :low AND :high AND deleted = 0 AND (:branch IS NULL OR branch = :branch)

-- name: root
SELECT root_size, encoding, root FROM checkpoints WHERE number = :number

-- name: roots_between
SELECT number, root_size, encoding, root FROM checkpoints
WHERE number BETWEEN :low AND :high AND record IS NOT NULL AND root IS NOT NULL

-- name: blob
SELECT b.digest, b.size, b.encoding, b.data, p.name, b.position, b.length
FROM blobs b LEFT JOIN packs p USING (pack) WHERE b.partition = :partition AND b.digest = :digest

-- name: slice
SELECT s.digest, s.size, w.encoding, w.data, w.digest, w.size, s.position
FROM slices s JOIN blobs w ON w.blob = s.whole WHERE s.partition = :partition AND s.digest = :digest

-- name: has_blob
SELECT digest FROM blobs WHERE partition = :partition AND digest = :digest

-- name: any_blob
SELECT 1 FROM blobs WHERE partition = :partition LIMIT 1

-- name: attestations
SELECT number, kind, at, actor, data, digest FROM attestations WHERE checkpoint = :checkpoint ORDER BY number

-- name: event
SELECT e.number, e.kind, e.at, e.actor, coalesce(e.correlation_id, c.id, ''), coalesce(b.id, ''), c.id, e.data
FROM events e LEFT JOIN branches b ON b.branch = e.branch LEFT JOIN checkpoints c ON c.number = e.checkpoint

-- name: events_after
{event} WHERE e.number > :low AND e.number <= :high ORDER BY e.number LIMIT :limit

-- name: events_before
{event} WHERE e.number BETWEEN :low AND :high AND (:branch IS NULL OR e.branch = :branch)
ORDER BY e.number DESC LIMIT :limit

-- How checkpoints were made is told by their own rows.

-- name: creation
SELECT c.last_event, c.version, b.origin_branch, b.id, c.id, c.checksum, c.record
FROM checkpoints c JOIN branches b USING (branch)

-- name: creation_of
{creation} WHERE c.number = :number

-- name: creations_after
{creation} WHERE c.number BETWEEN :low AND :high AND c.record IS NOT NULL ORDER BY c.number LIMIT :limit

-- name: creations_before
{creation} WHERE c.number BETWEEN :low AND :high AND (:branch IS NULL OR c.branch = :branch) AND c.record IS NOT NULL
ORDER BY c.number DESC LIMIT :limit

-- name: last_event_of
SELECT last_event FROM checkpoints WHERE number = :number

-- The log.

-- name: next_event
UPDATE tasks SET last_event = last_event + 1 WHERE task = :task RETURNING last_event

-- name: insert_event
INSERT INTO events (number, branch, checkpoint, kind, at, actor, correlation_id, data)
VALUES (:number, :branch, :checkpoint, :kind, :at, :actor, :correlation_id, :data)
