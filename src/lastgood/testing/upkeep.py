"""What every catalog must do for upkeep: show all rows as they are, correct rows, count what is used."""

from __future__ import annotations

from lastgood.catalog.upkeep import STORE, Corrections, NameFix, NameRow, Tombstone
from lastgood.catalog.values import FILES, Binding, Blob, NewBranch, NewPack, NewSlice, PackedBlob, PackRange
from lastgood.errors import ConflictError
from lastgood.model.identity import digest, new_id
from lastgood.testing.case import ACTOR, ADA, CatalogCase, folder, inline, pack, pack_name, refused


class AuditConformance(CatalogCase):
    """A part of CatalogConformance."""

    def test_an_audit_of_an_empty_catalog_has_the_stores_own_row_and_nothing_else(self) -> None:
        with self.catalog.audit() as audit:
            assert [row.number for row in audit.tasks()] == [STORE]
            assert (audit.problems(), audit.lost, audit.unreadable) == ([], 0, [])
            assert [*audit.checkpoints(), *audit.branches(), *audit.blobs(), *audit.packs()] == []

    def test_an_audit_tells_tasks_branches_and_checkpoints_of_every_owner(self) -> None:
        first = self.save(root=b"the state").stored
        second = self.save(parent=first).stored
        side = self.fork(first, "side")
        other = self.save("task", owner="ben").stored
        self.purge(first)
        with self.catalog.audit() as audit:
            store, *tasks = audit.tasks()
            branches = list(audit.branches())
            rows = list(audit.checkpoints())
        assert store.number == STORE
        assert [(task.owner, task.id, task.last_sequence, task.checkpoints) for task in tasks] == [
            ("ada", "task", 3, 2),
            ("ben", "task", 1, 1),
        ]
        assert [row.id for row in rows] == [first.id, second.id, side.id, other.id]
        assert [(row.task, row.sequence) for row in rows] == [
            (one.task_number, one.placement.sequence) for one in (first, second, side, other)
        ]
        assert [row.record for row in rows] == [None, second.data, side.data, other.data]
        assert [row.deleted for row in rows] == [2, 0, 0, 0]
        assert [(row.root, row.root_size, row.encoding) for row in rows][:2] == [(None, None, None), (b"root", 4, 0)]
        assert [row.placement for row in rows] == [one.placement_digest for one in (first, second, side, other)]
        main, aside, _ = branches
        assert (main.head, main.version, main.own, main.origin_branch) == (2, 2, 1, None)
        assert (aside.origin_branch, aside.origin, aside.origin_id, aside.inherited) == (main.number, 1, first.id, 0)
        assert tasks[0].active_branch == main.number

    def test_an_audit_tells_what_was_said_and_logged(self) -> None:
        first = self.save(key="k").stored
        self.attest("tag", first, name="green")
        number = first.task_number, 1
        with self.catalog.audit() as audit:
            (said,) = audit.attestations()
            assert (said.task, said.sequence, said.number, said.kind) == (*number, 1, "tag")
            assert list(audit.keys()) == [NameRow(number[0], "k", *number)]
            assert list(audit.tags()) == [NameRow(number[0], "green", *number)]
            assert list(audit.events()) == [(number[0], 2)]
        (held, kept) = self.catalog.attestations(ADA, first.id)[0]
        assert (said.digest, said.at, said.actor) == (kept, held.at_us, held.actor)

    def test_an_audit_tells_moves_folders_and_steps(self) -> None:
        first = self.save(binding=Binding([folder("/srv")])).stored
        second = self.save(parent=first, files_move=True).stored
        self.save(parent=first, new=NewBranch(new_id(), "new"))
        self.catalog.begin_step(self.step(id="s"), Blob(b"", 4, 0, b"snap"))
        with self.catalog.audit() as audit:
            main, new = audit.branches()
            files, switch = audit.moves()
            (bound,) = audit.workspaces()
            (open_step,) = audit.steps()
            assert list(audit.journals()) == []
        task = first.task_number
        assert (files.from_branch, files.to_branch) == (main.number, main.number)
        assert (files.before, files.after) == ((task, 1), (task, 2))
        assert (switch.number, switch.from_branch, switch.to_branch, switch.before) == (
            2,
            main.number,
            new.number,
            None,
        )
        assert (bound.task, bound.folder, bound.branch) == (task, folder("/srv"), main.number)
        assert (open_step.id, open_step.snapshot, open_step.size) == ("s", b"snap", 4)
        assert second.placement.sequence == 2

    def test_an_audit_tells_every_blob_with_its_place(self) -> None:
        first = self.save(blobs=(b"alpha",)).stored
        whole = digest(b"alphabeta")
        entry = PackedBlob(digest(b"packed"), 57, 6, 60, 1)
        self.save(
            parent=first,
            blobs=(b"alphabeta",),
            slices=[NewSlice(digest(b"alpha"), whole, 0)],
            file_blobs=[inline(b"file")],
            packs=[NewPack("packs/aa/one", 200, [entry])],
        )
        with self.catalog.audit() as audit:
            (pack,) = audit.packs()
            rows = {row.digest: row for row in audit.blobs(data=True)}
            lengths = {row.digest: (row.length, row.data) for row in audit.blobs()}
            (part,) = audit.slices()
            found = audit.read(first.task_number, [digest(b"alpha"), digest(b"never")])
            assert found == self.catalog.blobs(first.task_number, [digest(b"alpha")])
        assert (pack.name, pack.size) == ("packs/aa/one", 200)
        assert rows.keys() == {whole, digest(b"packed"), digest(b"file")}
        assert rows[digest(b"file")][1:] == (FILES, digest(b"file"), 4, 0, None, None, 4, b"file")
        assert rows[digest(b"packed")][1:] == (FILES, digest(b"packed"), 60, 1, pack.number, 57, 6, None)
        assert lengths[whole] == (9, None)
        assert (part.digest, part.size, part.position, part.whole) == (digest(b"alpha"), 5, 0, rows[whole].number)

    # --- mending -------------------------------------------------------------------------------------------------

    def test_mending_sets_figures_marks_and_names_right_and_logs_it(self) -> None:
        first = self.save(key="k").stored
        self.save(parent=first)
        task = first.task_number
        with self.catalog.audit() as audit:
            (branch,) = audit.branches()
        self.catalog.correct(
            Corrections(
                checksums=[(task, 1, b"c" * 32)],
                marks=[(task, 2, "other", 1, 1, 77)],
                branches=[(branch.number, 2, 7, 5, 3)],
                tasks=[(task, 2, 9, 4)],
                keys=[NameFix(task, "k", 2), NameFix(task, "gone", None)],
                tags=[NameFix(task, "green", 1)],
            ),
            ACTOR,
        )
        with self.catalog.audit() as audit:
            (row,) = audit.branches()
            assert (row.head, row.version, row.own, row.inherited) == (2, 7, 5, 3)
            assert list(audit.tasks())[1][4:] == (2, 9, 4)
            one, two = audit.checkpoints()
            assert one.checksum == b"c" * 32
            assert (two.type, two.deleted, two.verified, two.verified_at) == ("other", 1, 1, 77)
            assert list(audit.keys()) == [NameRow(task, "k", task, 2)]
            assert list(audit.tags()) == [NameRow(task, "green", task, 1)]
        assert [event.kind for event in self.catalog.events(None)] == ["repaired"]

    def test_no_tombstone_is_put_where_something_stands(self) -> None:
        first, _ = self.chain(2)
        self.purge(first)
        with self.catalog.audit() as audit:
            stone, _ = audit.checkpoints()
        with refused(ConflictError):
            made = Tombstone(stone.task, 1, stone.branch, ADA, "other", 1, 1, stone.checksum, stone.placement)
            self.catalog.correct(Corrections(tombstones=[made]), ACTOR)

    def test_mending_brings_blobs_back_and_takes_out_lost_ones_with_their_parts_and_empty_packs(self) -> None:
        first = self.save(blobs=(b"alpha", b"other")).stored
        whole, task = digest(b"alphabeta"), first.task_number
        self.save(parent=first, blobs=(b"alphabeta",), slices=[NewSlice(digest(b"alpha"), whole, 0)])
        file, packed = inline(b"file"), PackedBlob(digest(b"packed"), 57, 6, 6, 0)
        self.save("files", file_blobs=[Blob(packed.digest, 6, 0, b"damage")], packs=[pack("empty"), pack("full", b"p")])
        mending = Corrections(
            blobs=[(FILES, file), (task, inline(b"other"))],
            packs=[NewPack("packs/aa/one", 200, [packed])],
            lost=[(task, whole)],
            retired=[pack_name("empty"), pack_name("full")],
        )
        self.catalog.correct(mending, ACTOR)
        assert self.catalog.blobs(FILES, [file.digest]) == {file.digest: file}
        assert self.catalog.blobs(FILES, [packed.digest])[packed.digest].place == PackRange("packs/aa/one", 57, 6)
        assert self.catalog.blobs(task, [digest(b"other"), digest(b"alpha"), whole]).keys() == {digest(b"other")}
        assert [known.name for known in self.catalog.packs()] == [pack_name("full"), "packs/aa/one"]

    def test_rebuilding_what_is_whole_changes_nothing_and_no_number_is_given_again(self) -> None:
        first = self.save(key="k", blobs=(b"alpha",)).stored
        self.save("files", file_blobs=[inline(b"file")])
        gone = self.save("gone").stored
        self.catalog.delete_task(ADA, "gone", ACTOR)
        before = self._everything()
        assert self.catalog.rebuild() == []
        assert self._everything() == before
        self.save(parent=first)
        assert self.save("new").stored.task_number > gone.task_number

    def _everything(self) -> list[object]:
        with self.catalog.audit() as audit:
            rows: list[object] = [*audit.tasks(), *audit.branches(), *audit.checkpoints(), *audit.events()]
            return [*rows, *audit.keys(), *audit.blobs(data=True), *audit.attestations(), audit.problems()]
