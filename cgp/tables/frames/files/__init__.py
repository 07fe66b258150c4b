"""Tables in files: read with what was understood said, and written with nothing changed but gaps."""
