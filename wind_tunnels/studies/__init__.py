"""Questions that train and compare networks of their own."""
