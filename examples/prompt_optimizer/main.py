"""Makes a prompt better, round by round: `python main.py WORKDIR`, or `lastgood run main:pipeline`.

Each round has four layers: find patterns in what the present prompt gets wrong, distil rules from them, propose
candidate prompts, evaluate them. The work survives being killed, and people take part: they pause it, edit a candidate,
say what they do not want, add rounds, go back, try another way on a branch (README.md).

Where a language model would sort messages by a prompt there is a function that takes the prompt at its word: it
follows lines of the form `"word" means label`, and gives the first label otherwise. So every run comes out the same.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import lastgood

FIRST_PROMPT = "Sort each message: billing, bug or praise."
MESSAGES = [
    ("I was charged twice this month", "billing"),
    ("please refund the invoice", "billing"),
    ("the invoice has the wrong address", "billing"),
    ("it crashes when I press save", "bug"),
    ("the app crashes on start", "bug"),
    ("an error appears on the login page", "bug"),
    ("another error after the update", "bug"),
    ("I love the new editor", "praise"),
    ("thank you, I love it", "praise"),
    ("great work, thank you", "praise"),
]
CANDIDATES = 3
COMMON = {"the", "it", "on", "i", "an", "a", "is", "has", "when", "this", "after", "new", "was", "you"}


def sort_message(prompt: str, message: str) -> str:
    """What a model would do."""
    for word, label in re.findall(r'"(\w+)" means (\w+)', prompt):
        if word in _words(message):
            return str(label)
    return "billing"


def score(prompt: str) -> float:
    """The share of messages that are sorted as a person would."""
    return sum(sort_message(prompt, message) == label for message, label in MESSAGES) / len(MESSAGES)


# --- the four layers ---------------------------------------------------------------------------------------


def find_patterns(ctx: lastgood.StageContext) -> None:
    """Which words stand in what is sorted wrongly, and what they should have told."""
    state = ctx.state
    state.setdefault("current_prompt", FIRST_PROMPT)
    state.setdefault("scores", [score(FIRST_PROMPT)])
    wrong = [(message, label) for message, label in MESSAGES if sort_message(state["current_prompt"], message) != label]
    found = Counter((word, label) for message, label in wrong for word in _words(message) - COMMON)
    state["patterns"] = [[word, label, count] for (word, label), count in sorted(found.items())]


def distil_rules(ctx: lastgood.StageContext) -> None:
    """The patterns that help most, without what people do not want."""
    unwanted = {word for said in ctx.guidance for word in _words(said.get("text", ""))}
    useful = [pattern for pattern in ctx.state["patterns"] if pattern[0] not in unwanted]
    useful.sort(key=lambda pattern: (-pattern[2], pattern[0]))
    ctx.state["rules"] = [f'"{word}" means {label}.' for word, label, _ in useful[:CANDIDATES]]


def propose_candidates(ctx: lastgood.StageContext) -> None:
    """The present prompt with one more rule each: artifacts, which people may edit before they are evaluated."""
    for number in range(CANDIDATES):
        rules = ctx.state["rules"][number : number + 1]
        ctx.set_artifact(f"candidate {number + 1}", "\n".join([ctx.state["current_prompt"], *rules]), type="prompt")


def evaluate(ctx: lastgood.StageContext) -> None:
    """The best candidate becomes the prompt, if it is better than the present one."""
    prompts = [str(ctx.artifact(f"candidate {number + 1}")) for number in range(CANDIDATES)]
    best = max([ctx.state["current_prompt"], *prompts], key=score)
    ctx.state["current_prompt"] = best
    ctx.state["scores"] = [*ctx.state["scores"], score(best)]


LAYERS = [find_patterns, distil_rules, propose_candidates, evaluate]
pipeline = lastgood.Pipeline(LAYERS, name="prompt optimizer", rounds=3)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))


def tell(event: Any) -> None:
    if event.kind == "succeeded":
        print(f"round {event.progress.round}: {event.stage}", flush=True)


def tell_and_wait(event: Any) -> None:
    """With a model a layer would take its time, and people could take part meanwhile. Here they say how long."""
    if event.kind == "started":
        print(f"round {event.progress.round}: {event.stage} begins; Enter lets it go on", flush=True)
        sys.stdin.readline()
    tell(event)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=pipeline.rounds)
    parser.add_argument("--step", action="store_true", help="wait for Enter in each layer")
    options = parser.parse_args()
    with lastgood.open(options.folder) as store:
        work = lastgood.Pipeline(LAYERS, name=pipeline.name, rounds=options.rounds)
        outcome = work.run(store.task("prompt"), on_progress=tell_and_wait if options.step else tell)
        print(f"{outcome.stopped or 'done'}: {outcome.state['scores'][-1]:.0%} with\n{outcome.state['current_prompt']}")


if __name__ == "__main__":
    main()
