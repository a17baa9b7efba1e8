-- Leases, requests and open steps.

-- name: lease
SELECT l.token, b.id, l.name, l.process, l.executor, l.acquired_at, l.expires_at
FROM leases l LEFT JOIN branches b USING (branch)

-- name: lease_of_branch
{lease} WHERE b.owner = :owner AND b.id = :id

-- name: lease_by_name
{lease} WHERE l.name = :name

-- name: lease_by_token
{lease} WHERE l.token = :token

-- name: live_lease_of_task
{lease} JOIN tasks t USING (task) WHERE t.owner = :owner AND t.id = :id AND l.expires_at > :now LIMIT 1

-- name: holder
SELECT token, expires_at FROM leases WHERE branch = :branch

-- name: leased_branch
SELECT branch FROM leases WHERE token = :token

-- name: end_lease
DELETE FROM leases WHERE token = :token

-- name: insert_lease
INSERT INTO leases (branch, name, process, executor, acquired_at, expires_at)
VALUES (:branch, :name, :process, :executor, :now, :expires_at) RETURNING token

-- name: renew_lease
UPDATE leases SET expires_at = :expires_at WHERE token = :token

-- name: end_other_leases
DELETE FROM leases WHERE branch = :branch AND token != :token

-- name: move_lease
UPDATE leases SET branch = :branch WHERE token = :token

-- name: move_requests
UPDATE requests SET branch = :to_branch WHERE branch = :from_branch AND status = 'open'

-- name: living_branch
SELECT branch, task FROM branches WHERE owner = :owner AND id = :id AND deleted = 0

-- name: request
SELECT r.id, b.id, r.kind, r.data, r.at, r.actor, r.correlation_id, r.status, r.ended_at, r.outcome
FROM requests r JOIN branches b USING (branch)

-- name: request_by_id
{request} WHERE r.owner = :owner AND r.id = :id

-- name: open_requests
{request} WHERE b.owner = :owner AND b.id = :branch_id AND r.status = 'open' ORDER BY r.number

-- name: ids_of_open_requests
SELECT id FROM requests WHERE branch = :branch AND status = 'open'

-- name: insert_request
INSERT INTO requests (branch, owner, id, kind, at, actor, correlation_id, data, status)
VALUES (:branch, :owner, :id, :kind, :at, :actor, :correlation_id, :data, 'open')

-- name: end_request
UPDATE requests SET status = :status, ended_at = :now, outcome = :outcome
WHERE owner = :owner AND id = :id AND status = 'open'

-- name: subject_of_request
SELECT b.task, b.branch, r.kind FROM requests r JOIN branches b USING (branch) WHERE r.owner = :owner AND r.id = :id

-- name: insert_step
INSERT INTO steps (owner, id, task_id, began_at, step, size, encoding, snapshot)
VALUES (:owner, :id, :task_id, :began_at, :step, :size, :encoding, :snapshot) ON CONFLICT DO NOTHING

-- name: step_by_id
SELECT step, id, size, encoding, snapshot FROM steps WHERE owner = :owner AND id = :id

-- name: open_steps
SELECT step, id FROM steps WHERE (:owner IS NULL OR owner = :owner) AND (:task_id IS NULL OR task_id = :task_id)
ORDER BY began_at, id

-- name: end_step
DELETE FROM steps WHERE owner = :owner AND id = :id

-- name: branch_number
SELECT branch FROM branches WHERE owner = :owner AND id = :id
