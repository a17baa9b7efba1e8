"""One call of the command line: commands and the options that they share, the store it is about, and the alerts that
it prints."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from shlex import join, quote, split
from typing import TYPE_CHECKING, Any

import click

from lastgood.cli.output import json_text, printable, say, size_text
from lastgood.errors import CheckpointError, InvalidError, NotFoundError
from lastgood.observe.log import listening

if TYPE_CHECKING:
    from lastgood import Store, Task
    from lastgood.engine.options import Options
    from lastgood.files.roots import Root
    from lastgood.local.location import Config, Location
    from lastgood.model.task import Journal


MAIN = "main"
NETWORK = "LASTGOOD_NETWORK"
"""What evidence may connect to, which a person says in the environment. A lastgood.toml cannot say it: a person who
clones a folder has not agreed to what stands in it."""

COMPLETE = "_LASTGOOD_COMPLETE"
"""Set by the script of a shell that asks what could be typed next."""

WITH_FILES = frozenset({"branch", "diff", "redo", "restore", "run", "run-step", "save", "status", "undo", "watch"})
"""Commands that take --workspace."""

FOR_PATHS = {"cat": "cat HEAD", "diff": "diff --", "log": "log --", "ls": "ls HEAD", "restore": "restore HEAD"}
"""How commands take the path of a file, which a person may have typed in the place of a checkpoint or a task."""

ANY_PATH = click.Path(readable=False)
"""A path as it was given: whether it can be read is found when it is, with the rights of the moment."""


class Invocation:
    """The options that every command takes; None where they were not given."""

    def __init__(self) -> None:
        self.store: str | None = None
        self.task: str | None = None
        self.user: str | None = None
        self.owner: str | None = None
        self.json = False
        self.quiet = False
        self.workspace: tuple[str, ...] = ()
        self.no_files = False
        self.arguments: Sequence[str] = ()
        self.alerts = AlertPrinter(self)
        self.interrupted = ""
        """What is true after Ctrl-C, for the person who pressed it."""
        self.switch = ""
        """The command that goes to the branch that --task names."""

    def complete(self, text: str) -> str:
        """Return `text`, the commands in it with the options given here, without which they act on another store."""
        text = re.sub(r"^did you mean ([^`]+)\?$", lambda found: f"did you mean {self._from_here(found[1])}?", text)
        command = r"""`lastgood ((?:'[^']*'|"[^"]*"|[^`'"\\])+)`"""
        return re.sub(command, lambda found: f"`lastgood {self._with_options(found[1])}`", text)

    def _from_here(self, path: str) -> str:
        """Convert a path of the workspace to what is typed for it in the current folder."""
        with suppress(CheckpointError, OSError):
            folder = self.folders()
            if isinstance(folder, str) and Path.cwd().is_relative_to(os.path.realpath(folder)):
                return os.path.relpath(Path(os.path.realpath(folder), path))
        return path

    def _with_options(self, command: str) -> str:
        words = split(command)
        end = words.index("--") if "--" in words else len(words)
        at = next((at for at in range(0, end, 2) if not words[at].startswith("-")), 0)  # options come in pairs
        named = {word.partition("=")[0] for word in words[:end]}
        named |= {"--task"} if self.task in words[at + 1 : at + 2] else set()  # TASK
        if "--help" in named:
            return command
        shared = {f"--{name}": getattr(self, name) for name in ("store", "task", "user", "owner")}
        before = [text for name, value in shared.items() if value and name not in named for text in (name, value)]
        files = words[at] in WITH_FILES and not named & {"--workspace", "--no-files"}
        after = [text for folder in self.workspace if files for text in ("--workspace", folder)]
        return join([*before, *words[:end], *after, *words[end:]])

    def room(self) -> str:
        """Return how much is free on the disk of the store or of the current folder, whichever has less."""
        with suppress(CheckpointError, OSError):
            places = {str(path): os.statvfs(path) for path in (self.locate().place or "/", Path.cwd())}
            free, place = min((found.f_bavail * found.f_frsize, path) for path, found in places.items())
            return f"{size_text(free)} are left in {place}"
        return ""

    def again(self, option: str, value: object) -> str:
        """Return this command with another value of an option: the next page of a list."""
        end = self.arguments.index("--") if "--" in self.arguments else len(self.arguments)
        own, rest = list(self.arguments[:end]), self.arguments[end:]
        own = [word for at, word in enumerate(own) if option not in (word, word.partition("=")[0], *own[at - 1 : at])]
        return f"`lastgood {join([*own, option, str(value), *rest])}`"

    def locate(self) -> Location:
        """Return where the store is; InvalidError for a folder that has one in it, or names one, instead."""
        from lastgood.local.location import CONFIG, FOLDER, VARIABLE, locate

        location = locate(self.store)
        place, catalog = location.place, location.catalog
        is_given = location.found_by in ("argument", VARIABLE) and catalog is not None and not catalog.exists()
        if is_given and place is not None and any(place.joinpath(name).exists() for name in (CONFIG, FOLDER)):
            own = quote(os.path.relpath(place / FOLDER))
            hint = f"give --store {own}, or the store that its {CONFIG} names, or go into the folder"
            raise InvalidError(f"{place} is a folder that has a store, not the store itself", hint=hint)
        return location

    def open(self) -> Store:
        """Open the store, which must be there, to read it or to change what is said of checkpoints.

        Nothing is saved, so that no garbage collection is begun, and no spool is opened where there is none.
        """
        self.require_store()
        more = (
            options_from_environment() if self._has_spool() else {**options_from_environment(), "on_failure": "raise"}
        )
        store = open_quietly(self.store, self.user, collect="never", **more)
        self._find_branch(store)
        return store

    def open_to_read(self) -> Store:
        """Open a store that is there so that nothing is written or waited for; what is spooled is not seen."""
        from lastgood.opening import open_to_read

        return open_to_read(self.store, self.user)

    def open_to_work(self, *, create: bool = False) -> Store:
        """Open the store to go on with a task. Relative paths of evidence begin at `base_path`.

        Only where something is to be stored is a store made that is not there yet, and that is said. One that a
        lastgood.toml names is not: its disk may be missing, and work would begin anew beside what was done.
        """
        location = self.locate()
        if location.catalog is None:
            raise InvalidError("a command keeps nothing in memory", hint="give --store a folder")
        refuse_orphan(location)
        if not create or location.config is not None:
            self.require_store()
        is_new = self._is_missing(location)
        base = None
        with suppress(NotFoundError):  # the working directory was deleted: evidence that needs one says so
            base = self.base_path()
        store = open_quietly(self.store, self.user, base_path=base, **options_from_environment())
        if is_new:
            say(self, f"a new store was made: {location.place}")
        elif not create or self.task != MAIN:  # a task may be called main, too
            self._find_branch(store)
        return store

    def _find_branch(self, store: Store) -> None:
        """Take a task that is none for a branch of the current folder's task, by its name."""
        if self.task is None:
            return
        from lastgood.local.location import default_task, find_config

        with suppress(CheckpointError):  # what is wrong is said by what is done with the name
            if not store.list_checkpoints(self.task, 1, owner=self.owner):
                branches = store.branches(default_task(find_config()), owner=self.owner)
                self.task = next((one.id for one in branches if one.name == self.task and not one.deleted), self.task)

    def in_workspace(self, path: str, *, pattern: bool = False) -> str:
        """Convert a path as it is typed here to that of the workspace. One that leads elsewhere stays as it is, and so
        does one with the name of its folder, as app:src. `pattern`: it may be a glob."""
        from glob import escape

        folders: str | dict[str, str] | None = None
        with suppress(InvalidError):  # it is of another store: paths are those of its checkpoints
            folders = self.folders()
        roots = {"": folders} if isinstance(folders, str) else folders or {}
        if not roots or path.partition(":")[0] in roots.keys() - {""}:
            return path
        clean = escape if pattern else str
        typed = os.path.normpath(os.path.join(clean(os.getcwd()), path))  # noqa: PTH109, PTH118
        for name, folder in roots.items():
            root = clean(os.path.realpath(folder))
            if typed == root or typed.startswith(root.rstrip("/") + "/"):
                inside = typed[len(root) :].lstrip("/") or ("**" if pattern and not name else "")
                return f"{name}:{inside}" if name else inside
        return path

    def base_path(self) -> Path:
        """Return the folder of the nearest lastgood.toml, else the current one."""
        from lastgood.local.location import current_folder, find_config

        config = find_config()
        return current_folder() if config is None else config.folder

    def options(self, **more: Any) -> Options:
        """Return the options that the store's lastgood.toml gives, and `more`."""
        from lastgood.engine.options import Options
        from lastgood.local.location import options_for

        return Options(**{**options_for(self.store), **more})

    def task_id(self) -> str:
        """Return the task that was named, else that of the current folder."""
        if self.task is not None:
            return self.task
        from lastgood.local.location import default_task, find_config

        return default_task(find_config())

    def folders(self) -> str | dict[str, str] | None:
        """Return the workspace that was named, else that of the nearest lastgood.toml; None: files are left alone.

        InvalidError where that file is of another store: its folder must not be given the files of this one.
        """
        if self.no_files:
            if self.workspace:
                raise InvalidError("--workspace and --no-files contradict each other", hint="give one of them")
            return None
        if self.workspace:
            return _named_folders(self.workspace)
        from lastgood.local.location import find_config

        config = find_config()
        folders = None if config is None else config.folders()
        if config is not None and folders is not None and not self._is_store_of(config):
            place = self.locate().place
            if not config.has_store():
                raise InvalidError(
                    f"the store that {config.folder} names is not there: whether {place} is a copy cannot be known",
                    hint=f"if it is, add --workspace {quote(os.path.relpath(config.folder))}",
                )
            raise InvalidError(
                f"the folder {config.folder} is of another store than {place}, as its lastgood.toml says",
                hint="--workspace DIR says whose files are meant; --no-files leaves files alone",
            )
        return folders

    def _is_store_of(self, config: Config) -> bool:
        """Return whether it is the store that a lastgood.toml names, or a copy of it: a backup has the same id."""
        from lastgood.local.location import VARIABLE
        from lastgood.opening import open_to_read

        location = self.locate()
        if location.found_by not in ("argument", VARIABLE) or location.catalog is None:
            return True
        with suppress(CheckpointError):
            named = config.location()
            if named.catalog is not None and named.catalog.resolve() == location.catalog.resolve():
                return True
            with open_to_read(location.place, None) as store, open_to_read(named.place, None) as own:
                return store.info().id == own.info().id
        return False

    def work_on(self, store: Store) -> Task:
        """Return the task with its workspace. This finishes or takes back a restore that was interrupted there."""
        folders = self.folders()
        task = store.task(self.task_id(), workspace=False if self.no_files else folders, owner=self.owner)
        if self.task not in (None, task.task_id):
            self.switch = f"`lastgood branch --switch {quote(self.task_id())} --task {quote(task.task_id)}`"
        return task

    def require_store(self) -> None:
        """Raise NotFoundError unless the store is there."""
        location = self.locate()
        refuse_orphan(location)
        if not self._is_missing(location):
            return
        said, config = f"there is no store at {location.place}", location.config
        if config is None:
            hint = "`lastgood init` sets one up, the first `lastgood save` makes it; or give --store"
            raise NotFoundError(said, hint=hint)
        hint = f"if there was one, bring it back to there; `lastgood init {quote(str(config.parent))}` makes a new one"
        raise NotFoundError(f"{said}, which {config} names", hint=hint)

    def _is_missing(self, location: Location) -> bool:
        """Whether there is no store there, and nothing waits for one."""
        catalog = location.catalog
        return catalog is not None and not catalog.exists() and not self.keeps_spool(catalog)

    def _has_spool(self) -> bool:
        """Whether the store has a spool, perhaps an empty one, or one that was moved while another store was here."""
        from lastgood.spool.file import NAME, find_moved, spool_folder

        catalog = self.locate().catalog
        folder = None if catalog is None else spool_folder(catalog, self.options())
        return folder is not None and ((folder / NAME).exists() or bool(find_moved(folder, "other-store")))

    def keeps_spool(self, catalog: Path) -> bool:
        """Whether checkpoints are spooled for a store that is not there."""
        from lastgood.spool.spool import has_spooled

        return has_spooled(catalog, self.options())


