"""What the probes and studies of the ledger give: the names that claims are checked against without running them.

`ledger_names.json` was made from the records of the smoke ledgers of all three papers (the third on stories260K) and of
the networks that the scale `default` adds, by `python -m tests.interp.ledger.ledger_names FOLDER ...`.
"""

import json
import sys
from pathlib import Path

from interp.records.record import open_run
from interp.registry import entries, load_entry

FILE = Path(__file__).parent / "ledger_names.json"


def names_in(folders: list[Path]) -> dict[str, dict]:
    """Scalars, and columns of tables, of every probe and study in these records."""
    found: dict[str, dict] = {}
    for folder in folders:
        for of, findings in open_run(folder).findings.items():
            mine = found.setdefault(of, {"scalars": set(), "tables": {}})
            mine["scalars"] |= set(findings.scalars)
            for name, table in findings.tables.items():
                mine["tables"].setdefault(name, set()).update(table.columns)
    return {
        of: {
            "scalars": sorted(mine["scalars"]),
            "tables": {name: sorted(columns) for name, columns in sorted(mine["tables"].items())},
        }
        for of, mine in sorted(found.items())
    }


def known() -> dict[str, dict]:
    """The names of the file, and every number that a probe declares."""
    names = json.loads(FILE.read_text(encoding="utf-8"))
    for probe in names.keys() & set(entries("probe")):
        declared = set(load_entry("probe", probe).quantities.keys())
        names[probe]["scalars"] = sorted(declared | set(names[probe]["scalars"]))
    return names


if __name__ == "__main__":
    files = sorted(file for folder in sys.argv[1:] for file in Path(folder).glob("*/run.json"))
    names = names_in([file.parent for file in files])
    FILE.write_text(json.dumps(names, indent=1) + "\n", encoding="utf-8")
