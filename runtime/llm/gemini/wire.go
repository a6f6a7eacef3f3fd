package gemini

import (
	"encoding/json"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// The types of this file are those of streamGenerateContent, with the fields that the client uses.
// These pages document them:
//
//	https://ai.google.dev/api/generate-content  requests, generation config, candidates, usage
//	https://ai.google.dev/api/caching           contents, parts, tools, function calls and responses
//	https://ai.google.dev/gemini-api/docs/thinking           thinking budgets and levels
//	https://ai.google.dev/gemini-api/docs/thought-signatures thought signatures

// wireRequest is a GenerateContentRequest (api/generate-content#request-body).
type wireRequest struct {
	Contents          []wireContent         `json:"contents"`
	SystemInstruction *wireContent          `json:"systemInstruction,omitempty"`
	Tools             []any                 `json:"tools,omitempty"`
	ToolConfig        *wireToolConfig       `json:"toolConfig,omitempty"`
	GenerationConfig  *wireGenerationConfig `json:"generationConfig,omitempty"`
}

// wireGenerationConfig is a GenerationConfig (api/generate-content#generationconfig).
type wireGenerationConfig struct {
	MaxOutputTokens int                 `json:"maxOutputTokens,omitempty"`
	ThinkingConfig  *wireThinkingConfig `json:"thinkingConfig,omitempty"`
}

// wireThinkingConfig is a ThinkingConfig (api/generate-content#thinkingconfig). ThinkingBudget is a
// pointer because 0 turns thinking off and a missing budget is the model's default.
type wireThinkingConfig struct {
	IncludeThoughts bool   `json:"includeThoughts,omitempty"`
	ThinkingBudget  *int32 `json:"thinkingBudget,omitempty"`
	// ThinkingLevel is MINIMAL, LOW, MEDIUM or HIGH.
	ThinkingLevel string `json:"thinkingLevel,omitempty"`
}

// wireTool is a Tool (api/caching#tool).
type wireTool struct {
	FunctionDeclarations []wireFunctionDeclaration `json:"functionDeclarations"`
}

// wireFunctionDeclaration is a FunctionDeclaration (api/caching#functiondeclaration).
type wireFunctionDeclaration struct {
	Description          string          `json:"description,omitempty"`
	Name                 string          `json:"name"`
	ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema,omitempty"`
}

// wireToolConfig is a ToolConfig (api/caching#toolconfig).
type wireToolConfig struct {
	FunctionCallingConfig wireFunctionCallingConfig `json:"functionCallingConfig"`
}

// wireFunctionCallingConfig is a FunctionCallingConfig (api/caching#functioncallingconfig).
type wireFunctionCallingConfig struct {
	Mode string `json:"mode"`
}

// wireContent is a Content (api/caching#content). Role is "user" or "model".
type wireContent struct {
	Role  string `json:"role,omitempty"`
	Parts []any  `json:"parts"`
}

// The following types are forms of a Part (api/caching#part), each with one kind of data.
type (
	// wireText is a part with a text, which may be empty.
	wireText struct {
		Text string `json:"text"`
	}
	// wireInlineData is a part with an image; function responses hold such parts, too
	// (api/caching#functionresponsepart).
	wireInlineData struct {
		InlineData wireBlob `json:"inlineData"`
	}
	// wireResponsePart is a part with the result of a function call.
	wireResponsePart struct {
		FunctionResponse wireFunctionResponse `json:"functionResponse"`
	}
	// wirePart is a part by its fields, each as the server wrote it. The client sends parts back
	// that it does not understand.
	wirePart map[string]json.RawMessage
)

// wireBlob is a Blob (api/caching#blob). Data is base64 on the wire.
type wireBlob struct {
	Data     []byte `json:"data"`
	MIMEType string `json:"mimeType"`
}

func imagePart(img llm.Image) wireInlineData {
	return wireInlineData{wireBlob{Data: img.Data, MIMEType: img.MIME}}
}

// wireFunctionResponse is a FunctionResponse (api/caching#functionresponse). Response has one key,
// "output" or "error".
type wireFunctionResponse struct {
	Parts    []wireInlineData  `json:"parts,omitempty"`
	ID       string            `json:"id,omitempty"`
	Name     string            `json:"name"`
	Response map[string]string `json:"response"`
}

// wireResponse is a GenerateContentResponse (api/generate-content#generatecontentresponse), or an
// error instead (https://ai.google.dev/gemini-api/docs/troubleshooting).
type wireResponse struct {
	// Candidates are answers (api/generate-content#candidate); the client reads the one of index 0.
	Candidates []struct {
		Index   int `json:"index"`
		Content struct {
			Parts []json.RawMessage `json:"parts"`
		} `json:"content"`
		FinishReason  finishReason `json:"finishReason"`
		FinishMessage string       `json:"finishMessage"`
	} `json:"candidates"`
	PromptFeedback *struct {
		BlockReason        string `json:"blockReason"`
		BlockReasonMessage string `json:"blockReasonMessage"`
	} `json:"promptFeedback"`
	// Usage counts from the start of the answer (api/generate-content#UsageMetadata).
	Usage *struct {
		Prompt     int64 `json:"promptTokenCount"`
		Cached     int64 `json:"cachedContentTokenCount"`
		ToolUse    int64 `json:"toolUsePromptTokenCount"`
		Candidates int64 `json:"candidatesTokenCount"`
		Thoughts   int64 `json:"thoughtsTokenCount"`
	} `json:"usageMetadata"`
	ModelVersion string          `json:"modelVersion"`
	ResponseID   string          `json:"responseId"`
	Error        json.RawMessage `json:"error"`
}

// wireAnswerPart has the fields of a part that the client reads. Args stay as written, because
// decoding numbers loses digits.
type wireAnswerPart struct {
	Text         *string `json:"text"`
	Thought      bool    `json:"thought"`
	Signature    string  `json:"thoughtSignature"`
	FunctionCall *struct {
		ID   string          `json:"id"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"functionCall"`
}

// finishReason is a FinishReason (api/generate-content#FinishReason). It is empty before the last
// event.
type finishReason string

// Finish reasons of a complete or filtered answer. Any other one means that the model failed.
const (
	finishStop                    finishReason = "STOP"
	finishMaxTokens               finishReason = "MAX_TOKENS"
	finishSafety                  finishReason = "SAFETY"
	finishRecitation              finishReason = "RECITATION"
	finishLanguage                finishReason = "LANGUAGE"
	finishBlocklist               finishReason = "BLOCKLIST"
	finishProhibitedContent       finishReason = "PROHIBITED_CONTENT"
	finishSPII                    finishReason = "SPII"
	finishImageSafety             finishReason = "IMAGE_SAFETY"
	finishImageProhibitedContent  finishReason = "IMAGE_PROHIBITED_CONTENT"
	finishImageRecitation         finishReason = "IMAGE_RECITATION"
	finishMissingThoughtSignature finishReason = "MISSING_THOUGHT_SIGNATURE"
)