@contextmanager
def telling(call: Invocation, task: Task, nothing: str) -> Iterator[None]:
    """After Ctrl-C inside, tell what became of it: `nothing`, if the task stands where it stood."""
    before = task.head
    try:
        yield
    except KeyboardInterrupt as stop:
        call.interrupted = "`lastgood status` says what became of it"
        if isinstance(stop.__context__, KeyboardInterrupt) or getattr(stop, "__notes__", None):
            raise  # pressed again while it was taken back, or that failed
        head = task.refresh()
        if (head and head.id) == (before and before.id):
            call.interrupted = nothing
        elif head is not None:
            call.interrupted = f"the newest checkpoint is @{head.sequence} now; `lastgood status` shows the files"
        raise


def refuse_orphan(location: Location) -> None:
    """Raise NotFoundError where a store lies here or above that nothing leads to: its lastgood.toml was removed."""
    if location.found_by != "default":
        return
    from lastgood.local.location import FOLDER
    from lastgood.local.paths import CATALOG

    orphan: Path | None = None
    with suppress(OSError):
        here = Path.cwd()
        orphan = next((above for above in (here, *here.parents) if (above / FOLDER / CATALOG).is_file()), None)
    if orphan is not None:
        raise NotFoundError(
            f"there is a store in {orphan}, and no lastgood.toml that names it",
            hint=f"`lastgood init {quote(str(orphan))}` uses it again",
        )


