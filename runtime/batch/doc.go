// Package batch works on many tasks, some at the same time, and keeps their results in a directory.
//
// Run gives each task exactly one result, also when the process is killed in between: the next Run
// in the same directory goes on with the tasks that have none. The package opens no environment and
// calls no model; Config.Run does that for one attempt at one task.
//
//	DIR/tasks.jsonl    the tasks
//	DIR/results.jsonl  a Record for each task that is done, in the order in which they ended
//	DIR/attempts.jsonl a Record for each attempt that is not the result of its task: it was repeated
//	                   or aborted, or Config.Forget has removed its result
//	DIR/tasks/ID/N/    the files of the N-th attempt at the task ID
package batch
