"""What a run leaves: the record, unfinished work, differences between records, the card of a tunnel."""

__all__ = ["diff", "headlines", "power", "probe_code", "record", "tunnel_card", "unfinished", "versioned_json"]
