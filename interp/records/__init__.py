"""What a run leaves: the record, unfinished work, differences between records, the card of a tunnel."""
