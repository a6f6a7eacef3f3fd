package portable

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

const (
	// treeFile is how large a file may be to come along with the listing of its folder.
	treeFile = 32 << 10
	// treeFolders and treeBytes are how many folders one request lists at most, and how long all of their names may be.
	treeFolders, treeBytes = 1000, 256 << 10
	// findFolders and findBytes bound in the same way what one find lists.
	findFolders, findBytes = 100, 32 << 10
	// testNames is how many names one request tests at most.
	testNames = 2000
)

// treeFunctions list folders. Each line begins with the mark. That of an entry has what stat says and its name; the others
// have a sign and numbers: = for the code of a folder, + for a file and its code, with the content in the next lines, ! for a
// content that is not whole, and - for the first of some folders, and their count, of which the entries before are void.
const treeFunctions = `
sa_line() { for sa_j in 1 2 3 4 5 6 7 8; do printf '%s\n' "$sa_o $*" && return; done; }
sa_with() {
[ -e "$3" ] || [ -L "$3" ] || return 0
sa_file "$4"
sa_h=$?
[ $sa_h -ne 1 ] || return 0
sa_line + $1 $2 $sa_h
[ $sa_h -eq 0 ] || return 0
head -c $sa_max -- "$4" || sa_h=9
for sa_j in 1 2 3 4 5 6 7 8; do printf '\n' && break; done
[ $sa_h -eq 0 ] || sa_line ! $1 $2
}
sa_many() {
sa_s=$1
shift
sa_e=$#
while [ $sa_e -gt 0 ]; do
sa_root "$1"
sa_h=$?
sa_line = $sa_s $sa_h
if [ $sa_h -eq 0 ]; then
sa_extra $sa_s "${1%/}"
set -- "$@" "${1%/}/"
fi
shift
sa_s=$((sa_s + 1)) sa_e=$((sa_e - 1))
done
[ $# -eq 0 ] || find "$@" -mindepth 1 -maxdepth 1 -exec stat -c "$sa_o %f %s %Y %y %n" -- {} +
}
sa_few() {
sa_s=$1
shift
sa_line - $sa_s $#
for sa_y; do
sa_dir "$sa_y" $sa_o
sa_line = $sa_s $?
sa_s=$((sa_s + 1))
done
}
`

// ReadDirs implements env.TreeReader.
func (e *Environment) ReadDirs(ctx context.Context, names, with []string) ([]env.Folder, error) {
	folders := make([]env.Folder, 0, len(names))
	for len(folders) < len(names) {
		rest := names[len(folders):]
		n, size := 0, 0
		for n < min(len(rest), treeFolders) && (n == 0 || size+len(rest[n]) <= treeBytes) {
			size += len(rest[n])
			n++
		}
		some, err := e.readDirs(ctx, rest[:n], with)
		if err != nil {
			return nil, fmt.Errorf("read folders: %w", err)
		}
		folders = append(folders, some...)
	}
	return folders, nil
}

// readDirs lists folders in one request. If that is too much to say, it makes two of it.
func (e *Environment) readDirs(ctx context.Context, names, with []string) ([]env.Folder, error) {
	t := e.newTree(names, with)
	out, err := e.tell(ctx, t.script(), maxFolder)
	if errors.Is(err, env.ErrTooLarge) && len(names) > 1 {
		half := len(names) / 2
		first, err := e.readDirs(ctx, names[:half], with)
		if err != nil {
			return nil, err
		}
		second, err := e.readDirs(ctx, names[half:], with)
		return append(first, second...), err
	}
	if errors.Is(err, env.ErrTooLarge) {
		t.folders[0] = env.Folder{Err: pathError("readdir", names[0], err)}
		return t.folders, nil
	}
	if err == nil {
		err = eachLine(out, t.mark, t.line)
	}
	if err != nil {
		return nil, err
	}
	return t.finish(ctx)
}

// tell runs a short operation that succeeds unless something is wrong with the shell, and returns what it prints.
func (e *Environment) tell(ctx context.Context, body string, limit int) ([]byte, error) {
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	defer e.work.Done()
	out := collect{max: limit}
	code, text, err := e.ask(ctx, operation{body: body + "\n:", out: out.add})
	if err == nil && code != codeOK {
		err = errCode(code, text)
	}
	return out.data, err
}

// tree is one request for folders, and its answer.
type tree struct {
	e       *Environment
	mark    string
	names   []string
	with    []string
	full    []string       // empty for a name that cannot be asked for
	number  map[string]int // by the folder with a slash
	codes   []int          // -1 where there is none yet
	folders []env.Folder
}

func (e *Environment) newTree(names, with []string) *tree {
	t := &tree{
		e: e, mark: newMark(), names: names, with: with, full: make([]string, len(names)), codes: make([]int, len(names)),
		number: make(map[string]int), folders: make([]env.Folder, len(names)),
	}
	for i, name := range names {
		full, err := e.resolve(name)
		if err != nil {
			t.folders[i].Err = pathError("readdir", name, err)
			continue
		}
		t.full[i], t.codes[i] = full, -1
		if _, twice := t.number[slashed(full)]; twice {
			t.full[i] = "" // It is read alone.
			continue
		}
		t.number[slashed(full)] = i
		t.folders[i].Files = make([]env.FileContent, len(with))
		for j, file := range with {
			if name != "." {
				file = slashed(name) + file
			}
			t.folders[i].Files[j] = env.FileContent{Name: file, Err: pathError("open", file, fs.ErrNotExist)}
		}
	}
	return t
}

// slashed returns the name of a folder with one slash at its end.
func slashed(name string) string { return strings.TrimSuffix(name, "/") + "/" }

