#!/bin/sh
# Real pipelines on a sample store in a temporary home, each command line shown before its output.
# `make demo` runs this; a user's own store is never touched.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

for name in HERMES_DB HERMES_FORMAT HERMES_DEBUG; do unset "$name"; done
mkdir -m 700 "$place/home"
export HOME="$place" HERMES_HOME="$place/home" PATH="$root/.venv/bin:$PATH"
cd "$place"
"$root/.venv/bin/python" - "$root/tests/data/state-v22.db.xz" home/state.db <<'END'
import lzma, sys
open(sys.argv[2], "wb").write(lzma.open(sys.argv[1]).read())
END

if [ -t 1 ]; then
    bold=$(printf '\033[1;32m') plain=$(printf '\033[0m')
else
    bold='' plain=''
    export COLUMNS=100
fi

# A word of explanation, the line as a person would type it, and what it prints.
show() {
    printf '\n# %s\n%s$ %s%s\n' "$1" "$bold" "$2" "$plain"
    sh -c "$2"
}

echo "A sample store, written by Hermes Agent's release 0.19, in $HERMES_HOME."

show 'What is there? Newest first, a compressed conversation as one row.' \
    'hermes-session-list -t'
show 'The lineage of one: three rows of a chain, and what it delegated.' \
    'hermes-session-list "garden plan" --tree -t'
show 'Find words in any script; each hit with the words around it.' \
    'hermes-session-search nginx -t'
show 'Piped, everything is JSON Lines: ids in, records out.' \
    'hermes-session-search drip -f ids | hermes-session-list - -f tsv --fields session_id,title,message_count'
show 'Read it again as a person would.' \
    'hermes-session-show "refactoring auth" --recap'
show 'Export everything, without loss, into a second store ...' \
    'hermes-session-export | hermes-session-import -q --create --exact --db copy.db -'
show '... and export that one again: not a byte is different.' \
    'hermes-session-export >one.jsonl; hermes-session-export --db copy.db >two.jsonl; cmp one.jsonl two.jsonl && wc -lc one.jsonl'
show 'Counts, sizes, tokens, cost.' \
    'hermes-session-stats -t'
show 'What would a clean-up remove? Nothing is touched by a dry run.' \
    'hermes-session-prune --older-than 30d --source cron --dry-run -f tsv --fields action,session_id,message_count'

cat <<END

That was a temporary home; it is gone now. On your own store, ~/.hermes/state.db:

    export PATH="$root/bin:\$PATH"
    hermes-session-list
    hermes-session-search WORDS

Reading commands never change the store. \`hermes-session-prune --dry-run\` and
\`hermes-session-delete --dry-run ID\` say what they would do before you let them.
The manual begins at: MANPATH=$root/man man hermes-tools
END
