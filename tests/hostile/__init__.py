"""A hostile user and a stranger beside honest work: what they try, and how it affects others."""
