"""The router gate: labelled queries, tuned against and held out."""
