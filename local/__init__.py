"""The laptop: an embedded PostgreSQL, a dispatcher and a clock in place of Pub/Sub and Scheduler, a token issuer, and the command."""
