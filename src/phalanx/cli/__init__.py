"""The command line. Start-up is most of what a short command costs, so it begins with the garbage collector."""

import gc

# Imports make many objects and drop few: looking for garbage meanwhile finds none.
gc.set_threshold(50_000)
