"""The README's Python runs as it stands, in one go, and its commands exist."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_readmes_python_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) >= 2
    exec(compile("\n".join(blocks), "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "14 of 14 checks passed" in printed
    assert "(3, 240, 4, 16)" in printed


@pytest.mark.parametrize(
    "command", sorted(set(re.findall(r"\binterp (run|list|check|report|reproduce-bug)\b", README)))
)
def test_the_readmes_commands_exist(command):
    from interp.cli import app

    assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([\w/.-]+)\)", README))))
def test_the_readmes_links_lead_somewhere(link):
    assert (ROOT / link).exists()
