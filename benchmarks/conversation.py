"""The conversation that is saved: an agent's messages, always the same ones, neither noise nor one sentence over.

Words are drawn with a Zipf-like distribution from a few thousand; messages are what agents have: requests,
answers with tool calls, and results that look like logs, code and listings.
"""

from __future__ import annotations

import json
import random
from itertools import accumulate
from typing import Any

Message = dict[str, Any]


def _split(words: str) -> list[str]:
    return words.split()


WORDS = 4000
_COMMON = _split(
    "the of to and a in is that it for on with as this be are was by not from or an we at if you can has will "
    "which file test error code function value run line data set when all should new first then use call return "
    "now but one no so there into check more after before only same still does also because each other done"
)
_BEGIN = _split("b br c ch d dr f fl g gr h j k l m n p pl pr qu r s sh sl st str t th tr v w")
_MIDDLE = _split("a e i o u ai ea ee ia io oa ou")
_END = _split("b ck d ft g l ll m n nd ng nt p r rd rk rm rt s sk st t th tion ment ing ed er ly al ive")
_FOLDERS = _split("src tests docs core engine api store model tools scripts")
_STOPS = (".", ".", ".", "?", ":")
_LEVELS = ("DEBUG", "INFO", "INFO", "INFO", "WARNING", "ERROR")


def conversation(turns: int, seed: int = 1) -> list[Message]:
    """`turns` messages of about 1.4 KB on average."""
    return _Writer(seed).messages(turns)


class _Writer:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._words = self._vocabulary()
        self._weights = list(accumulate(1 / (rank + 2.7) for rank in range(len(self._words))))

    def messages(self, turns: int) -> list[Message]:
        found: list[Message] = []
        call: Message = {}
        for turn in range(turns):
            kind = turn % 8
            if kind == 0:
                message: Message = {"role": "user", "content": self._prose(450)}
            elif kind % 2 == 0 and call:
                message = {"role": "tool", "tool_call_id": call["id"], "content": self._result(call["name"])}
            else:
                call = {} if kind == 7 else self._call()
                message = {"role": "assistant", "content": self._prose(1220 if kind == 7 else 630)}
                message["tool_calls"] = [call] if call else []
            found.append({"id": f"msg_{self._hex(24)}", "turn": turn, **message})
        return found

    def _vocabulary(self) -> list[str]:
        words = dict.fromkeys(_COMMON)
        while len(words) < WORDS:
            syllables = self._random.choices((1, 2, 3), (3, 5, 2))[0]
            parts = (self._pick(_BEGIN) + self._pick(_MIDDLE) for _ in range(syllables))
            words["".join(parts) + self._pick(_END)] = None
        return list(words)

    def _some(self, count: int) -> list[str]:
        return self._random.choices(self._words, cum_weights=self._weights, k=count)

    def _pick(self, options: list[str] | tuple[str, ...]) -> str:
        return self._random.choice(options)

    def _hex(self, digits: int) -> str:
        return f"{self._random.getrandbits(4 * digits):0{digits}x}"

    def _length(self, mean: int) -> int:
        """Sizes vary as they do in life: many short ones, a few long ones."""
        return int(min(self._random.lognormvariate(0, 0.7) / 1.28, 8) * mean)

    def _prose(self, mean: int) -> str:
        wanted, have = self._length(mean), 0
        sentences: list[str] = []
        while have < wanted or not sentences:
            sentence = " ".join(self._some(self._random.randint(4, 22))).capitalize() + self._pick(_STOPS)
            sentences.append(sentence + self._pick((" ", " ", " ", "\n\n")))
            have += len(sentence)
        return "".join(sentences).strip()

    def _path(self) -> str:
        return "/".join((self._pick(_FOLDERS), *self._some(1), "_".join(self._some(2)) + ".py"))

    def _call(self) -> Message:
        name = self._pick(("read_file", "run_command", "edit_file", "search"))
        arguments: dict[str, Any] = {"path": self._path()}
        if name == "run_command":
            arguments = {"command": f"pytest -x {self._path()} -k {self._some(1)[0]}", "timeout": 120}
        elif name == "edit_file":
            arguments |= {"old": self._code(8), "new": self._code(10)}
        elif name == "search":
            arguments |= {"pattern": " ".join(self._some(2)), "limit": self._random.randint(10, 50)}
        return {"id": f"call_{self._hex(24)}", "name": name, "arguments": json.dumps(arguments)}

    def _result(self, name: str) -> str:
        lines = max(3, self._length(24))
        if name in ("read_file", "edit_file"):
            return self._code(int(lines * 1.6))
        make = self._log_line if name == "run_command" else self._found_line
        return "\n".join(make() for _ in range(lines))

    def _log_line(self) -> str:
        at = f"2025-03-{self._random.randint(10, 28)}T{self._random.randint(10, 23)}:{self._random.randint(10, 59)}"
        place = ".".join((self._pick(_FOLDERS), *self._some(1)))
        text = " ".join(self._some(self._random.randint(4, 12)))
        return f"{at}:{self._random.uniform(10, 60):.3f} {self._pick(_LEVELS):7} {place}: {text} id={self._hex(8)}"

    def _found_line(self) -> str:
        return f"{self._path()}:{self._random.randint(1, 900)}: {' '.join(self._some(self._random.randint(3, 10)))}"

    def _code(self, lines: int) -> str:
        found = []
        for _ in range(lines):
            name, other, third = self._some(3)
            pad = "    " * self._random.choice((0, 1, 1, 1, 2, 2, 3))
            number = self._random.randint(0, 999)
            form = self._random.choice(
                (
                    f"{name}_{other} = self.{third}({other}, {number})",
                    f"if {name} is not None and {other}.{third} > {number}:",
                    f"def {name}_{other}(self, {third}: int) -> str:",
                    f'raise ValueError(f"{name} {other} {{{third}}}")',
                    f"for {name} in {other}_{third}:",
                    f"return {name}[{other!r}] + {third}",
                    f"# {name} {other} {third} {' '.join(self._some(6))}",
                )
            )
            found.append(pad + form)
        return "\n".join(found)
