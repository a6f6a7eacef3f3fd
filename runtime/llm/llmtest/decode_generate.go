package llmtest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// Generate is the API name of Gemini's streamGenerateContent.
const Generate = "generate"

// generateBody has the fields of a streamGenerateContent request.
type generateBody struct {
	CachedContent     json.RawMessage   `json:"cachedContent"`
	Contents          []generateContent `json:"contents"`
	SafetySettings    json.RawMessage   `json:"safetySettings"`
	ServiceTier       json.RawMessage   `json:"serviceTier"`
	Store             json.RawMessage   `json:"store"`
	SystemInstruction *generateContent  `json:"systemInstruction"`
	ToolConfig        struct {
		FunctionCallingConfig struct {
			Mode                 string          `json:"mode"`
			AllowedFunctionNames json.RawMessage `json:"allowedFunctionNames"`
		} `json:"functionCallingConfig"`
		RetrievalConfig json.RawMessage `json:"retrievalConfig"`
	} `json:"toolConfig"`
	GenerationConfig struct {
		CandidateCount     json.RawMessage `json:"candidateCount"`
		FrequencyPenalty   json.RawMessage `json:"frequencyPenalty"`
		MaxOutputTokens    int             `json:"maxOutputTokens"`
		MediaResolution    json.RawMessage `json:"mediaResolution"`
		PresencePenalty    json.RawMessage `json:"presencePenalty"`
		ResponseJSONSchema json.RawMessage `json:"responseJsonSchema"`
		ResponseMIMEType   json.RawMessage `json:"responseMimeType"`
		ResponseSchema     json.RawMessage `json:"responseSchema"`
		Seed               json.RawMessage `json:"seed"`
		StopSequences      json.RawMessage `json:"stopSequences"`
		Temperature        json.RawMessage `json:"temperature"`
		TopK               json.RawMessage `json:"topK"`
		TopP               json.RawMessage `json:"topP"`
		ThinkingConfig     struct {
			IncludeThoughts bool   `json:"includeThoughts"`
			ThinkingBudget  *int   `json:"thinkingBudget"`
			ThinkingLevel   string `json:"thinkingLevel"`
		} `json:"thinkingConfig"`
	} `json:"generationConfig"`
	Tools []struct {
		CodeExecution        json.RawMessage `json:"codeExecution"`
		GoogleSearch         json.RawMessage `json:"googleSearch"`
		URLContext           json.RawMessage `json:"urlContext"`
		FunctionDeclarations []struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parametersJsonSchema"`
		} `json:"functionDeclarations"`
	} `json:"tools"`
}

type generateContent struct {
	Role  string            `json:"role"`
	Parts []json.RawMessage `json:"parts"`
}

