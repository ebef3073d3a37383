"""One folder a deployed function, each with a thin `main.py`: parse, authorise, call one thing, answer."""
