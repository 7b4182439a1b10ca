r"""What pages show of other records, in the data files that ship with the package: made from those records, in short.

    interp run --probe attention_entropy,components,manifold,orthogonality,qk_alignment,value_axis,belief,sula,heads,\
depth_use,causal --draw 0
    interp run --model smollm2-135m --probe everything
    python -m tests.page_numbers RUN RUN                  # calibration.json, of these two
    python -m tests.page_numbers examples/certificates/*  # certificates.json
"""

import json
import sys
from dataclasses import asdict
from typing import Any

from interp.reports.page.shipped import CALIBRATION, CERTIFICATES

from interp.records.record import RunRecord, open_run
from interp.records.versioned_json import plain_json


def of_run(record: RunRecord) -> dict[str, Any]:
    """The headline numbers of a run with their intervals and nulls, and what it was."""
    numbers = {
        f"{probe}.{name}": plain_json(asdict(findings.scalars[name]))
        for probe, findings in record.findings.items()
        for name in findings.headline
    }
    made = {
        "spec_hash": record.spec_hash,
        "version": record.environment["packages"]["interp"],
        "fingerprint": record.model["fingerprint"],
        "command": record.spec.get("command"),
        "created": record.created,
    }
    return {"model": record.model["name"], "made": made, "numbers": numbers}


def of_certificate(record: RunRecord) -> dict[str, Any]:
    """The verdicts of a certificate, and what it was made of."""
    tables = record.findings["certificate"].tables
    judged = tables["headlines"].to_frame().query("n_null > 0")
    planted = tables["worlds"].to_frame().query("n_planted > 0")
    first = planted.iloc[0].to_dict() if len(planted) else {}
    columns = ["number", "word", "worst", "worst_world", "n_worst", "power_1", "power_2", "power_3"]
    return {
        "code": record.spec["certified"]["code"],
        "parameters": record.spec["certified"]["parameters"],
        "tried_with": sorted(record.spec["certified"]["tried_with"]),
        "numbers": plain_json(judged[columns].to_dict("records")),
        "effect": str(first.get("effects", "")).split("; ")[0],
        "n": str(first.get("n", "")),
    }


def main(*folders: str) -> None:
    records = [open_run(folder) for folder in folders]
    are_certificates = all("certified" in record.spec for record in records)
    path = CERTIFICATES if are_certificates else CALIBRATION
    if are_certificates:
        content: Any = dict(sorted((each.spec["certified"]["name"], of_certificate(each)) for each in records))
    else:
        content = [of_run(record) for record in records]
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