// generatePart has the fields of a part. Exactly one of them is its data.
type generatePart struct {
	CodeExecutionResult json.RawMessage `json:"codeExecutionResult"`
	ExecutableCode      json.RawMessage `json:"executableCode"`
	ToolCall            json.RawMessage `json:"toolCall"`
	ToolResponse        json.RawMessage `json:"toolResponse"`
	InlineData          *generateBlob   `json:"inlineData"`
	Text                *string         `json:"text"`
	Thought             bool            `json:"thought"`
	ThoughtSignature    string          `json:"thoughtSignature"`
	FunctionCall        *struct {
		ID   string          `json:"id"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"functionCall"`
	FunctionResponse *struct {
		ID       string             `json:"id"`
		Name     string             `json:"name"`
		Response map[string]*string `json:"response"`
		Parts    []struct {
			InlineData *generateBlob `json:"inlineData"`
		} `json:"parts"`
	} `json:"functionResponse"`
}

type generateBlob struct {
	MIMEType string `json:"mimeType"`
	Data     string `json:"data"`
}

func (b generateBlob) part() (llm.Part, error) {
	data, err := base64.StdEncoding.DecodeString(b.Data)
	if err != nil || len(data) == 0 || !strings.HasPrefix(b.MIMEType, "image/") {
		return llm.Part{}, errors.New("inlineData is not an image in base64")
	}
	return llm.Part{Kind: llm.PartImage, Image: &llm.Image{MIME: b.MIMEType, Data: data}}, nil
}

// generateReader decodes the contents of a request.
type generateReader struct {
	conversation
	// strict is true for models that require signatures and accept images in results, those from
	// Gemini 3 on.
	strict bool
	calls  int
	// open are the calls of the last content, in order.
	open []generateCall
}

// generateCall is a call as results name it: by its id on the wire, if any, and by its name.
type generateCall struct{ id, wireID, name string }

var (
	fromGemini3     = lazyregexp.New(`^gemini-([3-9]|[1-9][0-9]|[a-z])`)
	generatePath    = lazyregexp.New(`^/v1beta/models/([^/:]+):streamGenerateContent$`)
	generateName    = lazyregexp.New(`^[a-zA-Z_][a-zA-Z0-9_.-]{0,63}$`)
	foreignThoughts = "skip_thought_signature_validator"
)

// decodeGenerate validates and decodes a request.
func decodeGenerate(req *Request, _ map[string]json.RawMessage) (extras, error) {
	var b generateBody
	if err := strict(req.Body, &b); err != nil {
		return extras{}, err
	}
	if req.Query.Get("alt") != "sse" {
		return extras{}, errors.New("alt=sse is missing in the address")
	}
	if len(b.Contents) == 0 {
		return extras{}, errors.New("contents are empty")
	}
	model := generatePath().FindStringSubmatch(req.Path)[1]
	system := ""
	if b.SystemInstruction != nil {
		var p generatePart
		if len(b.SystemInstruction.Parts) != 1 || strict(b.SystemInstruction.Parts[0], &p) != nil ||
			p.Text == nil {
			return extras{}, errors.New("systemInstruction is not a text")
		}
		system = *p.Text
	}
	specs, err := b.tools()
	if err != nil {
		return extras{}, err
	}
	effort, err := b.effort()
	if err != nil {
		return extras{}, err
	}
	r := generateReader{strict: fromGemini3().MatchString(model)}
	if err := r.contents(b.Contents); err != nil {
		return extras{}, err
	}
	req.Request = llm.Request{
		Model: model, System: system, Messages: r.messages, Tools: specs, ReasoningEffort: effort,
		MaxOutputTokens: b.GenerationConfig.MaxOutputTokens, ParallelToolCalls: true,
		NoToolCalls: b.ToolConfig.FunctionCallingConfig.Mode == "NONE",
	}
	return extras{thoughts: b.GenerationConfig.ThinkingConfig.IncludeThoughts}, nil
}

func (b *generateBody) tools() ([]llm.ToolSpec, error) {
	var t tools
	for i, tool := range b.Tools {
		kinds := 0
		for _, raw := range []json.RawMessage{tool.CodeExecution, tool.GoogleSearch, tool.URLContext} {
			if len(raw) > 0 {
				kinds++
			}
		}
		if kinds+len(tool.FunctionDeclarations) == 0 {
			return nil, fmt.Errorf("tool %d is empty", i)
		}
		for _, f := range tool.FunctionDeclarations {
			if len(f.Parameters) == 0 {
				f.Parameters = json.RawMessage(`{"type":"object"}`)
			}
			if err := t.add(f.Name, f.Description, f.Parameters); err != nil {
				return nil, err
			}
		}
	}
	return t.specs, nil
}

// effort returns the reasoning effort of the thinking level or budget.
func (b *generateBody) effort() (string, error) {
	c := b.GenerationConfig.ThinkingConfig
	switch {
	case c.ThinkingLevel != "" && c.ThinkingBudget != nil:
		return "", errors.New("thinkingLevel and thinkingBudget exclude each other")
	case c.ThinkingBudget != nil && *c.ThinkingBudget == 0 && c.IncludeThoughts:
		return "", errors.New("includeThoughts without thinking")
	case c.ThinkingBudget != nil:
		return strconv.Itoa(*c.ThinkingBudget), nil
	}
	switch c.ThinkingLevel {
	case "", "MINIMAL", "LOW", "MEDIUM", "HIGH":
		return strings.ToLower(c.ThinkingLevel), nil
	}
	return "", fmt.Errorf("the thinkingLevel %q is unknown", c.ThinkingLevel)
}

func (r *generateReader) contents(list []generateContent) error {
	for i, c := range list {
		var err error
		switch {
		case len(c.Parts) == 0:
			err = errors.New("parts are empty")
		case c.Role == "model" && i == 0:
			err = errors.New("the first content is not the user's")
		case c.Role == "model" && i == len(list)-1:
			err = errors.New("the last content is not the user's")
		case c.Role == "model" && len(r.open) > 0:
			err = errors.New("calls without results stand before it")
		case c.Role == "model" && list[i-1].Role == "model" &&
			slices.ContainsFunc(c.Parts, isFunctionCall):
			err = errors.New("calls do not come after the user's content")
		case c.Role == "model":
			err = r.model(c.Parts)
		case c.Role == "user":
			err = r.user(c.Parts)
		default:
			err = fmt.Errorf("the role %q is unknown", c.Role)
		}
		if err != nil {
			return fmt.Errorf("content %d: %w", i, err)
		}
	}
	return r.answered()
}

func isFunctionCall(raw json.RawMessage) bool {
	var p struct {
		FunctionCall json.RawMessage `json:"functionCall"`
	}
	return json.Unmarshal(raw, &p) == nil && p.FunctionCall != nil
}

// part decodes a part and verifies that it has one kind of data.
func (r *generateReader) part(raw json.RawMessage) (generatePart, error) {
	var p generatePart
	if err := strict(raw, &p); err != nil {
		return p, err
	}
	kinds := 0
	for _, is := range []bool{
		p.Text != nil, p.InlineData != nil, p.FunctionCall != nil, p.FunctionResponse != nil,
		p.ExecutableCode != nil, p.CodeExecutionResult != nil, p.ToolCall != nil, p.ToolResponse != nil,
	} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return p, fmt.Errorf("a part has %d kinds of data", kinds)
	}
	if p.Text != nil && *p.Text == "" && p.ThoughtSignature == "" {
		return p, errors.New("a text is empty")
	}
	return p, nil
}

