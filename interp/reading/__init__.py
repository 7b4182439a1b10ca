"""One forward pass for all needs: batches, hooks, reductions, and what fits into memory."""
