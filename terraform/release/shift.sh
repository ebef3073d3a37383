#!/usr/bin/env bash
# shift.sh forward: move the traffic to the candidate in steps, and back by itself when it fails more than the customers would bear.
# shift.sh back: give the traffic to the revisions in serving.tfvars.json, which served before.
# Run from the root of the repository by the release; needs gcloud, _REGION and _ENVIRONMENT.
set -euo pipefail

SERVICES="brain admin chat" # chat last: its turns cost money
STEPS="10 50 100"
WATCH_SECONDS="${WATCH_SECONDS:-300}"
SERVING="${SERVING:-terraform/serving.tfvars.json}"

serving() {
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["serving"].get(sys.argv[2], ""))' "$SERVING" "$1"
}

route() {
  gcloud run services update-traffic "$1" --region "$_REGION" --quiet "$2"
}

back() {
  for service in $SERVICES; do
    revision=$(serving "$service")
    if [ -n "$revision" ]; then route "$service" "--to-revisions=$revision=100"; fi
  done
}

# Requests that the candidates answered since the step began, and how many of them with a 5xx.
count() {
  filter="resource.type=\"cloud_run_revision\" AND logName:\"run.googleapis.com%2Frequests\" AND timestamp>=\"$1\" AND httpRequest.status>=$2 AND ("
  filter+=$(for service in $SERVICES; do
    gcloud run services describe "$service" --region "$_REGION" --format 'value(status.latestReadyRevisionName)'
  done | sed 's/.*/resource.labels.revision_name="&"/' | paste -sd '|' | sed 's/|/ OR /g')
  gcloud logging read "$filter)" --limit 20000 --format 'value(insertId)' | wc -l
}

forward() {
  for percent in $STEPS; do
    since=$(date -u +%Y-%m-%dT%H:%M:%SZ)
    for service in $SERVICES; do route "$service" "--to-tags=candidate=$percent"; done
    sleep "$WATCH_SECONDS"
    requests=$(count "$since" 100)
    failed=$(count "$since" 500)
    echo "At $percent %: $failed of $requests requests failed."
    # Three failures are chance in a quiet hour; one in twenty is not.
    if [ "$failed" -gt 3 ] && [ $((failed * 20)) -gt "$requests" ]; then
      echo "Going back to what served before." >&2
      exit 1
    fi
  done
}

case "${1:-}" in
  forward)
    trap 'status=$?; if [ $status -ne 0 ]; then back; fi; exit $status' EXIT
    forward
    ;;
  back) back ;;
  *) echo "usage: shift.sh forward|back" >&2; exit 2 ;;
esac
