#!/usr/bin/env bash
# A bolt against Storm's multilang protocol in plain bash: splits lines into words.
# At a line that holds "die" it dies; one that holds "bad" fails; an empty one goes to the stream
# "empty". Words need no escapes.
receive() {
  message=""
  while IFS= read -r line; do
    [ "$line" = end ] && return 0
    message+=$line
  done
  return 1
}

send() { printf '%s\nend\n' "$1"; }

receive || exit 0
folder=${message##*\"pidDir\":\"}
: >"${folder%%\"*}/$$"
send "{\"pid\":$$}"
while receive; do
  case $message in
  \[*) continue ;; # task ids
  *'"stream":"__heartbeat"'*)
    send '{"command":"sync"}'
    continue
    ;;
  esac
  id=${message#*\"id\":\"}
  id=${id%%\"*}
  text=${message##*\"tuple\":\[\"}
  text=${text%\"\]\}}
  answer=ack
  words=0
  for word in $text; do
    [ "$word" = die ] && echo "I cannot go on" >&2 && exit 5
    send "{\"command\":\"emit\",\"anchors\":[\"$id\"],\"tuple\":[\"$word\"]}"
    [ "$word" = bad ] && answer=fail
    words=$((words + 1))
  done
  if [ $words = 0 ]; then
    send "{\"command\":\"emit\",\"anchors\":[\"$id\"],\"stream\":\"empty\",\"tuple\":[\"$text\"]}"
  fi
  send "{\"command\":\"$answer\",\"id\":\"$id\"}"
done
