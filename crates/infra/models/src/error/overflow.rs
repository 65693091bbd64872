//! Telling "the conversation is too long" from "you send too much at once". The first wants
//! compaction, the second patience, and every provider words them differently.

mod numbers;

use super::super::wire::Fault;

const CODES: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size_error",
    "context_window_exceeded",
    "context_limit_exceeded",
    "contextwindowexceedederror",
    "model_max_prompt_tokens_exceeded",
    "max_context_length_exceeded",
    "string_too_long_for_context",
    "input_too_long",
    "prompt_too_long",
];

/// Words for a conversation that does not fit, lower case; who says so is beside them. Most others are
/// known by [`is_worded_as_too_long`].
const TOO_LONG: &[&str] = &[
    "maximum context length",                       // OpenAI, vLLM, OpenRouter, Mistral
    "context length exceeded",                      // various
    "context_length_exceeded",                      // proxies that quote OpenAI
    "contextwindowexceedederror",                   // LiteLLM
    "reduce the length of the messages",            // OpenAI, Groq, Cerebras
    "reduce the length of either one",              // OpenRouter
    "maximum model length",                         // vLLM
    "exceeds the available context size",           // llama.cpp
    "when context the overflows",                   // LM Studio, so worded
    "reached context length of",                    // LM Studio
    "prompt is too long",                           // Anthropic, Fireworks
    "prompt too long",                              // Ollama
    "prompt exceeds max length",                    // Z.ai
    "input is too long",                            // Bedrock, Databricks
    "number of input tokens exceeds maximum",       // Bedrock
    "too many input tokens",                        // Bedrock
    "range of input length should be",              // DashScope
    "exceeds the maximum number of tokens allowed", // Gemini
    "maximum prompt length is",                     // xAI
    "`max_new_tokens` must be <=",                  // TGI, Together
    "prompt token count",                           // Copilot
    "max_seq_len",                                  // TabbyAPI, SiliconFlow
    "max_model_len",                                // vLLM, SGLang
];

/// Words for too much in too little time.
pub(super) const THROTTLED: &[&str] = &[
    "rate limit",
    "too many requests",
    "too many tokens, please wait",
    "tokens per minute",
    "tokens per min",
    "tokens per day",
    "requests per",
    "per minute",
    "please wait",
    "try again in",
    "retry in",
    "retry after",
    "throttl",
    "quota",
];

/// Words for one request that is larger than a whole minute's allowance: waiting never helps, a
/// shorter conversation does.
const LARGER_THAN_A_MINUTE: &str = "request too large for";

const WHAT: &[&str] = &["input", "prompt", "message", "conversation", "sequence", "history"];

const TOO_MUCH: &[&str] = &[
    "exceed",
    "too long",
    "too large",
    "too many",
    "longer than",
    "larger than",
    "greater than",
    "more than",
    "over the",
    "overflow",
    "beyond",
    "above the",
    "out of context",
    "must be less",
    "must have less",
    "must be at most",
    "holds at most",
    "must not be longer",
    "not fit",
    "not enough",
    "is full",
    "reached",
];

const CAPACITY: &[&str] =
    &["limit", "max", "allowed", "window", "context", "supports", "length", "capacity", "cannot exceed", "less than"];

pub(super) fn is_overflow(status: Option<u16>, fault: &Fault) -> bool {
    let marked = |field: &str| CODES.iter().any(|code| field.eq_ignore_ascii_case(code));
    if marked(&fault.code) || marked(&fault.kind) {
        return true;
    }
    let message = fault.message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if message.contains(LARGER_THAN_A_MINUTE) && message.contains("token") {
        return true;
    }
    if says(THROTTLED) {
        return false;
    }
    says(TOO_LONG) || (status != Some(429) && is_worded_as_too_long(&message))
}

/// Whether a message in words of its own says that a conversation is larger than its model's window: it
/// speaks of a context that is exceeded, or of tokens of an input that are more than may be.
fn is_worded_as_too_long(message: &str) -> bool {
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    // A field of its own is too long, or the reply that was asked for.
    let of_a_field = says(&["string too long", "array too long", "string_above_max", "image", "audio", "file"]);
    let context =
        ["context length", "context window", "context limit", "context size", "model token limit", "context_length"];
    let of_context = says(&context);
    let of_tokens = message.contains("token") && says(WHAT) && says(CAPACITY);
    !of_a_field && says(TOO_MUCH) && (of_context || of_tokens)
}

/// The window, if the error tells it.
pub(super) fn window(fault: &Fault) -> Option<u32> {
    let message = fault.message.to_lowercase();
    // A limit per minute is no window, and the number in this message of MiniMax is a code.
    if message.contains(LARGER_THAN_A_MINUTE) || message.contains("context window exceeds limit (2013)") {
        return fault.n_ctx;
    }
    fault.n_ctx.or_else(|| numbers::limit(&message)).filter(|tokens| *tokens > 0)
}
