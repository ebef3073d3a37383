#!/usr/bin/env bash
# serving.sh: write terraform/serving.tfvars.json, the revision of each service that has the traffic now, and into serving-commit the commit
# that chat's was built from. A service that does not exist yet is left out. Needs gcloud and _REGION.
set -euo pipefail

SERVING="${SERVING:-terraform/serving.tfvars.json}"

# Listed, not described one by one: a question that fails must not look like a service that is not there, which would get the traffic at once.
gcloud run services list --region "$_REGION" --format json | python3 -c '
import json, sys

serving = {}
for service in json.load(sys.stdin):
    if service["metadata"]["name"] in ("chat", "brain", "admin"):
        most = max(service["status"]["traffic"], key=lambda t: t.get("percent", 0))
        serving[service["metadata"]["name"]] = most["revisionName"]
json.dump({"serving": serving}, open(sys.argv[1], "w"))
' "$SERVING"
cat "$SERVING"

revision=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["serving"].get("chat", ""))' "$SERVING")
if [ -n "$revision" ]; then
  image=$(gcloud run revisions describe "$revision" --region "$_REGION" --format 'value(spec.containers[0].image)')
  echo "${image##*:}" > serving-commit
fi
