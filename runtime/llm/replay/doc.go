// Package replay answers requests from a script in YAML, without a model or a network.
//
// # Scripts
//
// A script is a YAML file: the answers of a model, turn by turn, each with what the model must have
// been shown before.
//
//	model: scripted-1            # optional: the model that claims to answer
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
// Every request plays the next turn. Fields that are not named here are refused. A turn has these,
// all optional, but it answers something:
//
//	expect     what the model was shown, see below
//	reasoning  what the model thinks
//	text       what the model says
//	calls      a list of tool calls: tool, its name; args, a mapping that becomes JSON, or a string that is sent as it
//	           is, well-formed or not, {} if left out; id, "call_T_N" if left out, for call N of turn T
//	usage      tokens: input, output, reasoning, cache_read, cache_write
//	finish     stop, tool_calls, length or content_filter; left out: tool_calls if there are calls, else stop
//	delay      how long to wait before the answer, such as 200ms
//	error      fails in place of a complete answer, after reasoning and text: kind, such as rate_limit or stream; status,
//	           the HTTP status, which stands for a kind if kind is left out; code; message; retry_after, such as 2s
//
// Under expect stand conditions, all of which must hold:
//
//	system   the instructions of the request
//	user     all user messages, one below the other
//	result   the newest tool result
//	results  a list: all results that answer the newest tool calls, in order
//	tools    names of tools that must be offered, among others
//
// The first four take contains and not_contains, each one text or a list of them, and matches, a
// regular expression in the syntax of package regexp; result and results also take tool, the name
// of the tool, and is_error, true or false.
//
// A request that is not what a turn expects, and a request after the last turn, is an *llm.Error of
// llm.KindReplay, which says what was expected, in which line of the script, and what was there.
//
// [NewScript] plays a script inside the process; package llmtest serves one over HTTP.
package replay
