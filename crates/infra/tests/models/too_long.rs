//! "The conversation is too long", in the words of every provider, and the window that the words name.

use super::failure;
use posse_core::model::ModelErrorKind;

#[tokio::test]
async fn too_long() {
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
            Some(200_000),
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
        (r#"{"error":"`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens"}"#, Some(4096)),
        (
            r#"{"error":{"message":"Request too large for gpt-x on tokens per min (TPM): Limit 10000, Requested 12000.","code":"rate_limit_exceeded"}}"#,
            None,
        ),
    ] {
        let error = failure(400, body).await;
        assert_eq!((error.kind, error.context_window), (ModelErrorKind::ContextOverflow, tokens), "{body}");
    }
}

#[tokio::test]
async fn every_wording_and_its_numbers() {
    for (message, tokens) in [
        (r#"over the context limit (159392 > 150000)"#, Some(150_000)),
        (
            r#"Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 280000 tokens. Please reduce the length of the messages."#,
            Some(272_000),
        ),
        (r#"Your input exceeds the context window of this model. Please adjust your input and try again."#, None),
        (
            r#"This model's maximum context length is 8192 tokens, however you requested 9001 tokens (8001 in your prompt; 1000 for the completion). Please reduce your prompt; or completion length."#,
            Some(8_192),
        ),
        (
            r#"'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096 tokens and your request has 3000 input tokens (2000 > 4096 - 3000)."#,
            Some(4_096),
        ),
        (r#"request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it"#, Some(4_096)),
        (r#"The input (9000 tokens) is longer than the model's context length (8192 tokens)."#, Some(8_192)),
        (
            r#"Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9000 tokens: 8000 tokens from the input messages and 1000 tokens for the completion."#,
            Some(8_192),
        ),
        (r#"prompt too long; exceeded max context length by 500 tokens"#, None),
        (r#"the input length exceeds the context length"#, None),
        (r#"Too many input tokens. Max input tokens: 8192, request input token count: 10255"#, Some(8_192)),
        (r#"The prompt is too long: 140000, model maximum context length: 131071"#, Some(131_071)),
        (
            r#"Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough."#,
            Some(4_096),
        ),
        (r#"too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4500."#, Some(4_081)),
        (r#"prompt token count of 140000 exceeds the limit of 128000"#, Some(128_000)),
        (
            r#"Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192"#,
            Some(8_192),
        ),
        (r#"InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]"#, Some(129_024)),
        (r#"Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)"#, Some(131_072)),
        (r#"invalid params, context window exceeds limit (2013)"#, None),
        (r#"length of prompt_tokens (140000) must be less than max_seq_len (131072)."#, Some(131_072)),
        (
            r#"The estimated number of input and maximum output tokens (9000) exceeded this model context window limit (8192)."#,
            Some(8_192),
        ),
        (r#"the number of input tokens 5000 cannot exceed the total tokens limit 4096 for this model"#, Some(4_096)),
        (r#"Prompt length 9000 is greater than max_seq_len 8192"#, Some(8_192)),
        (
            r#"This endpoint's maximum context length is 131,072 tokens. However, you requested about 140,000 tokens (139,000 of text input, 1,000 in the output)."#,
            Some(131_072),
        ),
        (r#"inputs must have less than 4096 tokens. Given: 5000"#, Some(4_096)),
        (r#"Prompt of 210k tokens is over the 200k context window of claude-3-5-sonnet-20241022"#, Some(200_000)),
        (r#"The conversation has 131 500 tokens; the context window holds at most 131 072"#, Some(131_072)),
        (
            r#"Error code: 400 - the prompt of 1_200_000 tokens is larger than the model's limit of 1_048_576 tokens"#,
            Some(1_048_576),
        ),
        (r#"model gpt-4-32k: 33,000 input tokens exceed its context length of 32,768"#, Some(32_768)),
    ] {
        let error = failure(400, message).await;
        assert_eq!((error.kind, error.context_window), (ModelErrorKind::ContextOverflow, tokens), "{message}");
    }
}

#[tokio::test]
async fn too_fast_or_something_else() {
    for body in [
        r#"{"message":"Too many tokens, please wait before trying again."}"#,
        r#"{"error":{"message":"Rate limit reached for gpt-x on tokens per min (TPM): Limit 10000, Used 9000, Requested 2000.","code":"rate_limit_exceeded"}}"#,
        r#"{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
        r#"{"error":{"message":"max_tokens is too large: 20000. This model supports at most 16384 completion tokens"}}"#,
        r#"{"error":{"message":"image is too large"}}"#,
        r#"{"error":{"message":"Quota exceeded for metric: generate_content_free_tier_input_token_count, limit: 250000. Please retry in 34s."}}"#,
        r#"{"error":{"message":"max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for claude-3"}}"#,
        r#"{"error":{"message":"Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 129 instead."}}"#,
        r#"{"error":{"message":"Invalid 'messages[0].name': string too long. Expected a string with maximum length 64"}}"#,
        r#"{"error":{"message":"The request's max_tokens exceeds the model's output token limit of 8192"}}"#,
        r#"{"error":{"message":"Too many tokens per day, please wait before trying again"}}"#,
        "",
    ] {
        assert_ne!(failure(400, body).await.kind, ModelErrorKind::ContextOverflow, "{body}");
    }
}
