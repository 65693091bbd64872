//! How one model is reached and asked.

use posse_core::model::conversation::{ReasoningBack, Rules};
use posse_core::model::{Author, ModelError, ModelErrorKind, ToolCalling};
use std::path::PathBuf;
use std::time::Duration;

use crate::secret::Secret;
use crate::wire::{Dialect, Format};

pub use crate::wire::MaxTokens;

/// How a model is asked for tools, as configured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolCallingChoice {
    /// Find out: from what is known of the host, from `/models`, else by asking the model once.
    #[default]
    Auto,
    /// The provider's own protocol.
    Native,
    /// A JSON Schema per step.
    Structured,
}

/// What counts a model's tokens, as configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TokenizerChoice {
    /// Nothing; they are estimated.
    #[default]
    None,
    /// The server that runs the model.
    Server,
    /// A `tokenizer.json`, as models are published with. Only in a program that is built with the
    /// feature `tokenizer-files`.
    File(PathBuf),
}

/// One model behind one endpoint. `Debug` shows no key and no header value.
///
/// What a server takes, from `max_tokens_field` to `several_systems`, is known by its host and its model's name where it
/// is not set, and learned from refusals.
#[derive(Debug, Clone)]
pub struct OpenAiConfig {
    /// The configured name, `default` for instance.
    pub name: String,
    /// Up to and including the version: `https://api.openai.com/v1`.
    pub base_url: String,
    /// What says so, for people: `--base-url`, `OPENAI_BASE_URL`, or a table of the settings.
    pub base_url_from: Option<String>,
    /// Sent as a bearer token; without one, no `Authorization` header is sent.
    pub api_key: Option<Secret>,
    /// The provider's name of the model.
    pub model: String,
    /// Sent as `OpenAI-Organization` and `OpenAI-Project`.
    pub organization: Option<String>,
    pub project: Option<String>,
    /// More headers, sent with every request; they win over the ones above.
    pub headers: Vec<(String, Secret)>,
    pub stream: bool,
    pub tool_calling: ToolCallingChoice,
    /// The window in tokens; asked of `/models` when absent.
    pub context_window: Option<u32>,
    pub tokenizer: TokenizerChoice,
    /// Which field limits the tokens of a reply.
    pub max_tokens_field: Option<MaxTokens>,
    /// Whether the model's reasoning is sent back to it, as `reasoning_content`.
    pub reasoning: Option<ReasoningBack>,
    /// Whether a user message may stand directly behind a tool's result.
    pub user_after_tool: Option<bool>,
    /// Whether user and assistant must take turns.
    pub take_turns: Option<bool>,
    /// Whether several system messages may stand in front.
    pub several_systems: Option<bool>,
    /// Longest silence: to the first byte, and between two pieces of a reply.
    pub idle_timeout: Duration,
    pub connect_timeout: Duration,
    /// How often a failed request is made again.
    pub retries: u32,
    /// The first wait between tries is up to this long; it doubles from there.
    pub backoff: Duration,
    /// US dollars per million tokens read.
    pub price_input: Option<f64>,
    /// US dollars per million tokens written.
    pub price_output: Option<f64>,
}

impl OpenAiConfig {
    pub fn new(name: impl Into<String>, base_url: impl Into<String>, model: impl Into<String>) -> Self {
        OpenAiConfig {
            name: name.into(),
            base_url: base_url.into(),
            base_url_from: None,
            api_key: None,
            model: model.into(),
            organization: None,
            project: None,
            headers: Vec::new(),
            stream: true,
            tool_calling: ToolCallingChoice::Auto,
            context_window: None,
            tokenizer: TokenizerChoice::None,
            max_tokens_field: None,
            reasoning: None,
            user_after_tool: None,
            take_turns: None,
            several_systems: None,
            idle_timeout: Duration::from_secs(120),
            connect_timeout: Duration::from_secs(10),
            retries: 4,
            backoff: Duration::from_millis(500),
            price_input: None,
            price_output: None,
        }
    }

    /// What this host takes, before it has refused anything.
    pub(crate) fn dialect(&self) -> Dialect {
        let by_host = if is_openai(&self.host()) { MaxTokens::MaxCompletionTokens } else { MaxTokens::MaxTokens };
        Dialect {
            max_tokens: Some(self.max_tokens_field.unwrap_or(by_host)),
            temperature: true,
            stream_options: true,
            format: Format::Strict,
            required_choice: true,
            rules: self.rules(),
        }
    }

    /// That it could never make a request, for this reason.
    pub(crate) fn unusable(&self, why: &str) -> ModelError {
        ModelError {
            kind: ModelErrorKind::WorkerUnfit,
            message: format!(
                "model {} cannot be used: {why} (see {})",
                self.name,
                self.base_url_from.as_deref().unwrap_or("config/posse.toml")
            ),
            retry_after: None,
            context_window: None,
            failed_tries: Vec::new(),
        }
    }

