#!/usr/bin/env bash
# serving.sh: write terraform/serving.tfvars.json, the revision of each service that has the traffic now. A service that does not exist yet
# is left out. Needs gcloud and _REGION.
set -euo pipefail

SERVING="${SERVING:-terraform/serving.tfvars.json}"

for service in chat brain admin; do
  gcloud run services describe "$service" --region "$_REGION" --format json 2>/dev/null || true
done | python3 -c '
import json, sys

text, decoder, serving = sys.stdin.read().strip(), json.JSONDecoder(), {}
while text:
    service, end = decoder.raw_decode(text)
    text = text[end:].lstrip()
    most = max(service["status"]["traffic"], key=lambda t: t.get("percent", 0))
    serving[service["metadata"]["name"]] = most["revisionName"]
json.dump({"serving": serving}, open(sys.argv[1], "w"))
' "$SERVING"
cat "$SERVING"
