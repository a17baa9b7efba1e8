-- Which branch of a task is active, how it came to be, and whose files lie in folders.

-- name: remove_undone_moves
DELETE FROM moves WHERE task = :task AND undone IS NOT NULL

-- name: insert_move
INSERT INTO moves (task, number, from_branch, to_branch)
SELECT task, 1 + coalesce((SELECT max(number) FROM moves m WHERE m.task = t.task), 0), active_branch, :to_branch
FROM tasks t WHERE task = :task

-- name: insert_files_move
INSERT INTO moves (task, number, from_branch, to_branch, before, after)
SELECT :task, 1 + coalesce(max(number), 0), :branch, :branch, :before, :after FROM moves WHERE task = :task

-- name: keep_redo
UPDATE moves SET undone = :new_version
WHERE task = :task AND from_branch = :branch AND undone = :old_version

-- name: undoable
SELECT number, from_branch, to_branch, undone, before, after FROM moves
WHERE task = :task AND undone IS NULL ORDER BY number DESC LIMIT 1

-- name: redoable
SELECT number, from_branch, to_branch, undone, before, after FROM moves
WHERE task = :task AND undone IS NOT NULL ORDER BY number LIMIT 1

-- name: undo_move
UPDATE moves SET undone = :version WHERE task = :task AND number = :number

-- Files may have changed since the undo. The head has them as they are: there the next undo goes back to.
-- name: redo_move
UPDATE moves SET undone = NULL, before = CASE WHEN before IS NULL THEN NULL ELSE
  (SELECT (b.task << 32) + b.head FROM branches b WHERE b.branch = moves.from_branch) END
WHERE task = :task AND number = :number

-- name: activate
UPDATE tasks SET active_branch = :branch WHERE task = :task

-- name: living_version
SELECT b.version FROM branches b JOIN checkpoints c ON c.number = (b.task << 32) + b.head
WHERE b.branch = :branch AND b.deleted = 0 AND c.deleted = 0

-- name: head_number
SELECT (task << 32) + head FROM branches WHERE branch = :branch

-- name: checkpoint_id
SELECT id FROM checkpoints WHERE number = :number

-- Which folder is which: `FolderId.is_same`.
-- name: binding
SELECT w.branch, b.id, b.name, b.deleted FROM workspaces w JOIN tasks t USING (task) JOIN branches b USING (branch)
WHERE t.owner = :owner AND t.id = :task_id AND w.inode = :inode
AND CASE WHEN w.boot = :boot AND w.boot != '' THEN w.device = :device ELSE w.path = :path END

-- name: folders_of
SELECT w.path, w.inode, w.device, w.boot FROM workspaces w JOIN tasks t USING (task) JOIN branches b USING (branch)
WHERE t.owner = :owner AND b.id = :branch_id ORDER BY w.path, w.inode, w.device

-- name: unbind
DELETE FROM workspaces WHERE task = :task AND inode = :inode
AND CASE WHEN boot = :boot AND boot != '' THEN device = :device ELSE path = :path END

-- name: bind
INSERT INTO workspaces (task, inode, device, path, boot, branch)
VALUES (:task, :inode, :device, :path, :boot, :branch)

-- name: insert_journal
INSERT INTO journals (id, owner, task_id, began_at, journal)
VALUES (:id, :owner, :task_id, :began_at, :journal)
ON CONFLICT (id) DO UPDATE SET journal = excluded.journal

-- name: journals
SELECT journal, id, made, applied_at FROM journals ORDER BY began_at, id

-- name: apply_journal
UPDATE journals SET made = :made, applied_at = :at WHERE id = :id

-- name: give_up_journal
DELETE FROM journals WHERE id = :id AND made IS NULL

-- name: end_journal
DELETE FROM journals WHERE id = :id

-- name: holder_by_id
SELECT token, expires_at FROM leases
WHERE branch = (SELECT branch FROM branches WHERE owner = :owner AND id = :id)
