"""Questions that train and compare their own networks."""
