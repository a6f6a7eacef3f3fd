// Package failure turns what fails in a run into signals: of which class a failure is, what to do
// next, and what to learn from it. A Ledger keeps the failures that are open, repeats them to the
// model, and counts those of one kind in a row.
//
// The classes are retryable, recoverable, permission and permanent, and the strategies retry, wait,
// correct, alternative, ask_user and terminate. Only rules decide, no model.
package failure
