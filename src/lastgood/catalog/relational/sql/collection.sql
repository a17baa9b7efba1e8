-- Packs, and what garbage collection does to blobs.

-- name: blob
SELECT b.blob, b.partition, b.digest, b.size, coalesce(b.length, length(b.data), 0), p.name, b.position, b.encoding,
       b.condemned

-- name: blobs_page
{blob} FROM blobs b LEFT JOIN packs p USING (pack) WHERE b.blob > :after ORDER BY b.blob LIMIT :limit

-- name: blobs_in_pack
{blob} FROM packs p JOIN blobs b USING (pack) WHERE p.name = :name ORDER BY b.position

-- name: slices_page
SELECT s.partition, s.digest, w.digest FROM slices s JOIN blobs w ON w.blob = s.whole
WHERE (s.partition, s.digest) > (:partition, :digest) ORDER BY s.partition, s.digest LIMIT :limit

-- name: packs
SELECT name, size FROM packs ORDER BY name

-- name: condemn
UPDATE blobs SET condemned = :at WHERE partition = :partition AND digest = :digest AND condemned IS NULL

-- name: acquit
UPDATE blobs SET condemned = NULL WHERE partition = :partition AND digest = :digest AND condemned IS NOT NULL

-- name: remove_blob
DELETE FROM blobs WHERE partition = :partition AND digest = :digest AND condemned <= :before
  AND NOT EXISTS (SELECT 1 FROM slices WHERE whole = blobs.blob)

-- name: remove_slice
DELETE FROM slices WHERE partition = :partition AND digest = :digest

-- name: insert_pack
INSERT INTO packs (name, size, created_at) VALUES (:name, :size, :now) ON CONFLICT DO NOTHING

-- name: move_blob
UPDATE blobs SET pack = (SELECT pack FROM packs WHERE name = :pack), position = :position, length = :length,
                 encoding = :encoding
WHERE partition = :partition AND digest = :digest AND pack = (SELECT pack FROM packs WHERE name = :origin)

-- name: remove_pack
DELETE FROM packs WHERE name = :name AND NOT EXISTS (SELECT 1 FROM blobs WHERE pack = packs.pack) RETURNING name

-- name: announce
INSERT INTO announced_packs (name, at, process) VALUES (:name, :now, :process)
ON CONFLICT (name) DO UPDATE SET at = excluded.at, process = excluded.process

-- name: withdraw
DELETE FROM announced_packs WHERE name = :name

-- name: announced
SELECT name, at, process FROM announced_packs ORDER BY at, name