// user decodes a content of the user: the results of all calls of the content before it, or texts
// and images.
func (r *generateReader) user(parts []json.RawMessage) error {
	var content []llm.Part
	results := 0
	for n, raw := range parts {
		p, err := r.part(raw)
		if err != nil {
			return fmt.Errorf("part %d: %w", n, err)
		}
		switch {
		case p.ThoughtSignature != "" || p.Thought:
			err = errors.New("the user has no thoughts")
		case p.FunctionResponse != nil && len(content) > 0:
			err = errors.New("a result does not stand first")
		case p.FunctionResponse != nil:
			err = r.response(p, results)
			results++
		case p.Text != nil && results > 0:
			err = errors.New("a text stands among results")
		case p.Text != nil:
			content = append(content, llm.Text(*p.Text))
		case p.InlineData != nil:
			var image llm.Part
			image, err = p.InlineData.part()
			content = append(content, image)
		default:
			err = errors.New("the model's part is the user's")
		}
		if err != nil {
			return fmt.Errorf("part %d: %w", n, err)
		}
	}
	if results != len(r.open) {
		return fmt.Errorf("%d results for %d calls", results, len(r.open))
	}
	r.open = nil
	if len(content) > 0 {
		r.add(llm.RoleUser, content...)
	}
	return nil
}