class AlertPrinter:
    """Prints the alerts of one command, each on a line of stderr. `silenced`: codes that the command itself reports."""

    def __init__(self, call: Invocation) -> None:
        self._call = call
        self._note: Callable[[str], None] | None = None
        self.silenced = {"store_away", "save_failed"}

    def listening(self) -> AbstractContextManager[None]:
        """Print what the engine logs inside."""
        return listening(self._receive)

    @contextmanager
    def onto(self, note: Callable[[str], None]) -> Iterator[None]:
        """Inside, give warnings and all alerts to `note`: they are for the person who runs the work here."""
        self._note = note
        try:
            yield
        finally:
            self._note = None

    def _receive(self, level: str, message: str, fields: dict[str, Any]) -> None:
        """Take a line of the log, from any thread."""
        code = fields.get("code")
        if self._note is not None:
            self._note(f"{level if code is None else 'alert'}: {message}")
        elif code is not None and code not in self.silenced:
            alert = {"code": code, "severity": fields.get("severity"), "detail": message}
            line = json_text({"alert": alert}) if self._call.json else f"alert: {printable(message)}"
            click.echo(line, err=True)


def _named_folders(given: tuple[str, ...]) -> str | dict[str, str]:
    """`DIR` alone, or `NAME=DIR` for each; a name has no slash, so that ./a=b is a folder."""
    split = [text.partition("=") for text in given]
    named = {name: path for name, separator, path in split if separator and "/" not in name}
    if not named and len(given) == 1:
        return given[0]
    if len(named) < len(given):
        raise InvalidError(
            "several folders of a workspace need a name each, and no two the same",
            hint="as in --workspace app=./app --workspace infra=../infra",
            field="workspace",
        )
    return named


