-- What is said of checkpoints after they were made, and what is removed.

-- name: subject
SELECT c.number, b.task, c.branch, c.id, c.checksum, c.deleted,
       t.active_branch = c.branch AND b.head = (c.number & 4294967295)
FROM checkpoints c JOIN branches b USING (branch) JOIN tasks t USING (task)
WHERE c.id = :id AND c.owner = :owner AND c.record IS NOT NULL

-- name: last_event
SELECT t.last_event FROM checkpoints c JOIN branches b USING (branch) JOIN tasks t USING (task)
WHERE c.id = :id AND c.owner = :owner

-- name: checksum_of
SELECT checksum FROM checkpoints WHERE number = :number

-- name: last_attestation
SELECT max(number) FROM attestations WHERE checkpoint = :checkpoint

-- name: insert_attestation
INSERT INTO attestations (checkpoint, number, kind, at, actor, data, digest)
VALUES (:checkpoint, :number, :kind, :at, :actor, :data, :digest)

-- name: set_verified
UPDATE checkpoints SET verified = :verified, verified_at = :at WHERE number = :number

-- name: set_deleted
UPDATE checkpoints SET deleted = :deleted WHERE number = :number

-- name: put_tag
INSERT INTO tags (task, name, number) VALUES (:task, :name, :number)
ON CONFLICT (task, name) DO UPDATE SET number = excluded.number

-- name: remove_tag
DELETE FROM tags WHERE task = :task AND name = :name

-- name: count_in_task
UPDATE tasks SET checkpoints = checkpoints + :change WHERE task = :task

-- name: count_in_branch
UPDATE branches SET own = own + :change WHERE branch = :branch

-- name: count_in_descendants
WITH RECURSIVE heirs (branch) AS (
  SELECT branch FROM branches WHERE origin_branch = :branch AND origin >= :sequence
  UNION ALL SELECT b.branch FROM branches b JOIN heirs h ON b.origin_branch = h.branch)
UPDATE branches SET inherited = inherited + :change WHERE branch IN (SELECT branch FROM heirs)

-- name: purge_tags
DELETE FROM tags WHERE number = :number

-- name: purge_keys
DELETE FROM keys WHERE task = :task AND number = :number

-- name: purge_attestations
DELETE FROM attestations WHERE checkpoint = :number

-- name: purge_record
UPDATE checkpoints SET record = NULL, root_size = NULL, encoding = NULL, root = NULL,
                       deleted = :deleted, verified = 0, verified_at = NULL WHERE number = :number

-- name: is_needed
SELECT 1 FROM checkpoints c JOIN branches b USING (branch) WHERE c.id = :id AND c.owner = :owner
  AND (b.deleted = 0 AND b.head = (c.number & 4294967295)
       OR EXISTS (SELECT 1 FROM tags t WHERE t.number = c.number))

-- name: was_deleted_before
SELECT 1 FROM checkpoints c JOIN attestations a ON a.checkpoint = c.number
WHERE c.id = :id AND c.owner = :owner AND c.deleted = 1 AND a.kind = 'deleted'
GROUP BY c.number HAVING max(a.at) <= :before

-- name: deleted_before
SELECT c.owner, c.id FROM checkpoints c JOIN attestations a ON a.checkpoint = c.number
WHERE c.deleted = 1 AND a.kind = 'deleted'
GROUP BY c.number, c.owner, c.id HAVING max(a.at) <= :before ORDER BY c.number

-- A task with everything it has.

-- name: delete_checkpoints
DELETE FROM checkpoints WHERE number BETWEEN :low AND :high

-- name: delete_events
DELETE FROM events WHERE number BETWEEN :low AND :high

-- name: delete_attestations
DELETE FROM attestations WHERE checkpoint BETWEEN :low AND :high

-- name: delete_leases
DELETE FROM leases WHERE branch IN (SELECT branch FROM branches WHERE task = :task)

-- name: delete_requests
DELETE FROM requests WHERE branch IN (SELECT branch FROM branches WHERE task = :task)

-- name: delete_tags
DELETE FROM tags WHERE task = :task

-- name: delete_keys
DELETE FROM keys WHERE task = :task

-- name: delete_blobs
DELETE FROM blobs WHERE partition = :task

-- name: delete_slices
DELETE FROM slices WHERE partition = :task

-- name: delete_moves
DELETE FROM moves WHERE task = :task

-- name: delete_workspaces
DELETE FROM workspaces WHERE task = :task

-- name: delete_branches
DELETE FROM branches WHERE task = :task

-- name: delete_task
DELETE FROM tasks WHERE task = :task

-- name: delete_steps
DELETE FROM steps WHERE owner = :owner AND task_id = :task_id

-- name: delete_journals
DELETE FROM journals WHERE owner = :owner AND task_id = :task_id

-- A branch, and what only it has.

-- name: doomed_with_branch
SELECT id FROM checkpoints c WHERE branch = :branch AND deleted = 0 AND number > :after
  AND NOT EXISTS (SELECT 1 FROM tags WHERE tags.number = c.number)

-- name: hide_branch
UPDATE branches SET deleted = 1, name = :name WHERE branch = :branch

-- name: delete_lease
DELETE FROM leases WHERE branch = :branch

-- The newest checkpoint of a branch that a branch which still has checkpoints descends from.
-- name: last_origin
WITH RECURSIVE origins (branch, sequence) AS (
  SELECT origin_branch, origin FROM branches
  WHERE task = :task AND origin_branch IS NOT NULL AND (deleted = 0 OR own > 0)
  UNION SELECT b.origin_branch, b.origin FROM branches b JOIN origins USING (branch)
        WHERE b.origin_branch IS NOT NULL)
SELECT max(sequence) FROM origins WHERE branch = :branch
