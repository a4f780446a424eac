#!/usr/bin/env bash
# Both runs of a release on one GPU, one after the other: the base network goes on from the last release, then the small
# one, taught by both. All that has to travel lies in OUT in small files as soon as it is there, so that a machine that is
# taken away takes little with it:
#
#   OUT/NAME-half, OUT/NAME    what the run has changed, half-way and at its end; `training.weights together` reads it
#   OUT/answers.tar.xz         answers of both and of their means with what they went on from, to fit temperatures on
#   OUT/NAME.done              that folder or file is whole
#
# In the environment: ARCHIVE (.training/full.npz), BASE_SECONDS (930), SMALL_SECONDS (450), ORDER (another seed for the
# order of the rows), FRESH (names of the hand-written files that the release has not seen), WORKERS (9), TOKENS (32768, in
# a batch), MORE (options for both runs). A processor can try it out, with a small archive: TOKENS=1024 WORKERS=1
# BASE_SECONDS=60 SMALL_SECONDS=40.
set -Eeuo pipefail
if [ $# -ne 5 ]; then
    echo "usage: training/release.sh BASE_NAME BASE_START SMALL_NAME SMALL_START OUT" >&2
    exit 2
fi
base=$1 base_start=$2 small=$3 small_start=$4 out=$5
archive=${ARCHIVE:-.training/full.npz} order=${ORDER:-1} tokens=${TOKENS:-32768}
runs=$out/runs answers=$out/answers
mkdir -p "$runs"
export PYTHONPATH=src:. PYTHONUNBUFFERED=1
trap 'tail -n 5 "$out"/*.log >&2' ERR

finished() { touch "$out/$1.done"; }

apart() { # NAME START FOLDER
    python -m training.weights apart "$runs/$1.npz" "$out/$3" --start "$2"
    finished "$3"
}

train() { # NAME START SECONDS OPTIONS...
    local name=$1 start=$2 seconds=$3
    shift 3
    # shellcheck disable=SC2086
    python -m training.train --archive "$archive" --tokens "$tokens" --start "$start" --strange 0.2 --trust 0.6 --keep-words \
        --average 0.9985 --fresh ${FRESH:-} --seconds "$seconds" --evaluate 200 --workers "${WORKERS:-9}" \
        --out "$runs" --name "$name" "$@" ${MORE:-} \
        > "$out/$name.log" 2>&1 &
    local run=$!
    # Weights are saved every two minutes: what was last saved when half of the time is over.
    (sleep $((seconds / 2 + 60)) && [ -f "$runs/$name.npz" ] && apart "$name" "$start" "$name-half") &
    until [ -f "$runs/$name.done" ]; do
        kill -0 "$run" 2> /dev/null || return 1
        sleep 1
    done
    apart "$name" "$start" "$name"
    wait "$run" # for its figures
}

judge() { # NAME START
    local evaluate="python -m training.evaluate --archive $archive --tokens $tokens --out $answers"
    $evaluate --start "$2" --weights "$runs/$1.npz" --shares 0.6 0.8 1 >> "$out/$1.log" 2>&1
    $evaluate --weights "$2" --splits kept >> "$out/$1.log" 2>&1
}

train "$base" "$base_start" "${BASE_SECONDS:-930}" --lr 2e-4 --order "${order}1" --together 3 \
    --teacher "$base_start" "$small_start"
# Not before the second run has measured which form of attention is the faster.
(until grep -qs ready "$out/$small.log"; do sleep 1; done && judge "$base" "$base_start") &
judged=$!
train "$small" "$small_start" "${SMALL_SECONDS:-450}" --lr 3e-4 --order "${order}3" --together 2 \
    --teacher "$runs/$base.npz" "$small_start"
judge "$small" "$small_start"
wait "$judged"
tar -C "$out" -cJf "$out/answers.tar.xz" answers
finished answers
