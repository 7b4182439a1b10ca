"""One attention head on a sticky Markov chain, with learning rates varied matrix by matrix."""
