"""Loading what people really have into a site: one module a source, a reader, a writer.

`run` is the way in: `open_file` recognises a file and settles its conventions, `import_files` writes it. A source (`plain`,
`memberpress`, `stripe`) is a list of kinds: how each file is recognised by its header, and how a row becomes records.
"""
