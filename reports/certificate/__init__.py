"""The page of a certificate: one screen, a row a headline number and a plain word, the figures behind it."""