def open_quietly(target: str | Path | None, user: str | None = None, **options: Any) -> Store:
    """Open a store without the warning about interrupted steps: `lastgood status` lists them."""
    from lastgood.engine.options import Options
    from lastgood.local.location import options_for
    from lastgood.opening import open_engine
    from lastgood.store import Store

    engine, acting = open_engine(target, Options(**{**options_for(target), **options}), user)
    if engine.spool is not None:
        engine.spool.needs_disk = True
    if engine.housekeeper is not None:
        from lastgood.cli.background import start_apart

        engine.housekeeper.start = start_apart  # a command ends before the work is done

    def sync_apart(journal: Journal, plans: Sequence[tuple[Root, Any]]) -> None:
        from lastgood.cli.background import sync_apart

        sync_apart(engine, acting, journal, [root for root, _ in plans])

    engine.sync_apart = sync_apart
    return Store(engine, acting)


def options_from_environment() -> dict[str, Any]:
    """Return options of `lastgood.open`; InvalidError, with the variable's name, for a wrong value."""
    if not (value := os.environ.get(NETWORK)):
        return {}
    from lastgood.engine.options import Options

    try:
        Options(network=value)  # type: ignore[arg-type]
    except InvalidError as error:
        raise InvalidError(f"{NETWORK}: {error}", hint=error.hint, field=NETWORK) from error
    return {"network": value}


def shared_options() -> list[click.Parameter]:
    """Return the options of every command."""
    return [
        click.Option(
            ["--store"], type=ANY_PATH, metavar="PATH", help="The store.", expose_value=False, callback=_remember
        ),
        click.Option(
            ["--task"],
            metavar="ID",
            help="The task, or a branch by its name or id.",
            expose_value=False,
            callback=_remember,
            shell_complete=_complete_task,
        ),
        click.Option(["--user"], metavar="NAME", help="Act as this user.", expose_value=False, callback=_remember),
        click.Option(["--owner"], metavar="NAME", help="Owner of the task.", expose_value=False, callback=_remember),
        click.Option(
            ["--json"], is_flag=True, help="Print JSON.", expose_value=False, is_eager=True, callback=_remember
        ),
        click.Option(["--quiet", "-q"], is_flag=True, help="Print no remarks.", expose_value=False, callback=_remember),
    ]


class Number(click.IntRange):
    """A whole number between bounds, said in words."""

    name = "whole number"

    def get_metavar(self, *_: Any, **__: Any) -> str:
        return "N"

    def _describe_range(self) -> str:
        return f"from {self.min}" + ("" if self.max is None else f" to {self.max:,}")