// response decodes the result number n of a content.
func (r *generateReader) response(p generatePart, n int) error {
	f := p.FunctionResponse
	if n >= len(r.open) {
		return fmt.Errorf("the result of %s answers no call", f.Name)
	}
	call := r.open[n]
	if f.Name != call.name || f.ID != call.wireID {
		return fmt.Errorf("the result of %s %q stands where that of %s %q should", f.Name, f.ID,
			call.name, call.wireID)
	}
	text, isError := f.Response["output"], false
	if text == nil {
		text, isError = f.Response["error"], true
	}
	if text == nil || len(f.Response) != 1 {
		return errors.New("a response is neither an output nor an error")
	}
	var parts []llm.Part
	if *text != "" || len(f.Parts) == 0 {
		parts = append(parts, llm.Text(*text))
	}
	for _, part := range f.Parts {
		if part.InlineData == nil || !r.strict {
			return errors.New("an image in a result is not for this model")
		}
		image, err := part.InlineData.part()
		if err != nil {
			return err
		}
		parts = append(parts, image)
	}
	if err := r.result(call.id, parts); err != nil {
		return err
	}
	last := r.messages[len(r.messages)-1].Parts
	last[len(last)-1].ToolResult.IsError = isError
	return nil
}

// model decodes a content of the model.
func (r *generateReader) model(parts []json.RawMessage) error {
	for n, raw := range parts {
		p, err := r.part(raw)
		if err == nil {
			err = r.modelPart(p, raw)
		}
		if err != nil {
			return fmt.Errorf("part %d: %w", n, err)
		}
	}
	return nil
}

func (r *generateReader) modelPart(p generatePart, raw json.RawMessage) error {
	mark := object{}
	if p.ThoughtSignature != "" {
		mark["thoughtSignature"] = p.ThoughtSignature
	}
	switch {
	case p.FunctionCall != nil:
		return r.functionCall(p, mark)
	case p.FunctionResponse != nil || p.InlineData != nil && p.ThoughtSignature == "":
		return errors.New("the user's part is the model's")
	case p.Text == nil || p.Thought || *p.Text == "":
		if p.Text != nil && p.ThoughtSignature != signature(*p.Text) {
			return errors.New("the signature of a text or thought is wrong")
		}
		r.opaque("gemini", raw)
		return nil
	}
	if p.ThoughtSignature != "" {
		if p.ThoughtSignature != signature(*p.Text) {
			return errors.New("the signature of a text is wrong")
		}
		r.opaque("gemini", mustJSON(mark))
	}
	r.add(llm.RoleAssistant, llm.Text(*p.Text))
	return nil
}

// functionCall decodes a call. A call without an id gets one of its number, to pair it with its
// result.
func (r *generateReader) functionCall(p generatePart, mark object) error {
	f := p.FunctionCall
	if len(f.Args) == 0 {
		f.Args = json.RawMessage("{}")
	}
	if !bytes.HasPrefix(f.Args, []byte("{")) {
		return fmt.Errorf("the args of %s are not an object", f.Name)
	}
	switch p.ThoughtSignature {
	case foreignThoughts:
	case "":
		if r.strict && len(r.open) == 0 {
			return fmt.Errorf("the call of %s is missing a thoughtSignature", f.Name)
		}
	default:
		if p.ThoughtSignature != callSignature(f.Name, f.Args) {
			return fmt.Errorf("the signature of the call of %s is wrong", f.Name)
		}
	}
	call := generateCall{id: f.ID, wireID: f.ID, name: f.Name}
	if f.ID != "" && r.names[f.ID] != "" {
		return fmt.Errorf("two calls have the id %q", f.ID)
	}
	if call.id == "" {
		call.id = fmt.Sprintf("call_without_id_%d", r.calls)
	}
	r.calls++
	r.open = append(r.open, call)
	if p.ThoughtSignature != "" || f.ID != "" {
		fields := object{"name": f.Name}
		if f.ID != "" {
			fields["id"] = f.ID
		}
		mark["functionCall"] = fields
		r.opaque("gemini", mustJSON(mark))
	}
	return r.call(generateName(), call.id, f.Name, string(f.Args))
}

// callSignature signs a call, so that any server can verify that it comes back unchanged.
func callSignature(name string, args json.RawMessage) string {
	var value any
	if json.Unmarshal(args, &value) != nil {
		return ""
	}
	return signature(name + string(mustJSON(value)))
}
