"""The nouns as text. No torch here: a plan can be read on a machine that has none."""
