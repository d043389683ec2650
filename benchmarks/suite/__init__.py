"""One benchmark per file: ``measure(quick) -> Bench``, with the rounds and comparisons in it."""
