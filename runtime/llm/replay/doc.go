// Package replay answers requests from a script in YAML, without a model or a network.
//
// # Scripts
//
// A script is a YAML file: the answers of a model, turn by turn, each with conditions on the
// request.
//
//	model: scripted-1            # optional: the name of the model
//	turns:
//	  - expect:
//	      user: {contains: fix the test}
//	      tools: [shell]
//	    text: I run the tests first.
//	    calls:
//	      - tool: shell
//	        args: {command: go test ./...}
//	  - expect:
//	      result: {tool: shell, contains: FAIL}
//	    text: They fail, as you say.
//	    usage: {input: 900, output: 7}
//
// Every request plays the next turn. Unknown fields are errors. These are the fields of a turn, all
// optional, but a turn must not be empty:
//
//	expect     conditions, see below
//	reasoning  the reasoning of the model
//	text       the answer of the model
//	calls      a list of tool calls: tool, its name; args, a mapping that becomes JSON, or a string
//	           that is sent unchanged, well-formed or not (default {}); id (default "call_T_N" for
//	           call N of turn T)
//	usage      tokens: input, output, reasoning, cache_read, cache_write
//	finish     stop, tool_calls, length or content_filter (default tool_calls with calls, else stop)
//	delay      the wait before the answer, such as 200ms
//	error      fails instead of completing the answer, after reasoning and text: kind, such as
//	           rate_limit or stream; status, the HTTP status, which implies a kind without kind;
//	           code; message; retry_after, such as 2s
//
// All conditions under expect must hold:
//
//	system   the instructions of the request
//	user     all user messages, one below the other
//	result   the newest tool result
//	results  a list: all results of the newest tool calls, in order
//	tools    names of tools that the request must have, among others
//
// The first four take contains and not_contains, each a text or a list of them, and matches, a
// regular expression in the syntax of package regexp; result and results also take tool, the name
// of the tool, and is_error, true or false.
//
// A request that does not meet the conditions of its turn, and a request after the last turn, is an
// *llm.Error of llm.KindReplay with the line of the script, the condition and the request.
//
// [NewScript] plays a script in the process; package llmtest serves one over HTTP.
package replay
