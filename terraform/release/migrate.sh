#!/usr/bin/env bash
# migrate.sh IMAGE: run the migration of IMAGE against the database, before anything that serves gets it. The job is a copy of the one that
# Terraform owns, so that Terraform's own is not changed behind its back. Needs gcloud and _REGION.
set -euo pipefail

image="$1"
copy=$(mktemp)

gcloud run jobs describe memberintel-migrate --region "$_REGION" --format json | python3 -c '
import json, sys

job = json.load(sys.stdin)
template = job["spec"]["template"]
template["spec"]["template"]["spec"]["containers"][0]["image"] = sys.argv[1]
json.dump(
    {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "metadata": {"name": "memberintel-migrate-ahead"},
        "spec": {"template": template},
    },
    sys.stdout,
)
' "$image" > "$copy"
gcloud run jobs replace "$copy" --region "$_REGION"
gcloud run jobs execute memberintel-migrate-ahead --region "$_REGION" --wait
