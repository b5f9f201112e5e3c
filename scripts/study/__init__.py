"""Experiments of the five papers that the project grew from, as points that can be measured one by one and resumed."""
