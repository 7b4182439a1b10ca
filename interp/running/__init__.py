"""What a run will cost, before it starts: from the configuration of a model, without its weights."""
