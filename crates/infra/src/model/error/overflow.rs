//! Telling "the conversation is too long" from "you send too much at once". The first wants
//! compaction, the second patience, and every provider words them differently.

use super::super::wire::Fault;

/// Codes that settle it.
const CODES: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size_error",
    "context_window_exceeded",
    "model_max_prompt_tokens_exceeded",
];

/// Words for a conversation that does not fit, lower case; who says so is beside them.
const TOO_LONG: &[&str] = &[
    "maximum context length",                       // OpenAI, vLLM, OpenRouter, Mistral
    "context length exceeded",                      // various
    "context_length_exceeded",                      // proxies that quote OpenAI
    "reduce the length of the messages",            // OpenAI, Groq
    "maximum model length",                         // vLLM
    "exceeds the available context size",           // llama.cpp
    "exceeds the context window",                   // OpenAI's other API
    "exceeds the model's context",                  // various
    "exceeded max context length",                  // Ollama
    "greater than the context length",              // LM Studio
    "when context the overflows",                   // LM Studio, so worded
    "prompt is too long",                           // Anthropic
    "exceed context limit",                         // Anthropic
    "input is too long for requested model",        // Bedrock
    "exceeds the maximum number of tokens allowed", // Gemini
    "maximum prompt length is",                     // xAI
    "`max_new_tokens` must be <=",                  // TGI
    "prompt token count",                           // Copilot
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
    "please wait",
    "try again in",
    "throttl",
];

/// Words for one request that is larger than a whole minute's allowance: waiting never helps, a
/// shorter conversation does.
const LARGER_THAN_A_MINUTE: &str = "request too large for";

/// Words before the number that is the window, and after it.
const BEFORE: &[&str] = &[
    "maximum context length is ",
    "maximum context length of ",
    "maximum model length of ",
    "available context size (",
    "maximum prompt length is ",
    "maximum number of tokens allowed (",
    "`max_new_tokens` must be <= ",
    "exceeds the limit of ",
];
const AFTER: &[&str] = &[" maximum context length", " maximum"];

/// Whether the conversation did not fit.
pub(super) fn is_overflow(fault: &Fault) -> bool {
    let marked = |field: &str| CODES.iter().any(|code| field.eq_ignore_ascii_case(code));
    if marked(&fault.code) || marked(&fault.kind) {
        return true;
    }
    let message = fault.message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if message.contains(LARGER_THAN_A_MINUTE) && message.contains("token") {
        return true;
    }
    says(TOO_LONG) && !says(THROTTLED)
}

/// The window, if the error tells it.
pub(super) fn window(fault: &Fault) -> Option<u32> {
    let message = fault.message.to_lowercase();
    let after = |words: &&str| number_at_start(message.split_once(*words)?.1);
    let before = |words: &&str| number_at_end(message.split_once(*words)?.0);
    fault
        .n_ctx
        .or_else(|| BEFORE.iter().find_map(after))
        .or_else(|| AFTER.iter().find_map(before))
        .filter(|tokens| *tokens > 0)
}

fn number_at_start(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(text.len());
    text[..end].replace(',', "").parse().ok()
}

fn number_at_end(text: &str) -> Option<u32> {
    let start = text.rfind(|c: char| !c.is_ascii_digit() && c != ',').map_or(0, |at| at + 1);
    // `rfind` gives the start of a character; digits after a longer one begin past its end.
    text.get(start..)?.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_long() {
        for (body, tokens) in [
            (
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens. Please reduce the length of the messages.","code":"context_length_exceeded"}}"#,
                Some(8192),
            ),
            (
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 0 output tokens and your prompt contains at least 4097 input tokens","code":400}"#,
                Some(4096),
            ),
            (
                r#"{"error":{"message":"The decoder prompt (length 5000) is longer than the maximum model length of 4096."}}"#,
                Some(4096),
            ),
            (
                r#"{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context size","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}"#,
                Some(4096),
            ),
            (
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 213,462 tokens > 200,000 maximum"}}"#,
                Some(200_000),
            ),
            (
                r#"{"error":{"message":"input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000"}}"#,
                None,
            ),
            (
                r#"[{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]"#,
                Some(1_048_576),
            ),
            (
                r#"{"error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}"#,
                Some(131_072),
            ),
            (
                r#"{"message":"Prompt contains 40000 tokens, too large for model with 32768 maximum context length"}"#,
                Some(32_768),
            ),
            (
                r#"{"error":"`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens"}"#,
                Some(4096),
            ),
            (
                r#"{"error":{"message":"Request too large for gpt-x on tokens per min (TPM): Limit 10000, Requested 12000.","code":"rate_limit_exceeded"}}"#,
                None,
            ),
        ] {
            let fault = Fault::in_body(body.as_bytes());
            assert!(is_overflow(&fault), "{body}");
            assert_eq!(window(&fault), tokens, "{body}");
        }
    }

    #[test]
    fn too_fast_or_something_else() {
        for body in [
            r#"{"message":"Too many tokens, please wait before trying again."}"#,
            r#"{"error":{"message":"Rate limit reached for gpt-x on tokens per min (TPM): Limit 10000, Used 9000, Requested 2000.","code":"rate_limit_exceeded"}}"#,
            r#"{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
            r#"{"error":{"message":"max_tokens is too large: 20000. This model supports at most 16384 completion tokens"}}"#,
            r#"{"error":{"message":"image is too large"}}"#,
            "",
        ] {
            assert!(!is_overflow(&Fault::in_body(body.as_bytes())), "{body}");
        }
    }
}
