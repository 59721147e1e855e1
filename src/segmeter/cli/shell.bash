# bash passes, and expects back, only the part of a word after its last "=" or ":"
_segmeter() {
  local IFS=$'\n' word="${COMP_LINE:0:COMP_POINT}"
  word="${word##* }"
  COMPREPLY=( $(COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" "$1" -sc query=bash) )
  if [[ "$COMP_WORDBREAKS" == *=* ]]; then
    local before="${word%"${word##*[=:]}"}"
    COMPREPLY=( "${COMPREPLY[@]#"$before"}" )
  fi
}
complete -o nospace -o default -F _segmeter segmeter