// script returns what a shell is told.
func (t *tree) script() string {
	var b strings.Builder
	b.WriteString("sa_o=" + t.mark + " sa_max=" + strconv.Itoa(treeFile+1) + treeFunctions + "sa_extra() {\n:\n")
	for j, file := range t.with {
		first, _, _ := strings.Cut(file, "/")
		fmt.Fprintf(&b, "sa_with $1 %d \"$2\"/%s \"$2\"/%s\n", j, quote(first), quote(file))
	}
	b.WriteString("}")
	for from := 0; from < len(t.full); {
		to, size := from, 0
		for to < len(t.full) && t.full[to] != "" && to-from < findFolders && (to == from || size+len(t.full[to]) <= findBytes) {
			size += len(t.full[to])
			to++
		}
		if to == from {
			from++
			continue
		}
		b.WriteString("\nsa_some() {\n\"$1\" " + strconv.Itoa(from))
		for _, full := range t.full[from:to] {
			b.WriteString(" " + quote(full))
		}
		b.WriteString("\n}\nsa_some sa_many || sa_some sa_few")
		from = to
	}
	return b.String()
}

// line takes one line of the answer.
func (t *tree) line(line string) error {
	bad := fmt.Errorf("%w: malformed status %.100q", env.ErrProtocol, line)
	if len(line) < 2 || line[1] != ' ' {
		return t.entry(line)
	}
	head, content, _ := strings.Cut(line, "\n")
	var numbers []int
	for field := range strings.FieldsSeq(head[1:]) {
		n, err := strconv.Atoi(field)
		if err != nil || n < 0 {
			return bad
		}
		numbers = append(numbers, n)
	}
	if want := map[byte]int{'=': 2, '-': 2, '+': 3, '!': 2}[line[0]]; want == 0 || len(numbers) != want || numbers[0] >= len(t.folders) || t.full[numbers[0]] == "" {
		return bad
	}
	n := numbers[0]
	switch line[0] {
	case '=':
		t.codes[n] = numbers[1]
		return nil
	case '-':
		for i := n; i < min(n+numbers[1], len(t.folders)); i++ {
			t.folders[i].Entries, t.codes[i] = nil, -1
		}
		return nil
	}
	if numbers[1] >= len(t.with) {
		return bad
	}
	file := &t.folders[n].Files[numbers[1]]
	switch {
	case line[0] == '!':
		file.Data, file.Err = nil, nil
	case numbers[2] != codeOK && numbers[2] != codeOther:
		file.Err = pathError("open", file.Name, errCode(numbers[2], ""))
	default:
		file.Err = nil
		if numbers[2] == codeOK && len(content) <= treeFile {
			file.Data = append([]byte{}, content...)
		}
	}
	return nil
}

// entry takes what stat says of one entry.
func (t *tree) entry(line string) error {
	fields := strings.SplitN(line, " ", 7)
	if len(fields) < 7 {
		return fmt.Errorf("%w: malformed status %.100q", env.ErrProtocol, line)
	}
	slash := strings.LastIndexByte(fields[6], '/') + 1
	n, ok := t.number[fields[6][:slash]]
	base := fields[6][slash:]
	if !ok || base == "" || base == "." || base == ".." || strings.ContainsRune(base, 0) {
		return fmt.Errorf("%w: entry %.100q", env.ErrProtocol, fields[6])
	}
	info, err := parseInfo(base, strings.Join(fields[:5], " "))
	if err == nil {
		t.folders[n].Entries = append(t.folders[n].Entries, fs.FileInfoToDirEntry(info))
	}
	return err
}

// finish returns the folders, and lists those alone of which the answer does not say all.
func (t *tree) finish(ctx context.Context) ([]env.Folder, error) {
	for i := range t.folders {
		f := &t.folders[i]
		switch code := t.codes[i]; {
		case f.Err != nil:
		case code == codeOK:
			slices.SortFunc(f.Entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		case code == -1 || code == codeOther:
			f.Entries, f.Err = t.e.ReadDir(ctx, t.names[i])
			if f.Files == nil {
				f.Files = make([]env.FileContent, len(t.with)) // None of them was read.
			}
			if f.Err != nil && (ctx.Err() != nil || errors.Is(f.Err, fs.ErrClosed) || errors.Is(f.Err, env.ErrGone)) {
				return nil, f.Err
			}
		default:
			f.Err = pathError("readdir", t.names[i], errCode(code, ""))
		}
		if f.Err != nil {
			f.Entries, f.Files = nil, nil
		}
	}
	return t.folders, nil
}

// AreFiles implements env.TreeReader.
func (e *Environment) AreFiles(ctx context.Context, names []string) ([]bool, error) {
	regular := make([]bool, 0, len(names))
	for len(regular) < len(names) {
		rest := names[len(regular):]
		rest = rest[:min(len(rest), testNames)]
		var b strings.Builder
		b.WriteString("sa_is() {\nsa_h=0\n[ -f \"$1\" ] && sa_h=1\nfor sa_j in 1 2 3 4 5 6 7 8; do printf $sa_h && return; done\n}")
		for _, name := range rest {
			full, err := e.resolve(name)
			if err != nil {
				full = "/" // which is no file
			}
			b.WriteString("\nsa_is " + quote(full))
		}
		out, err := e.tell(ctx, b.String(), len(rest))
		if err == nil && len(out) != len(rest) {
			err = fmt.Errorf("%w: %d answers about %d files", env.ErrProtocol, len(out), len(rest))
		}
		if err != nil {
			return nil, fmt.Errorf("look at files: %w", err)
		}
		for _, c := range out {
			regular = append(regular, c == '1')
		}
	}
	return regular, nil
}
