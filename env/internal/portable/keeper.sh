# What the keeper learns in addition: to end all that an environment has started when its client is gone.

# sa_keep FOLDER WORD STEP STEPS reads what the client says: "t PID..." is a sign of life with the numbers of its shells, "q"
# is goodbye. When its input ends, or nothing has come for STEPS times STEP seconds, sa_raze ends everything. Whoever reads
# what this prints may be gone.
sa_keep() {
  sa_u= sa_v=
  # The end of the input is looked at twice: a client that lives has time to stop this.
  while IFS= read -r sa_k || { sleep 1 && IFS= read -r sa_k; }; do
    case $sa_k in
    q)
      sa_untime
      return 0
      ;;
    "t $sa_u") ;;
    't '*)
      sa_u=${sa_k#t }
      sa_born $sa_u
      sa_untime # which does not know these shells
      ;;
    *) continue ;;
    esac
    if sa_timing; then
      kill -USR1 $sa_a
    else
      (sa_timer "$@") </dev/null >/dev/null 2>&1 &
      sa_a=$!
    fi
  done
  exec </dev/null >/dev/null 2>&1
  sa_untime
  sa_raze "$1" "$2"
  exit 0
}

# sa_born PID... leaves in sa_v the processes with the times of their start: later, a number may mean another one.
sa_born() {
  sa_v=' '
  for sa_k; do
    sa_y=
    { read -r sa_y <"/proc/$sa_k/stat"; } 2>/dev/null
    [ -z "$sa_y" ] || sa_since $sa_k ${sa_y##*) }
  done
}
sa_since() { sa_v="$sa_v$1/${21} "; }

# sa_timing tells whether the timer lives.
sa_timing() {
  [ -n "$sa_a" ] || return 1
  sa_y=
  { read -r sa_y <"/proc/$sa_a/stat"; } 2>/dev/null
  case ${sa_y##*) } in [!ZX]" $$ "*) return 0 ;; esac
  sa_a=
  return 1
}

# sa_untime ends the timer, which may have to be told more than once: it does not hear anything while it starts.
sa_untime() {
  sa_y=$sa_a sa_n=0
  while sa_timing && [ $sa_n -lt 20000 ]; do
    sa_n=$((sa_n + 1))
    kill -TERM $sa_a
  done 2>/dev/null
  sa_a=
}

# sa_timer FOLDER WORD STEP STEPS ends everything when it has slept STEPS times without a SIGUSR1. Only a sleep to its end
# counts. SIGTERM ends the timer.
sa_timer() {
  sa_n=0 sa_e=0 sa_q=$!
  trap 'sa_n=0' USR1
  trap '[ "$!" = "$sa_q" ] || kill -9 $!; exit 0' TERM
  while [ $sa_n -lt "$4" ]; do
    sleep "$3" &
    sa_s=$!
    # A signal ends the waiting, and not the sleep.
    while wait $sa_s; sa_z=$?; kill -0 $sa_s; do :; done
    if [ $sa_z -eq 0 ]; then
      sa_n=$((sa_n + 1)) sa_e=0
    else
      sa_e=$((sa_e + 1))
      [ $sa_e -lt 20 ] || exit 1
    fi
    read -r sa_y </proc/self/stat
    case ${sa_y##*) } in ?" $$ "*) ;; *) exit 1 ;; esac # the shell that it belongs to has gone
  done
  sa_raze "$1" "$2"
  kill -9 $$
}

# sa_raze FOLDER WORD kills what sa_doomed finds, until that is nothing twice, and removes FOLDER.
sa_raze() {
  sa_n=0 sa_e=0
  while [ $sa_n -lt 2 ] && [ $sa_e -lt 40 ]; do
    [ $sa_e -lt 10 ] || sleep 1
    sa_e=$((sa_e + 1)) sa_n=$((sa_n + 1))
    sa_doomed "$2"
    [ "$sa_x" = ' ' ] || { sa_n=0; kill -9 $sa_x; }
  done
  rm -rf -- "$1"
}

# sa_doomed WORD leaves in sa_x the processes that have WORD in their variables, those in sa_v, and what descends from them.
sa_doomed() {
  sa_x=' ' sa_w= sa_i=$IFS
  set -f
  IFS=$sa_nl
  for sa_k in $(set +f; sa_ps "$1"); do
    IFS=$sa_i
    case $sa_k in
    /proc/*/environ)
      sa_k=${sa_k#/proc/}
      sa_x="$sa_x${sa_k%/*} "
      ;;
    [0-9]*') '*) sa_row ${sa_k%% *} ${sa_k##*) } ;;
    esac
  done
  IFS=$sa_i
  sa_y=
  until [ "$sa_y" = "$sa_x" ]; do
    sa_y=$sa_x
    for sa_k in $sa_w; do
      case $sa_x in
      *" ${sa_k%:*} "*) ;;
      *" ${sa_k#*:} "*) sa_x="$sa_x${sa_k%:*} " ;;
      esac
    done
  done
  set +f
}

# sa_row PID STATE PARENT... notes a process that lives.
sa_row() {
  case $2 in Z | X | x) return ;; esac
  sa_w="$sa_w $1:$3"
  case $sa_v in *" $1/${21} "*) sa_x="$sa_x$1 " ;; esac
}
