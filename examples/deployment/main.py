"""A deployment in stages that survives failures and kills, and is taken back when it turns out bad. See README.md."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

import lastgood
from lastgood import Pipeline, StageContext, StageError, stage
from lastgood.types import ProgressEvent

TASK = "deployment"
SHAKY_UPLOADS = 2


class Cloud:
    """Stands where a provider would: servers are folders, and which one people see is a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._live = folder / "live"
        self._uploads = folder / "uploads"
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def servers(self) -> list[str]:
        return sorted(one.name for one in self.folder.iterdir() if one.is_dir())

    @property
    def live(self) -> str | None:
        return self._live.read_text() if self._live.exists() else None

    @property
    def seen(self) -> str:
        return (self.folder / self.live / "app").read_text().strip() if self.live else "nothing"

    def create(self, name: str) -> None:
        """The same name twice is the same server: that is what an idempotency key is for."""
        (self.folder / name).mkdir(exist_ok=True)

    def remove(self, name: str) -> None:
        for file in (self.folder / name).iterdir():
            file.unlink()
        (self.folder / name).rmdir()

    def upload(self, name: str, content: str) -> None:
        """The network is shaky: the first ones are lost on the way."""
        tried = int(self._uploads.read_text()) if self._uploads.exists() else 0
        self._uploads.write_text(str(tried + 1))
        if tried < SHAKY_UPLOADS:
            raise ConnectionError("the connection was reset")
        (self.folder / name / "app").write_text(content)

    def show(self, name: str | None) -> None:
        if name is None:
            self._live.unlink(missing_ok=True)
        else:
            self._live.write_text(name)


def plan(cloud: Cloud, project: Path, *, bad: bool = False, crash: str | None = None) -> Pipeline:
    def may_crash(ctx: StageContext) -> None:
        if ctx.stage == crash:
            os.kill(os.getpid(), signal.SIGKILL)

    def build(ctx: StageContext) -> None:
        version = ctx.state["version"]
        (project / "app").write_text(f"version {version}{', which crashes' if bad else ''}\n")
        ctx.run(["grep", "-q", f"version {version}", str(project / "app")], check=True)  # its exit code is evidence
        ctx.expect_file("app")
        may_crash(ctx)

    def release(ctx: StageContext) -> None:
        cloud.remove(ctx.state.pop("server"))

    @stage(undo=release)
    def provision(ctx: StageContext) -> None:
        ctx.state["before"] = cloud.live  # what an undo needs is recorded before there is something to undo
        ctx.state["server"] = f"server-{ctx.key[:8]}"
        cloud.create(ctx.state["server"])
        may_crash(ctx)

    @stage(retries=3, backoff=0.01, timeout=60)
    def upload(ctx: StageContext) -> None:
        cloud.upload(ctx.state["server"], (project / "app").read_text())
        may_crash(ctx)

    def switch_back(ctx: StageContext) -> None:
        cloud.show(ctx.state["before"])

    @stage(undo=switch_back)
    def switch(ctx: StageContext) -> None:
        with ctx.before_risky("people see the new version"):
            cloud.show(ctx.state["server"])
        may_crash(ctx)

    def check(ctx: StageContext) -> None:
        if "crashes" in cloud.seen:
            raise RuntimeError("the new version answers nobody")

    return Pipeline([build, provision, upload, switch, check], name="deploy")


def main() -> int:
    arguments = _arguments()
    folder: Path = arguments.folder
    project = folder / "project"
    project.mkdir(parents=True, exist_ok=True)
    cloud = Cloud(folder / "cloud")
    pipeline = plan(cloud, project, bad=arguments.bad, crash=arguments.crash)
    with lastgood.open(folder / "store", base_path=project) as store:
        task = store.task(TASK, workspace=project)
        another = task.head is not None and task.state["version"] != arguments.version
        try:
            pipeline.run(task, state={"version": arguments.version}, restart=another, on_progress=tell)
        except StageError as error:
            print(error)
            pipeline.roll_back(task, to="build", on_progress=tell)
    print(f"people see {cloud.seen}")
    return 0 if arguments.version in cloud.seen else 1


def tell(event: ProgressEvent) -> None:
    if event.kind in ("started", "succeeded", "undone"):
        again = f", attempt {event.attempt}" if event.attempt > 1 and event.kind == "started" else ""
        print(f"{event.kind}: {event.stage}{again}", flush=True)
    elif event.kind == "failed":
        print(f"failed: {event.stage}, {event.error}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Deploy, and take it back when it turns out bad.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("version", help="another one is a deployment of its own")
    parser.add_argument("--bad", action="store_true", help="the version that is built does not work")
    parser.add_argument("--crash", metavar="STAGE", help="killed at the end of this stage, before it is recorded")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
