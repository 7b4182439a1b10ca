"""What was done before: the finished record of a specification, looked up among those in a folder."""

import json
from pathlib import Path

from interp.errors import RecordError
from interp.record import RunRecord, open_run


def finished_record(spec_hash: str, out: Path) -> RunRecord | None:
    """The newest record of this specification in a folder of records that is done and can be read to the end."""
    for file in sorted(out.glob("[!.]*/run.json"), reverse=True):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(content, dict) and content.get("spec_hash") == spec_hash and content.get("status") == "done":
                return open_run(file)
        except (OSError, ValueError, RecordError):
            continue  # damaged or of another program: not a finished run, whatever it was
    return None
