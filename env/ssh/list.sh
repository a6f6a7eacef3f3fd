# Lists or removes the environments on a host, in any POSIX shell. The client sends, before this text,
# the variables m (the mark of its answers), a (list or remove) and w (the directory to remove). Each
# answer is a line: the mark and words.
say() { printf '%s %s\n' "$m" "$*"; }
echo
uid=$(id -u)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sandboxagent

# owned NAME tests whether NAME is a directory that only this user can access.
owned() {
  [ -d "$1" ] && ! [ -L "$1" ] || return 1
  set -- "$1" $(ls -ldn -- "$1" 2>/dev/null)
  case $2 in drwx------*) [ "$4" = "$uid" ] ;; *) return 1 ;; esac
}

# look NAME reads the description of the environment in NAME; alive is 1 if its helper runs.
look() {
  pid= born= begun= ttl= from= alive=0 st=
  while read -r k v; do
    case $k in pid) pid=$v ;; born) born=$v ;; begun) begun=$v ;; ttl) ttl=$v ;; from) from=$v ;; esac
  done <"$1/about"
  case $pid in '' | *[!0-9]*) return ;; esac
  { read -r st <"/proc/$pid/stat"; } 2>/dev/null || return
  st=${st##*) }
  set -- $st
  [ "${20}" = "$born" ] && [ "$1" != Z ] && alive=1
}

# each CALL calls CALL with the directory of every environment.
each() {
  for d in "/tmp/sandboxagent-$uid" "/tmp/sandboxagent-$uid".* "$cache"; do
    owned "$d" || continue
    for e in "$d"/e-*; do
      owned "$e" && [ -f "$e/about" ] && "$1" "$e"
    done
  done
}

tell() {
  look "$1"
  say env "$alive" "${pid:-0}" "${begun:-0}" "${ttl:--}" "${from:--}" "$1"
}

# sweep ID kills the processes whose variables name the environment ID.
sweep() {
  for n in 1 2 3 4 5 6 7 8; do
    found=
    for p in /proc/[0-9]*; do
      tr '\0' '\n' 2>/dev/null <"$p/environ" | grep -qx "SANDBOXAGENT_SESSION=$1" || continue
      kill -9 "${p#/proc/}" 2>/dev/null && found=1
    done
    [ -n "$found" ] || return 0
  done
}

drop() {
  [ "$1" = "$w" ] || return
  look "$1"
  if [ $alive = 1 ]; then
    kill -TERM "$pid"
    for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
      look "$1" 2>/dev/null
      [ $alive = 1 ] || break
      sleep 1
    done
    [ $alive = 0 ] || kill -KILL "$pid"
  fi
  sweep "${1##*/e-}"
  rm -rf -- "$1"
  rmdir -- "${1%/*}" 2>/dev/null
  [ -e "$1" ] && say failed || say removed
}

case $a in
list) each tell ;;
remove) each drop ;;
esac
say done
exit
