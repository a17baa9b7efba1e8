"""G12: a store of every format is opened, read, restored and continued (tests/golden/test_golden.py)."""

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
_SOME_FAILED = 1
_NOT_PASSED = ("failure", "error", "skipped")


def run(version: str, plan: Plan) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory(prefix="lastgood-golden-") as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        path = os.pathsep.join(filter(None, [plan.path, os.environ.get("PYTHONPATH")]))
        ended = subprocess.run(
            [*command, "tests/golden/test_golden.py", "-k", version],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if ended.returncode not in (0, _SOME_FAILED):
            yield Trial(version, [f"the tests ended with {ended.returncode}: {ended.stdout[-2000:]}"])
            return
        for test in ET.parse(report).getroot().iter("testcase"):
            broken = [f"{kind}: {part.get('message')}" for kind in _NOT_PASSED for part in test.findall(kind)]
            yield Trial(f"{version}, {test.get('name')}", broken)


CAMPAIGN = Campaign("golden", "G12", "stores of every format are read and gone on with", tuple(VERSIONS), run)
