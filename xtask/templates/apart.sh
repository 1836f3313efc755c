#!/usr/bin/env bash
# Runs each packed test in a process of its own, many at once, prints the failures, and counts.
# Arguments go to each program: --include-ignored, or a part of the names of tests.
#   JOBS       processes at once (default: one for each processor)
#   LIMIT      seconds that a test may take (default: 600)
#   KILN_ROOT  a checkout, for tests that read files of the repository; without it they run in this folder
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "${KILN_ROOT:-$here}" && pwd) || exit 1
jobs=${JOBS:-$(nproc)}
logs=$(mktemp -d) || exit 1
trap 'rm -rf "$logs"' EXIT
export here root logs

folder_of() {
  if [ -d "$root/$1" ]; then echo "$root/$1"; else echo "$here"; fi
}

# COUNT ARGUMENT... FOLDER PROGRAM TEST: runs one test and writes a log whose name begins with how it ended.
run_one() {
  local given=("${@:2:$1}")
  shift "$(($1 + 1))"
  local folder program=$2 test=$3 log="$logs/$2.${3//[^a-zA-Z0-9_]/-}" start=$SECONDS state=failed
  folder=$(folder_of "$1")
  if (cd "$folder" && CARGO_MANIFEST_DIR=$folder timeout "${LIMIT:-600}" "$here/$program" "${given[@]}" --exact "$test") \
    >"$log" 2>&1 </dev/null; then
    state=passed
    grep -q ' 1 passed;' "$log" || state=ignored
  fi
  mv "$log" "$logs/$state.${log##*/}"
  echo "$((SECONDS - start)) $state $program $test" >>"$logs/times"
}
export -f folder_of run_one

while read -r folder program; do
  # Not all tests would be seen if a list were cut short.
  list=$(cd "$(folder_of "$folder")" && "$here/$program" --list --format terse "$@" </dev/null) || exit 1
  while read -r test; do
    printf '%s\0' "$folder" "$program" "$test"
  done < <(sed -n 's/: test$//p' <<<"$list")
done <<'PROGRAMS' >"$logs/tests" || exit 1
@PROGRAMS@
PROGRAMS
xargs -0 -r -n 3 -P "$jobs" bash -c 'run_one "$@"' run_one "$#" "$@" <"$logs/tests"

count() {
  find "$logs" -name "$1.*" | wc -l
}
for log in "$logs"/failed.*; do
  [ -e "$log" ] || continue
  echo "=== ${log##*/failed.}"
  cat "$log"
done
echo "slowest, in seconds:"
sort -rn "$logs/times" 2>/dev/null | head -5
echo "$(count passed) passed, $(count failed) failed, $(count ignored) ignored, in $SECONDS s"
[ "$(count failed)" -eq 0 ] && [ "$(count passed)" -gt 0 ]
