package main

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/urfave/cli/v2"
)

// configName is the name of configuration files.
const configName = "sandboxagent.yaml"

// profileName is the flag that selects a profile of the user's file.
const profileName = "profile-name"

func profileNameFlag() cli.Flag {
	return &cli.StringFlag{
		Name: profileName, Category: groupConfig,
		Usage: "use the profile `NAME` of your " + configName,
	}
}

// argumentsOnly are the flags that no file sets: consents, and those about one call of the program.
var argumentsOnly = [...]string{
	"yes", "accept-new-host-key", profileName, sessionName, lastName, answerName, approveName,
	refuseName, toolsName, keepFilesName, "keep-flags", "env-id", "file", "image-file", "patch",
	"args", "tty", "interactive", "all", "dry-run", "older-than", "json", "base", originName,
	"out", "status", "failed", "junit",
}

// readsFiles reports whether a file may set one of flags.
func readsFiles(flags []cli.Flag) bool {
	return slices.ContainsFunc(flags, func(f cli.Flag) bool {
		return !slices.Contains(argumentsOnly[:], f.Names()[0])
	})
}

// inFiles are the flags that a file may set, once they are made.
var inFiles struct {
	once  sync.Once
	flags []cli.Flag
}

// fileFlags returns the flags that a file may set, each once. Nobody changes them.
func fileFlags() []cli.Flag {
	inFiles.once.Do(func() {
		all := uniqueFlags(allFlags((&program{}).app()))
		inFiles.flags = slices.DeleteFunc(all, func(f cli.Flag) bool {
			return slices.Contains(argumentsOnly[:], f.Names()[0])
		})
	})
	return inFiles.flags
}

// source is what set a flag beside the arguments: a variable, or a key of a file.
type source struct {
	// variable is the name of the variable; empty for a file.
	variable string
	// place is FILE:LINE, key the key, profile the profile of the user's file that has it.
	place, key, profile string
	// repository: the file is that of a project that the user does not trust.
	repository bool
}

// subject names s at the start of a message about the flag.
func (s source) subject() string {
	if s.variable != "" {
		return "the variable " + s.variable
	}
	return s.place + ": " + s.key
}

// String names s for the output of config show.
func (s source) String() string {
	switch {
	case s.variable != "":
		return "variable " + s.variable
	case s.profile != "":
		return s.place + ", profile " + s.profile
	}
	return s.place
}

// setting is a flag that a source sets. Only a list has several values.
type setting struct {
	name   string
	values []string
	source
}

// settings are what sets flags beside the arguments.
type settings struct {
	variables, ofProject, profile, user []setting
	// rules are those of the project, which tighten the policy.
	rules []setting
}

// bySource returns the settings of each source, the strongest one first.
func (s settings) bySource() [][]setting {
	return [][]setting{s.variables, s.ofProject, s.profile, s.user}
}

// value returns the value of a flag that is no list; empty if nothing sets it.
func (s settings) value(name string) string {
	for _, list := range s.bySource() {
		if v := findSetting(list, name); v != nil {
			return v.values[0]
		}
	}
	return ""
}

