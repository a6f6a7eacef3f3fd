# Starts the helper on a host, in any POSIX shell. The client sends, before this text, the variables
# m (the mark of its answers), i (the name of the environment), t (its TTL), b (arguments for a sandbox),
# hd (the directory for the helper, or empty), w (the directory to make, or empty), u_f (the file of a
# helper that was just sent, or empty), and n_ARCH, h_ARCH and g_ARCH (name, digest and arguments of the
# helpers). Each answer is a line: the mark and words. The shell reads all of it before it runs any of it:
# what follows is for the helper.
say() { printf '%s %s\n' "$m" "$*"; }

# absolute NAME prints NAME, which may be relative to the home directory or start with "~/", as absolute.
absolute() {
  case $1 in
  /*) printf %s "$1" ;;
  '~') printf %s "$HOME" ;;
  '~/'*) printf %s "$HOME/${1#??}" ;;
  *) printf %s "$HOME/$1" ;;
  esac
}

# mine DIR makes DIR a directory that no other user can write to. It fails if another user owns DIR.
mine() {
  [ -n "$1" ] || return 1
  [ -d "$1" ] || mkdir -p -- "$1" 2>/dev/null || return 1
  [ -L "$1" ] && return 1
  set -- "$1" $(ls -ldn -- "$1" 2>/dev/null)
  [ "$4" = "$uid" ] || return 1
  case $2 in drwx------*) ;; *) chmod 700 -- "$1" 2>/dev/null || return 1 ;; esac
}

# fit DIR tests whether DIR is writable and allows execution.
fit() {
  mine "$1" && printf '#!/bin/sh\n' 2>/dev/null >"$1/.try-$i" || return 1
  chmod 700 "$1/.try-$i" && "$1/.try-$i" 2>/dev/null
  set -- "$1" $?
  rm -f -- "$1/.try-$i"
  return "$2"
}

# digest prints the SHA-256 of its stdin.
digest() {
  if command -v sha256sum >/dev/null; then
    sha256sum
  elif command -v openssl >/dev/null; then
    openssl dgst -r -sha256
  else
    shasum -a 256
  fi 2>/dev/null | sed -n '$s/^\([0-9a-f]\{64\}\).*/\1/p'
}

good() { [ -f "$1" ] && ! [ -L "$1" ] && [ -x "$1" ] && [ "$(digest <"$1")" = "$h" ]; }

# tidy DIR removes partial uploads, and helpers that were not used for 30 days.
tidy() {
  find "$1" -type f '(' -name '.sent-*' -mmin +60 -o -name 'sandboxd-*' -mtime +30 ')' -exec rm -f -- {} + 2>/dev/null
}

main() {
  um=$(umask)
  umask 077
  uid=$(id -u)
  arch=$(uname -m)
  # The output of the login may end in the middle of a line.
  echo
  say system "$(uname -s)" "$arch"
  say home "$HOME"
  # The Go name of the processor.
  case $arch in
  x86_64) arch=amd64 ;;
  aarch64) arch=arm64 ;;
  armv[67]*) arch=arm ;;
  i[3-6]86) arch=386 ;;
  loongarch64) arch=loong64 ;;
  esac
  case $(uname -s)/$arch in
  Linux/*[!a-z0-9]*) say unfit; exit ;;
  Linux/*) eval "n=\$n_$arch h=\$h_$arch g=\$g_$arch" ;;
  *) say unfit; exit ;;
  esac
  [ -n "$n" ] || { say missing "$arch"; exit; }
  [ -n "$(digest </dev/null)" ] || { say unverified; exit; }

  cache=${XDG_CACHE_HOME:-$HOME/.cache}/sandboxagent
  # Another user may have taken the first name.
  shared=/tmp/sandboxagent-$uid
  if ! mine "$shared"; then
    for d in "$shared".*; do [ -d "$d" ] && mine "$d" && break; d=; done
    shared=${d:-$(mktemp -d "$shared.XXXXXX")}
  fi
  [ -z "$hd" ] || hd=$(absolute "$hd")/sandboxagent-$uid
  # The directories for the helper.
  d1=${hd:-$cache} d2=${hd:-$shared}
  for d in "$shared" "$cache"; do
    [ -e "$d/e-$i" ] && { say taken; exit; }
  done

  f=
  if [ -n "$u_f" ]; then
    chmod 700 -- "$u_f" && good "$u_f" && mv -f -- "$u_f" "${u_f%/*}/$n" && f=${u_f%/*}/$n
    [ -n "$f" ] || { rm -f -- "$u_f"; say damaged; exit; }
  else
    for d in "$d1" "$d2"; do
      if good "$d/$n" && mine "$d"; then f=$d/$n; break; fi
    done
  fi
  if [ -z "$f" ]; then
    for d in "$d1" "$d2"; do
      fit "$d" && { say send "$arch" "$d/.sent-$i"; exit; }
    done
    [ -z "$hd" ] || { say nowhere "$hd"; exit; }
    say nowhere "$cache" "$shared"
    exit
  fi
  touch -c -- "$f"
  tidy "${f%/*}"

  r=
  trap 'rm -rf -- "$r"' EXIT
  # The end of the connection arrives as SIGPIPE, which by default skips the trap for EXIT.
  trap 'exit 1' HUP INT PIPE TERM
  # Whoever removes the last environment of a directory removes that too, maybe just now.
  for d in "$shared" "$shared" "$shared" "$cache"; do
    s=$d/e-$i/s
    if [ ${#s} -le 100 ] && mine "$d" && mkdir -- "$d/e-$i" 2>/dev/null; then r=$d/e-$i; break; fi
  done
  [ -n "$r" ] || { say nowhere "$shared" "$cache"; exit; }
  read -r st <"/proc/$$/stat"
  st=${st##*) }
  set -- $st
  printf 'pid %s\nborn %s\nbegun %s\nttl %s\nfrom %s\n' "$$" "${20}" "$(date +%s)" "$t" "${SSH_CONNECTION%% *}" >"$r/about"
  cd -- "$HOME" 2>/dev/null || cd /
  umask "$um"
  [ -z "$w" ] || e=$(mkdir -p -- "$(absolute "$w")" 2>&1) || { say unmade "$e"; exit; }
  command -v shopt >/dev/null 2>&1 && shopt -s execfail # else a failed exec ends bash without its trap for EXIT
  say run "$arch" "$r" "$f"
  eval "exec \"\$f\" $g serve --socket \"\$r/s\" --dir \"\$r\" --ttl \"\$t\" $b"
  exit 126
}
main
