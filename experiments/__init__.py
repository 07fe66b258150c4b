"""The application around the library: data, baselines, training, metrics, tables and reports."""
