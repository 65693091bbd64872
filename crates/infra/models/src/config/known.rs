//! What is known of providers by their hosts and the names of their models.
//!
//! Only what would cost a refused request to find out, or what no refusal tells. A server that is
//! not here is asked in the usual way and teaches the rest (`adapt.rs`).

use posse_core::model::conversation::{ReasoningBack, Rules};

/// Makers of models that want an assistant message between a result and a user message, wherever
/// they are served.
const MISTRAL: &[&str] = &["mistral", "mixtral", "ministral", "magistral", "devstral", "codestral", "pixtral"];

/// Whether a host is OpenAI itself, whose models Azure serves in the same way.
///
/// Only of these is it known that several system messages may stand in front, whatever the model.
/// Elsewhere the same protocol hides what does not take them: servers that render a model's template
/// (vLLM, llama.cpp, Ollama) fail where it refuses a second one, routers pass requests on to those,
/// and Anthropic and Google make one of them all by themselves, so that nothing is lost by joining.
pub(super) fn is_openai(host: &str) -> bool {
    host == "api.openai.com" || host.ends_with(".openai.azure.com")
}

/// The conversations that `model` at `host` takes.
pub(super) fn rules(host: &str, model: &str) -> Rules {
    let model = model.to_ascii_lowercase();
    let is_mistral = host == "api.mistral.ai" || MISTRAL.iter().any(|name| model.contains(name));
    let wants_reasoning = ["api.deepseek.com", "api.moonshot.ai", "api.moonshot.cn"].contains(&host);
    Rules {
        user_after_tool: !is_mistral,
        take_turns: host == "api.perplexity.ai" || model.contains("gemma"),
        reasoning: if wants_reasoning { ReasoningBack::Required } else { ReasoningBack::Forbidden },
        several_systems: is_openai(host),
        signed_calls: host == "generativelanguage.googleapis.com",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_what() {
        let several = Rules { several_systems: true, ..Rules::default() };
        assert_eq!(rules("api.openai.com", "gpt-4.1-mini"), several);
        assert_eq!(rules("x.openai.azure.com", "gpt-4.1-mini"), several);
        for host in ["api.openai.com.example", "openrouter.ai", "api.anthropic.com", "127.0.0.1"] {
            assert!(!rules(host, "gpt-4.1-mini").several_systems, "{host}");
        }
        assert_eq!(rules("127.0.0.1", "qwen2.5-7b-instruct"), Rules::default());
        assert!(!rules("api.mistral.ai", "anything").user_after_tool);
        assert!(!rules("openrouter.ai", "mistralai/Devstral-Small-2").user_after_tool);
        assert!(rules("127.0.0.1", "gemma-2-9b-it").take_turns);
        assert_eq!(rules("api.deepseek.com", "deepseek-chat").reasoning, ReasoningBack::Required);
        assert!(rules("generativelanguage.googleapis.com", "gemini-3-pro").signed_calls);
    }
}
