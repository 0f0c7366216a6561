#!/usr/bin/env bash
# Run the steps of Containerfile one by one in a temporary folder, without a builder: make try-container.
# The base image, the user and the ports of a container are not tested.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(mktemp -d)
trap 'kill "${explorer:-}" 2>/dev/null || true; rm -rf "$place"' EXIT
export HOME=$place PATH=$place/.venv/bin:$PATH
steps=$(sed "s#/home/regard#$place#g" Containerfile)
cp $(sed -n 's/^COPY \(.*\) \.\/$/\1/p' <<< "$steps") "$place"
while read -r run; do (cd "$place" && sh -ec "$run"); done < <(sed -n '/useradd/d; s/^RUN //p' <<< "$steps")
cd "$place"
regard train signal2 --steps 2
command=$(sed -n 's/^ENTRYPOINT //p; s/^CMD //p' <<< "$steps" | tr -d '[],"\n' | sed 's/^regard/regard /')
$command & explorer=$!
health=$(sed -n 's/^HEALTHCHECK .* CMD //p' <<< "$steps")
for _ in $(seq 60); do
    sleep 1
    if sh -c "$health" 2>/dev/null; then echo "all steps work"; exit; fi
done
echo "the health check fails: $health" >&2
exit 1
