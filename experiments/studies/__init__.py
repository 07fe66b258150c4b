"""Studies: one short script per question."""
