"""Tables, figures and pages from saved predictions."""