    /// The conversations it takes, before it has refused any.
    fn rules(&self) -> Rules {
        let known = known_rules(&self.host(), &self.model);
        Rules {
            user_after_tool: self.user_after_tool.unwrap_or(known.user_after_tool),
            take_turns: self.take_turns.unwrap_or(known.take_turns),
            reasoning: self.reasoning.unwrap_or(known.reasoning),
            several_systems: self.several_systems.unwrap_or(known.several_systems),
            ..known
        }
    }

    pub(crate) fn author(&self) -> Author {
        let url = reqwest::Url::parse(&self.base_url).ok();
        let port = url.and_then(|url| url.port()).map(|port| format!(":{port}")).unwrap_or_default();
        Author { provider: format!("{}{port}", self.host()), model: self.model.clone() }
    }

    /// What is known of the host's models without asking: the ones that all make tool calls.
    pub(crate) fn known_calling(&self) -> Option<ToolCalling> {
        let host = self.host();
        let known = is_openai(&host)
            || [
                "api.anthropic.com",
                "api.deepseek.com",
                "api.mistral.ai",
                "api.x.ai",
                "generativelanguage.googleapis.com",
            ]
            .contains(&host.as_str());
        known.then_some(ToolCalling::Native)
    }

    /// Whether `/models` of this host is worth asking: OpenAI's own list tells no windows.
    pub(crate) fn lists_windows(&self) -> bool {
        !is_openai(&self.host())
    }

    /// The endpoint as it may be shown: without user, password and query.
    pub fn endpoint(&self) -> String {
        match reqwest::Url::parse(&self.base_url) {
            Ok(mut url) => {
                // Failing to clear means there is nothing to clear.
                let _ = url.set_username("");
                let _ = url.set_password(None);
                url.set_query(None);
                url.set_fragment(None);
                url.as_str().trim_end_matches('/').to_owned()
            }
            Err(_) => "an address that is not a URL".to_owned(),
        }
    }

    /// What a reply cost, in millionths of a dollar. Dollars per million tokens are millionths of
    /// a dollar per token.
    pub(crate) fn cost(&self, usage: &posse_core::model::Usage) -> Option<u64> {
        if self.price_input.is_none() && self.price_output.is_none() {
            return None;
        }
        let part = |tokens: u64, price: Option<f64>| tokens as f64 * price.unwrap_or(0.0).max(0.0);
        let cost = part(usage.input, self.price_input) + part(usage.output, self.price_output);
        // Rounded up: a budget must not be overrun by what was rounded away. `as` saturates.
        Some(cost.ceil() as u64)
    }

    fn host(&self) -> String {
        reqwest::Url::parse(&self.base_url)
            .ok()
            .and_then(|url| url.host_str().map(str::to_ascii_lowercase))
            .unwrap_or_default()
    }
}

/// Makers of models that want an assistant message between a result and a user message, wherever
/// they are served.
const MISTRAL: &[&str] = &["mistral", "mixtral", "ministral", "magistral", "devstral", "codestral", "pixtral"];

/// Whether a host is OpenAI itself, whose models Azure serves in the same way.
///
/// Only of these is it known that several system messages may stand in front, whatever the model.
/// Elsewhere the same protocol hides what does not take them: servers that render a model's template
/// (vLLM, llama.cpp, Ollama) fail where it refuses a second one, routers pass requests on to those,
/// and Anthropic and Google make one of them all by themselves, so that nothing is lost by joining.
fn is_openai(host: &str) -> bool {
    host == "api.openai.com" || host.ends_with(".openai.azure.com")
}

/// The conversations that `model` at `host` takes: only what would cost a refused request to find out, or what no
/// refusal tells. A server that is not here is asked in the usual way and teaches the rest (`adapt.rs`).
fn known_rules(host: &str, model: &str) -> Rules {
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
    fn who_takes_what() {
        let config = |url: &str, model: &str| OpenAiConfig::new("n", url, model);
        let field = |url: &str| config(url, "m").dialect().max_tokens;
        assert_eq!(field("https://api.openai.com/v1"), Some(MaxTokens::MaxCompletionTokens));
        assert_eq!(field("http://127.0.0.1:1/v1"), Some(MaxTokens::MaxTokens));
        assert_eq!(config("https://api.openai.com.example/v1", "m").known_calling(), None);
        let rules = |host: &str, model: &str| config(&format!("https://{host}/v1"), model).dialect().rules;
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
        // What is configured wins.
        let mut config = config("https://api.mistral.ai/v1", "mistral-large");
        config.user_after_tool = Some(true);
        config.reasoning = Some(ReasoningBack::Optional);
        let Rules { user_after_tool, reasoning, .. } = config.dialect().rules;
        assert_eq!((user_after_tool, reasoning), (true, ReasoningBack::Optional));
    }
}
