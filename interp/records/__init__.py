"""What a run leaves: the record, unfinished work, differences between records, the card of a tunnel."""

__all__ = [
    "answers",
    "capture_files",
    "diff",
    "headlines",
    "index",
    "labels",
    "parquet_files",
    "power",
    "probe_code",
    "record",
    "token_strip",
    "tunnel_card",
    "unfinished",
    "versioned_json",
]
