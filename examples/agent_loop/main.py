"""A tool-using agent over real files, on a session: `python main.py WORKDIR [--crash TURN]`.

It mends a small project: reads it, runs its tests, edits, runs them again, asks before it releases. Where a language
model would choose the next tool there is a function that always chooses the same. Kill it at any moment and start it
again; pause, guide, answer and rewind it meanwhile from another terminal (README.md).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lastgood

BROKEN = "def add(a, b):\n    return a - b\n"
MENDED = "def add(a, b):\n    return a + b\n"
DESCRIBED = 'def add(a, b):\n    """The sum of two numbers."""\n    return a + b\n'
TESTS = "from calc import add\n\nassert add(2, 3) == 5\nprint('ok')\n"


class Agent:
    """Its memory is a conversation; its tools work on files of the project."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.messages = lastgood.AppendList()
        self.tools: dict[str, Callable[..., str]] = {"read": self.read, "write": self.write, "test": self.test}

    def state(self) -> dict[str, Any]:
        return {"messages": self.messages}

    def load(self, state: dict[str, Any]) -> None:
        self.messages = state["messages"]

    def read(self, name: str) -> str:
        return (self.project / name).read_text()

    def write(self, name: str, text: str) -> str:
        (self.project / name).write_text(text)
        return f"{name} has {len(text)} characters now"

    def test(self) -> str:
        command = [sys.executable, "-B", "test_calc.py"]
        done = subprocess.run(command, cwd=self.project, capture_output=True, text=True, check=False)
        return "passed" if done.returncode == 0 else "failed"

    def choose(self, guidance: list[Any]) -> dict[str, Any] | None:
        """What a model would answer: the next tool and its arguments; None: there is nothing left to do."""
        results = [message["result"] for message in self.messages]
        wants_words = any("describe" in said.get("text", "") for said in guidance)
        if not results:
            return {"tool": "read", "arguments": ["calc.py"]}
        if results[-1] == "passed" and wants_words and "sum of two" not in self.read("calc.py"):
            return {"tool": "write", "arguments": ["calc.py", DESCRIBED]}
        if results[-1] == "passed":
            return None
        if results[-1] == "failed":
            return {"tool": "write", "arguments": ["calc.py", MENDED]}
        return {"tool": "test", "arguments": []}


def work(task: lastgood.Task, agent: Agent, crash: int) -> None:
    with task.session(state=agent.state, load=agent.load) as session:
        while True:
            session.boundary()
            call = agent.choose(session.guidance)
            if call is not None:
                take_turn(session, agent, call, crash)
            elif session.ask("The tests pass. Release?", choices=["yes", "no"]) == "no":
                break
            elif agent.choose(session.guidance) is None:  # nobody wanted something else meanwhile
                with session.before_risky("release"):
                    agent.write("RELEASED", "1.0\n")
                break


def take_turn(session: lastgood.Session, agent: Agent, call: dict[str, Any], crash: int) -> None:
    """One tool call: its effect on the files and its place in the conversation are one checkpoint."""
    result = agent.tools[call["tool"]](*call["arguments"])
    if len(agent.messages) + 1 == crash:
        os.kill(os.getpid(), signal.SIGKILL)
    agent.messages.append({**call, "result": result})
    session.save(type="tool_executed", message=call["tool"])
    print(f"{call['tool']}: {result.splitlines()[0]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--crash", type=int, default=0, help="be killed in this turn")
    options = parser.parse_args()
    project = options.folder / "project"
    if not project.exists():
        project.mkdir(parents=True)
        (project / "calc.py").write_text(BROKEN)
        (project / "test_calc.py").write_text(TESTS)
    with lastgood.open(options.folder / "store") as store:
        work(store.task("agent", workspace=project), Agent(project), options.crash)
        print("released" if (project / "RELEASED").exists() else "not released")


if __name__ == "__main__":
    main()
