"""The tools a model may call. Adding one is adding one file here that defines `TOOL`; `registry` finds it."""
