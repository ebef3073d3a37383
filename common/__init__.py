"""The domain of MemberIntel: everything the functions share. It never imports `functions`, `local` or `evals`."""
