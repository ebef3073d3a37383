"""The copy in BigQuery."""
