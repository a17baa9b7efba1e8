"""The tasks of the table in docs/README.md, each done as a new user would, on a terminal."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.first_use.terminal import Terminal

LOOP = """\
import lastgood

with lastgood.open() as store:
    task = store.task("shop", workspace=".")
    done = task.load(default={"done": []})["done"]
    print("done so far:", done)
    for page in range(len(done) + 1, 4):
        with task.step(f"page {page}") as step:
            input(f"page {page}: press Enter ")
            done.append(page)
            step.state = {"done": done}
"""

AGENT = """\
import lastgood

with lastgood.open() as store:
    memory = {"turn": 0}
    with store.task("shop").session(state=lambda: memory) as session:
        print("working")
        while True:
            memory["turn"] += sum(range(100_000)) > 0
            session.boundary()
            for said in session.new_guidance():
                print("guidance:", said.text)
    print("stopped")
"""


@pytest.fixture
def shop(terminal: Terminal, home: Path) -> Path:
    """A folder with a file and a store, in which the terminal is."""
    terminal.run("mkdir shop && cd shop && echo 'price = 119' > app.py && lastgood init")
    return home / "shop"


def test_save_for_the_first_time(terminal: Terminal, home: Path) -> None:
    terminal.run("mkdir shop && cd shop && echo 'price = 119' > app.py")
    terminal.run("lastgood init")
    terminal.run("echo 'ship it' > notes.txt")
    terminal.run('lastgood save -m "before the agent"')
    terminal.run('lastgood save -m "once more"')
    (home / "shop" / "notes.txt").unlink()
    terminal.run("lastgood restore HEAD")
    assert (home / "shop" / "notes.txt").read_text() == "ship it\n"


def test_see_what_was_saved(terminal: Terminal, shop: Path) -> None:
    terminal.run("echo 'ship it' > notes.txt && lastgood save -m 'with notes'")
    terminal.run("lastgood log")
    terminal.run("lastgood show")
    terminal.run("lastgood ls @1")
    assert terminal.run("lastgood cat @1:app.py") == "price = 119\n"


def test_see_what_changed(terminal: Terminal, shop: Path) -> None:
    terminal.run("echo 'price = 100' > app.py && echo junk > notes.txt")
    terminal.run("lastgood status")
    assert "app.py" in terminal.run("lastgood diff --stat")
    assert "+price = 100" in terminal.run("lastgood diff")


def test_go_back_to_the_last_good_checkpoint(terminal: Terminal, shop: Path) -> None:
    terminal.run("lastgood run-step tests -- grep -q 119 app.py")
    terminal.run("echo 'price = 100' > app.py")
    terminal.run("lastgood run-step tests -- grep -q 119 app.py", code=1)
    terminal.run("lastgood last-good")
    terminal.type("lastgood restore\n")
    terminal.wait_for("[y/N]")
    terminal.type("y\n")
    assert terminal.end() == 0
    assert (shop / "app.py").read_text() == "price = 119\n"


def test_go_back_one_file(terminal: Terminal, shop: Path) -> None:
    terminal.run("echo broken > app.py && echo useful > notes.txt")
    terminal.run("lastgood restore @1 app.py")
    assert (shop / "app.py").read_text() == "price = 119\n"
    assert (shop / "notes.txt").read_text() == "useful\n"


def test_undo_a_restore(terminal: Terminal, shop: Path) -> None:
    terminal.run("echo 'price = 100' > app.py")
    terminal.run("lastgood restore @1")
    terminal.run("lastgood undo")
    assert (shop / "app.py").read_text() == "price = 100\n"
    terminal.run("lastgood redo")
    assert (shop / "app.py").read_text() == "price = 119\n"
    terminal.run("lastgood redo", code=4)


def test_resume_after_kill_9(terminal: Terminal, terminals: Callable[[], Terminal], shop: Path) -> None:
    (shop / "loop.py").write_text(LOOP)
    terminal.type("python loop.py & echo $! > ../loop.pid; fg\n")
    terminal.wait_for("press Enter ")
    terminal.type("\n")
    terminal.wait_for("press Enter ")
    other = terminals()
    other.run("kill -9 $(cat loop.pid)")
    assert terminal.end() == 137
    terminal.run("lastgood status")
    terminal.run("lastgood steps")
    terminal.type("python loop.py\n")
    for _page in (2, 3):
        terminal.wait_for("press Enter ")
        terminal.type("\n")
    assert terminal.end() == 0
    assert terminal.run("lastgood show --state").split() == ["{", '"done":', "[", "1,", "2,", "3", "]", "}"]


def test_let_a_coding_agent_loose_and_go_back(terminal: Terminal, shop: Path) -> None:
    (shop / "agent").write_text("#!/bin/sh\necho broken > app.py\nmkdir -p src && echo junk > src/new.py\necho done\n")
    (shop / "agent").chmod(0o755)
    terminal.run("lastgood run-step agent -- ./agent")
    terminal.run("lastgood diff --stat HEAD~1 HEAD")
    terminal.run("lastgood restore --dry-run HEAD~1")
    terminal.run("lastgood restore HEAD~1")
    assert (shop / "app.py").read_text() == "price = 119\n"
    assert {path.name for path in shop.iterdir()} == {".lastgood", "agent", "app.py", "lastgood.toml"}


def test_run_tests_as_evidence(terminal: Terminal, shop: Path) -> None:
    terminal.run("lastgood run-step tests --expect-file app.py -- grep -q 119 app.py")
    terminal.run("lastgood verify")
    terminal.run("echo 'price = 100' > app.py")
    terminal.run("lastgood run-step tests -- grep -q 119 app.py", code=1)
    terminal.run("lastgood verify", code=9)
    assert "x" in terminal.run("lastgood log")


def test_compare_two_checkpoints(terminal: Terminal, shop: Path) -> None:
    terminal.run("echo 'price = 100' > app.py && lastgood save -m cheaper --set round=2")
    terminal.run("lastgood diff @1 @2")
    terminal.run("lastgood diff @1 @2 --stat")
    assert "1 file changed" in terminal.run("lastgood diff @1 @2 --summary")


def test_branch_and_try_something_else(terminal: Terminal, shop: Path) -> None:
    terminal.run("echo 'price = 100' > app.py && lastgood save -m cheaper")
    terminal.run("lastgood fork @1 --name dearer")
    terminal.run("lastgood branch --switch dearer")
    assert (shop / "app.py").read_text() == "price = 119\n"
    terminal.run("echo 'price = 150' > app.py && lastgood save -m dearer")
    terminal.run("lastgood branch")


def test_switch_back(terminal: Terminal, shop: Path) -> None:
    terminal.run("lastgood fork --name dearer && lastgood branch --switch dearer")
    terminal.run("echo 'price = 150' > app.py")
    terminal.run("lastgood branch --switch main")
    assert (shop / "app.py").read_text() == "price = 119\n"
    terminal.run("lastgood branch --switch dearer")
    assert (shop / "app.py").read_text() == "price = 150\n"


def test_name_a_checkpoint(terminal: Terminal, shop: Path) -> None:
    terminal.run("lastgood tag green")
    terminal.run("echo 'price = 100' > app.py && lastgood save -m cheaper")
    terminal.run("lastgood tag")
    terminal.run("lastgood tag green", code=4)
    terminal.run("lastgood restore green")
    assert (shop / "app.py").read_text() == "price = 119\n"


def test_pause_guide_or_stop_running_work(terminal: Terminal, terminals: Callable[[], Terminal], shop: Path) -> None:
    (shop / "agent.py").write_text(AGENT)
    terminal.type("python agent.py\n")
    terminal.wait_for("working")
    other = terminals()
    other.run("cd shop")
    other.run("lastgood pause --wait")
    other.run("lastgood guide 'shorter titles' --wait")
    other.run("lastgood resume --wait")
    terminal.wait_for("guidance: shorter titles")
    other.run("lastgood stop --wait")
    assert terminal.end() == 0
    assert "stopped" in other.run("lastgood status")


def test_keep_the_store_small(terminal: Terminal, shop: Path) -> None:
    (shop / "big.bin").write_bytes(random.Random(1).randbytes(3_000_000))
    terminal.run("lastgood save -m 'by mistake'")
    terminal.run("rm big.bin && lastgood save -m 'without it'")
    terminal.run("lastgood du")
    terminal.run("lastgood du shop")
    terminal.run("lastgood rm @2")
    terminal.type("lastgood collect --grace 0\n")
    terminal.wait_for("[y/N]: ")
    terminal.type("y\n")
    assert terminal.end() == 0
    terminal.run("lastgood limit 100M --yes")
    assert sum(path.stat().st_size for path in (shop / ".lastgood").rglob("*") if path.is_file()) < 3_000_000


def test_back_up(terminal: Terminal, shop: Path) -> None:
    terminal.run("lastgood backup ../shop-backup")
    terminal.run("lastgood --store ../shop-backup log --task shop")
    terminal.run("lastgood backup ../shop-backup", code=4)
    terminal.run("lastgood --store ../shop-backup check --read-data")


def test_bring_a_backup_back_or_move_to_a_new_machine(terminal: Terminal, shop: Path) -> None:
    terminal.run("lastgood backup ../shop-backup")
    terminal.run("cd .. && rm -rf shop")
    terminal.run("mkdir shop && mv shop-backup shop/.lastgood && cd shop")
    terminal.run("lastgood init")
    terminal.run("lastgood restore HEAD")
    assert (shop / "app.py").read_text() == "price = 119\n"
    terminal.run("lastgood log")


def test_find_out_what_happened(terminal: Terminal, shop: Path) -> None:
    terminal.run("echo broken > app.py && lastgood run-step tests -- grep -q 119 app.py", code=1)
    terminal.run("lastgood restore @1")
    terminal.run("lastgood tag green")
    terminal.run("lastgood history")


def test_check_the_store_and_repair_it(terminal: Terminal, shop: Path) -> None:
    (shop / "big.bin").write_bytes(random.Random(1).randbytes(3_000_000))
    terminal.run("lastgood save -m 'with data'")
    terminal.run("lastgood check")
    pack = max((shop / ".lastgood").rglob("*"), key=lambda path: path.stat().st_size)
    with pack.open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"damage")
    terminal.run("lastgood check --read-data", code=5)
    terminal.run("lastgood repair")
    terminal.run("lastgood check --read-data")


def test_save_by_itself(terminal: Terminal, terminals: Callable[[], Terminal], shop: Path) -> None:
    terminal.type("lastgood watch --save --every 0.1s\n")
    terminal.wait_for("Ctrl-C ends it")
    other = terminals()
    other.run("echo 'price = 100' > new && mv new shop/app.py")  # at once: no save finds half of it
    terminal.wait_for("saved @2")
    terminal.type("\x03")
    assert terminal.end() == 0
    terminal.run("lastgood log")
