(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_segmeter() {
  local -a found
  found=(${(f)"$(COMP_LINE="${(j: :)words[1,CURRENT-1]} $PREFIX" segmeter -sc query=zsh)"})
  compadd -S '' -- $found || { compset -P '*='; _files }
}
compdef _segmeter segmeter
