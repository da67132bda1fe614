"""Wrong rules that must be caught: the proof that each check can fail. Nothing in the product imports these."""
