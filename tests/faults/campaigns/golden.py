"""G12: a store of every format that ever was is opened, read, restored and gone on with (tests/test_golden.py)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.faults.campaign import Campaign, Plan, Trial
from tests.golden.shelf import VERSIONS

_ROOT = Path(__file__).parents[3]


def run(version: str, plan: Plan) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory(prefix="lastgood-golden-") as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        path = os.pathsep.join(filter(None, [plan.path, os.environ.get("PYTHONPATH")]))
        subprocess.run(
            [*command, "tests/test_golden.py", "-k", version],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        for test in ET.parse(report).getroot().iter("testcase"):
            broken = [part.get("message", "") for kind in ("failure", "error") for part in test.findall(kind)]
            yield Trial(f"{version}, {test.get('name')}", broken)


CAMPAIGN = Campaign("golden", "G12", "stores of every format are read and gone on with", tuple(VERSIONS), run)
