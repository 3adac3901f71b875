"""A hostile user and a stranger, beside honest work: what they try, and what others notice of it."""
