# Connects stdin and stdout to the socket of a helper, in any POSIX shell. The client sends, before this
# text, the variables m (the mark of its answers) and c (the command). The shell reads all of it before
# it runs any of it: what follows is for the helper.
main() {
  # The output of the login may end in the middle of a line.
  echo
  printf '%s %s\n' "$m" run
  eval "exec $c"
}
main
