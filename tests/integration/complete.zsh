# Types lines at an interactive zsh, a Tab behind each, and prints what became of them, a | behind each.
#   zsh -f complete.zsh FOLDER OUT LINE...     FOLDER has the completion functions, OUT is a file to write
zmodload zsh/zpty
folder=$1 out=$2
shift 2
: > $out
zpty shell "TERM=dumb zsh -f -i"
zpty -w shell "fpath=($folder \$fpath); autoload -Uz compinit; compinit -u -D
keep() { print -r -- \"\$BUFFER|\" >> $out; BUFFER= }; zle -N keep; bindkey '^X^K' keep"
wanted=0
for line in "$@"; do
  zpty -w -n shell "$line"$'\t\x18\x0b'
  (( ++wanted ))
  for wait in {1..300}; do
    (( $(wc -l < $out) < wanted )) || break
    sleep 0.1
  done
done
zpty -d shell
cat $out
