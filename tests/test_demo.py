"""`make demo` and `make install` do what the README says."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from scripts import SCRIPTS, need


def test_demo(safe_home: Path) -> None:
    for script in ("list", "search", "show", "export", "import", "stats", "prune"):
        need(script)
    if not (ROOT / ".venv" / "bin" / "hermes-session-list").exists():
        pytest.skip("the demo runs in the .venv that make makes")
    done = subprocess.run(["sh", ROOT / "tests" / "demo.sh"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n$ hermes-session-list -t\n" in done.stdout, "each line is shown before its output"
    assert "garden plan #3" in done.stdout and "nginx" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].endswith("man hermes-tools")
    assert not list(safe_home.iterdir()), "the user's own home is as it was"
    assert not done.stderr.count("Traceback")


@pytest.mark.slow
def test_install_and_uninstall(tmp_path: Path) -> None:
    if not shutil.which("make") or not (ROOT / ".venv" / ".ready").exists():
        pytest.skip("make has not made .venv here")
    make = ["make", "-C", str(ROOT), f"DESTDIR={tmp_path}", "PREFIX=/opt/tools"]
    env = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run([*make, "install"], capture_output=True, text=True, env=env)
    if "No matching distribution" in done.stderr or "Could not find a version" in done.stderr:
        pytest.skip("the package index cannot be reached")
    assert done.returncode == 0, done.stderr
    place = tmp_path / "opt" / "tools"
    assert {path.name for path in (place / "bin").iterdir()} == set(SCRIPTS)
    shown = subprocess.run([place / "bin" / "hermes-session-list", "--version"],
                           capture_output=True, text=True, cwd="/")  # fmt: skip
    assert shown.stdout.startswith("hermes-session-list (hermes-tools) "), shown.stderr
    assert (place / "share" / "man" / "man7" / "hermes-tools.7").exists()
    subprocess.run([*make, "uninstall"], check=True, capture_output=True, env=env)
    assert not [path for path in place.rglob("*") if not path.is_dir()]


def test_make_agents_asks_for_the_releases_by_their_number() -> None:
    """What cannot be had is skipped, so that a wrong name would be skipped for ever."""
    if not shutil.which("make"):
        pytest.skip("there is no make here")
    told = subprocess.run(["make", "-C", str(ROOT), "-nB", "agents"],
                          capture_output=True, text=True).stdout  # fmt: skip
    for release in ("0.13.0", "0.19.0"):
        assert f".venv/agents/{release}/bin/python -m pip" in told
        assert f" hermes-agent=={release}\n" in told