func findSetting(list []setting, name string) *setting {
	i := slices.IndexFunc(list, func(s setting) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// variableSettings returns the flags that variables set. --all, which makes a command act on more
// than the user's own, has no variable, and neither have the flags about one session.
func variableSettings(flags []cli.Flag) (list []setting) {
	for _, f := range flags {
		flag := f.Names()[0]
		name, value := variable(flag)
		if value != "" && !slices.Contains(withoutVariables[:], flag) {
			list = append(list, setting{flag, []string{value}, source{variable: name}})
		}
	}
	return list
}

// settingsReader reads the settings of a command line.
type settingsReader struct {
	line *commandLine
	// before is the command line of the session that goes on; empty if none.
	before programLine
	settings
}

// value returns the value of a flag from the arguments, those of the session, variables or files.
func (r *settingsReader) value(name string) string {
	recalled := lastValue(r.before.Flags, name)
	if slices.Contains(r.before.Variables, name) {
		return cmp.Or(r.line.value(name), r.settings.value(name), recalled)
	}
	return cmp.Or(r.line.value(name), recalled, r.settings.value(name))
}

// read reads variables, and files if one of flags may be in them. With an error it has what could
// be read.
func (r *settingsReader) read(flags []cli.Flag) error {
	r.variables = variableSettings(flags)
	if !readsFiles(flags) || r.value(toolsName) == toolsRecorded {
		return nil
	}
	user, err := readUserConfig()
	r.user = user.keys
	if err != nil {
		return err
	}
	if name := r.value(profileName); name != "" {
		if r.profile, err = user.profile(name); err != nil {
			if s := findSetting(r.variables, profileName); s != nil && r.line.value(profileName) == "" {
				r.line.sources["--"+profileName] = s.source
			}
			return err
		}
	}
	if rollsBack(r.line.command) { // a session may have changed the file
		return nil
	}
	return r.readProject(user)
}

// addSettings adds the flags that variables and files set. A flag in the arguments goes before all
// of them. A setting whose flag has no effect with the selected backend, or that the command lacks,
// is ignored, so that the same settings serve all commands and backends. before is the command line
// of the session that goes on. With an error l has the other flags.
func (l *commandLine) addSettings(app *cli.App, before programLine) error {
	flags := app.Command(l.command).Flags
	l.sources = make(map[string]source)
	r := settingsReader{line: l, before: before}
	err := r.read(flags)
	var selected backend
	if f, ok := findFlag(flags, "env").(cli.DocGenerationFlag); ok {
		name := cmp.Or(r.value("env"), f.GetValue())
		if l.command == submitName {
			name = f.GetValue()
		}
		selected, _ = findBackend(backends(nil), name) // parseBackend reports an unknown one
	}
	for i, list := range r.bySource() {
		if foreignAddress(r, r.bySource()[i:]) {
			list = slices.DeleteFunc(slices.Clone(list), func(s setting) bool {
				return s.name == baseURLName
			})
		}
		err = cmp.Or(err, l.take(flags, selected, r.value("sandbox") == sandboxOff, list))
	}
	for _, list := range [][]setting{r.profile, r.user} {
		if s := findSetting(list, "model"); s != nil && l.userModel == "" {
			l.userModel = s.values[0]
		}
	}
	if err == nil {
		l.rules, err = parseRules(r.rules)
	}
	return err
}

// foreignAddress reports whether the address of a model in the first of lists, the settings of a
// source and the weaker ones, is for their model, while a stronger source sets one of another
// provider.
func foreignAddress(r settingsReader, lists [][]setting) bool {
	model := r.value("model")
	if s := findSetting(r.ofProject, "model"); s != nil && s.repository && s.values[0] == model {
		recalled := lastValue(r.before.Flags, "model")
		if recalled == "" || slices.Contains(r.before.Repository, "model") {
			return false // checkModel decides
		}
		model = recalled // which goes before that of a repository
	}
	for _, list := range lists {
		if s := findSetting(list, "model"); s != nil && !s.repository {
			return providerOf(s.values[0]) != providerOf(model)
		}
	}
	return false
}

// take adds the settings of one source to flags that no stronger source has set.
func (l *commandLine) take(
	flags []cli.Flag, selected backend, unsandboxed bool, list []setting,
) (err error) {
	without := l.excluded()
	for _, s := range list {
		f := findFlag(flags, s.name)
		if f == nil || l.value(s.name) != "" || slices.Contains(without, s.name) ||
			selected != nil && !obeys(selected, s.name) {
			continue
		}
		// A file, which is not edited for one call, has no part in a sandbox that is off.
		if unsandboxed && s.variable == "" && s.name != "sandbox" &&
			f.(documentedFlag).GetCategory() == groupSandbox {
			continue
		}
		l.sources["--"+s.name] = s.source
		for _, value := range s.values {
			err = cmp.Or(err, l.add(f, value))
		}
	}
	return err
}

// excluded returns the flags that weaker sources cannot set, since another flag or the command
// excludes them.
func (l *commandLine) excluded() (names []string) {
	if l.command == submitName { // its environments are pods, those of other commands may be others
		names = append(names, "env")
	}
	for flag, other := range map[string]string{
		"env-id": "env", "quiet": "verbose", "verbose": "quiet", "allow-write": "read-only",
		"apply": noUploadFlag, "upload-ignored": noUploadFlag,
	} {
		value := l.value(other)
		if on, err := strconv.ParseBool(value); value != "" && (on || err != nil) {
			names = append(names, flag)
		}
	}
	return names
}

// project returns the directory of the project whose file counts, and the directory in which the
// program starts: --workdir, if it is one of this machine, else that of the program. A session that
// goes on elsewhere without a new --workdir has its project.
func (r *settingsReader) project() (root, start string, err error) {
	dir := r.value("workdir")
	if r.workdirElsewhere() {
		dir = ""
	}
	switch {
	case slices.Contains(r.line.given(), "workdir"):
		return projectRoot(dir)
	case r.before.Project != "" && (r.settings.value("workdir") == "" ||
		!slices.Contains(r.before.Variables, "workdir")):
		return projectRoot(r.before.Project)
	case !filepath.IsAbs(dir):
		dir = filepath.Join(r.before.Dir, dir)
	}
	return projectRoot(dir)
}

// workdirElsewhere reports whether --workdir is no directory of this machine.
func (r *settingsReader) workdirElsewhere() bool {
	b, err := findBackend(backends(nil), r.value("env"))
	if err != nil { // it is the default, or invalid
		return false
	}
	_, remote := b.(remoteBackend)
	without, _ := strconv.ParseBool(r.value(noUploadFlag))
	return remote && b.inPlace() || without && obeys(b, noUploadFlag)
}
