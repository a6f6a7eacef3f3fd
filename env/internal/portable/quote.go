package portable

import "strings"

// quote returns s as one word of sh that means exactly the bytes of s. A NUL byte cannot be in a word; callers refuse it
// before.
func quote(s string) string {
	if s != "" && strings.Trim(s, plainChars) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// plainChars need no quotes anywhere in a command but in front, where a digit, an equals sign or a tilde could mean
// something else; every word that quote makes is an argument or stands behind an equals sign.
const plainChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-"

// format returns data as a word of sh which, as the format of the printf of sh, prints exactly data.
func format(data []byte) string {
	var b strings.Builder
	b.Grow(len(data) + len(data)/8 + 16)
	b.WriteByte('\'')
	for i, c := range data {
		switch {
		case c == 0:
			b.WriteString(`\000`)
		case c == '-' && i == 0:
			b.WriteString(`\055`) // printf would take it for an option
		case c == '\\':
			b.WriteString(`\\`)
		case c == '%':
			b.WriteString("%%")
		case c == '\'':
			b.WriteString(`'\''`)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// exportable reports whether a shell can hold a variable of this name and pass it on as it is: the name is one of sh, and
// nothing that the shell, or this package in it, uses for itself.
func exportable(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	switch name {
	case "", "_", "IFS", "PPID", "UID", "EUID", "GROUPS", "LINENO", "RANDOM", "SRANDOM", "SECONDS", "EPOCHSECONDS", "EPOCHREALTIME",
		"OPTIND", "OPTARG", "OPTERR", "PWD", "OLDPWD", "SHLVL", "SHELLOPTS", "BASHOPTS", "FUNCNAME", "DIRSTACK", "HISTCMD", "PIPESTATUS",
		"POSIXLY_CORRECT", "GLOBIGNORE", "EXECIGNORE", "FUNCNEST", "TMOUT", "PS4":
		return false
	}
	return !strings.HasPrefix(name, "BASH") && !strings.HasPrefix(name, "sa_")
}
