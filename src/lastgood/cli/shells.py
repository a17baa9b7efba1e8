"""What shells run when Tab is pressed, and what they are answered: names are data, and never become a command."""

from __future__ import annotations

import os
import re
import sys
from contextlib import redirect_stderr
from typing import TYPE_CHECKING, Any

from click.shell_completion import CompletionItem, FishComplete, ShellComplete, ZshComplete, split_arg_string

from lastgood.cli.invocation import COMPLETE

if TYPE_CHECKING:
    import click

_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'?|"(?:\\.|[^"\\])*"?|\\$)+""", re.DOTALL)
_UNSAFE = re.compile(r"[^\w@%+=:,./-]")


class _Shell(ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return values that can be shown on a line; those of `--option=value` with the option, which they replace."""
        name, equals, _ = incomplete.partition("=")
        option = f"{name}=" if equals and name.startswith("--") and "--" not in args else ""
        found = super().get_completions(args, incomplete)
        return [CompletionItem(option + one.value, one.type, one.help) for one in found if one.value.isprintable()]


class _Bash(_Shell):
    """Bash, which breaks words at @ and : and inserts what it is given as it is."""

    name = "bash"
    source_template = """\
%(complete_func)s() {
    local type value
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            open) COMPREPLY+=("$value"); compopt -o nospace ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_LINE=${COMP_LINE:0:COMP_POINT} COMP_WORD=$2 %(complete_var)s=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        line, replaced, last = os.environ["COMP_LINE"], os.environ["COMP_WORD"], ""
        words = split_arg_string(line)
        for match in _WORD.finditer(line):
            last = match[0] if match.end() == len(line) else ""
        self._kept = last.removesuffix(replaced).lstrip("'\"")
        self._is_quoted = "'" in last or '"' in last
        return (words[1:-1], words[-1]) if last else (words[1:], "")

    def format_completion(self, item: CompletionItem) -> str:
        if item.type != "plain":
            return f"{item.type},"
        value = _UNSAFE.sub(r"\\\g<0>", item.value)
        if (self._is_quoted and value != item.value) or not value.startswith(self._kept):
            return ""
        return f"{'open' if value.endswith(('/', ':')) else 'plain'},{value[len(self._kept) :]}"


class _Zsh(_Shell, ZshComplete):
    pass


class _Fish(_Shell, FishComplete):
    source_template = FishComplete.source_template.replace('string split ","', 'string split -m1 ","')


_SHELLS = {shell.name: shell for shell in (_Bash, _Zsh, _Fish)}


def script(root: click.Command, shell: str) -> str:
    """Return the script that a shell runs once, to complete from then on."""
    return _SHELLS[shell](root, {}, "lastgood", COMPLETE).source()


def answer(root: click.Command, ctx_args: dict[str, Any], instruction: str) -> int:
    """Print what could be typed next, and return the exit code. Whatever goes wrong is silent: someone is typing."""
    shell, _, action = instruction.partition("_")
    if shell not in _SHELLS or action not in ("complete", "source"):
        return 1
    with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):  # noqa: PTH123
        try:
            asked = _SHELLS[shell](root, ctx_args, "lastgood", COMPLETE)
            text = asked.source() if action == "source" else asked.complete()
            sys.stdout.write(f"{text}\n" if text else "")
            sys.stdout.flush()
        except (Exception, KeyboardInterrupt):
            return 1
    return 0