class TaskArgument(click.Argument):
    """TASK, which stands for --task. `before`: the argument behind it that is meant when only one of the two is given;
    of others that is meant only beside --task."""

    def __init__(self, *, before: str | None = None, **more: Any) -> None:
        super().__init__(["work"], required=False, metavar="[TASK]", **more)
        self.before = before


class SharedCommand(click.Command):
    """A command that takes the shared options."""

    def __init__(self, name: str | None, **more: Any) -> None:
        super().__init__(name, **more)
        self.params += shared_options()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shared = {option.name for option in shared_options()}
        own = [
            option.get_help_record(ctx)
            for option in self.get_params(ctx)
            if isinstance(option, click.Option) and option.name not in shared
        ]
        with formatter.section("Options"):
            formatter.write_dl([record for record in own if record is not None])
        formatter.write_paragraph()
        formatter.write_text("Also --store, --task, --user, --owner, --json and --quiet: `lastgood --help`.")

    def invoke(self, ctx: click.Context) -> Any:
        for argument in self.params:
            if isinstance(argument, TaskArgument):
                self._name_task(ctx, argument)
        try:
            return super().invoke(ctx)
        except NotFoundError as error:
            given = [*ctx.params.values(), ctx.obj.task]
            path = next((word for word in given if type(word) is str and f" {word!r}" in str(error)), None)
            if path and self.name in FOR_PATHS and os.path.lexists(path):
                error.hint = f"`lastgood {FOR_PATHS[self.name]} {quote(path)}` takes it as a path"
                ctx.obj.task = None if ctx.obj.task == path else ctx.obj.task
            raise

    def _name_task(self, ctx: click.Context, argument: TaskArgument) -> None:
        """Take the task that TASK names, unless what is given there is the next argument."""
        call: Invocation = ctx.ensure_object(Invocation)
        task = ctx.params.pop("work", None)
        others = [one for one in self.params if isinstance(one, click.Argument) and one is not argument]
        if others and ctx.params.get(others[0].name or "") is None:
            if task is not None and (call.task is not None or argument.before is not None):
                ctx.params[others[0].name or ""], task = others[0].type_cast_value(ctx, task), None
            elif argument.before is not None:
                raise click.MissingParameter(ctx=ctx, param=others[0])
        if task is not None and call.task not in (None, task):
            raise click.UsageError(f"TASK is {task!r}, and --task {call.task!r}: name one", ctx)
        call.task = call.task if task is None else task

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from lastgood.cli.examples import EXAMPLES

        with formatter.section("Examples"):
            for line in EXAMPLES[self.name or ""]:
                formatter.write(f"{'':>{formatter.current_indent}}lastgood {line}\n")


class CommandWithPaths(SharedCommand):
    """A command that takes paths after `--`, and nothing else there: they come as `paths`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, paths = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
        rest = super().parse_args(ctx, own)
        ctx.params["paths"] = tuple(paths)
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PATH...]"]


def subcommand(function: Callable[..., Any]) -> SharedCommand:
    """Make a command of a function, named after it; the function takes the `Invocation` first."""
    return named(function, SharedCommand)


def subcommand_with_paths(function: Callable[..., Any]) -> SharedCommand:
    """As `subcommand`, with paths after `--`."""
    return named(function, CommandWithPaths)


def task_argument(*, before: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add TASK, which stands for --task, and needs no parameter of the function."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__dict__.setdefault("__click_params__", []).append(
            TaskArgument(before=before, shell_complete=_complete_task)
        )
        return function

    return add


def workspace_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that works with the files of a task."""
    options = (
        click.Option(
            ["--workspace"],
            multiple=True,
            metavar="[NAME=]DIR",
            help="The folder of the task's files; several have names.",
            expose_value=False,
            callback=_remember,
        ),
        click.Option(["--no-files"], is_flag=True, help="Leave files alone.", expose_value=False, callback=_remember),
    )
    declared = function.__dict__.setdefault("__click_params__", [])
    declared.extend(reversed(options))
    return function


def named(function: Callable[..., Any], kind: type[SharedCommand]) -> SharedCommand:
    """Make a command of that kind, named after the function."""
    return click.command(function.__name__.replace("_", "-"), cls=kind)(click.pass_obj(function))


def _remember(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    if value is not None and value is not False:
        setattr(ctx.ensure_object(Invocation), option.name or "", value)


def _complete_task(ctx: click.Context, option: click.Parameter, incomplete: str) -> Any:
    from lastgood.cli.completion import complete_tasks

    return complete_tasks(ctx, option, incomplete)
