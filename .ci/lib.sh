# Sourced by the scripts beside it: steps with their time, and the tools they need.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CI=true AWS_DEFAULT_REGION=eu-central-1 SAM_CLI_TELEMETRY=0

step=start
set -E # the trap below holds inside functions too
trap 'code=$?; echo "FAILED: $step, after $SECONDS s" >&2; exit "$code"' ERR

# step NAME COMMAND...: runs a command and says how long it took.
step() {
  step=$1
  shift
  local began=$SECONDS
  echo "==> $step"
  "$@"
  echo "<== $step: $((SECONDS - began)) s"
}

# python_tools FOLDER REQUIREMENTS: a virtual environment with what the file pins, made anew when a pin changes.
python_tools() {
  if ! cat .ci/requirements*.txt | cmp -s - "$1/installed"; then
    rm -rf "$1"
    python3 -m venv "$1"
    "$1/bin/pip" install --quiet --disable-pip-version-check --requirement "$2"
    cat .ci/requirements*.txt >"$1/installed"
  fi
}
