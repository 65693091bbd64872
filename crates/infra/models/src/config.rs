//! How one model is reached and asked.

use posse_core::model::conversation::{ReasoningBack, Rules};
use posse_core::model::{Author, ModelError, ModelErrorKind, ToolCalling};
use std::path::PathBuf;
use std::time::Duration;

mod known;

use crate::secret::Secret;
use crate::wire::{Dialect, Format};
use known::is_openai;

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
    /// The usual settings for a model.
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
        let known = known::rules(&self.host(), &self.model);
        Rules {
            user_after_tool: self.user_after_tool.unwrap_or(known.user_after_tool),
            take_turns: self.take_turns.unwrap_or(known.take_turns),
            reasoning: self.reasoning.unwrap_or(known.reasoning),
            several_systems: self.several_systems.unwrap_or(known.several_systems),
            ..known
        }
    }

    /// Who writes its replies.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_takes() {
        let field = |url: &str| OpenAiConfig::new("n", url, "m").dialect().max_tokens;
        assert_eq!(field("https://api.openai.com/v1"), Some(MaxTokens::MaxCompletionTokens));
        assert_eq!(field("http://127.0.0.1:1/v1"), Some(MaxTokens::MaxTokens));
        let mut config = OpenAiConfig::new("n", "http://127.0.0.1:1/v1", "m");
        config.max_tokens_field = Some(MaxTokens::MaxCompletionTokens);
        assert_eq!(config.dialect().max_tokens, Some(MaxTokens::MaxCompletionTokens));
        let known = |url: &str| OpenAiConfig::new("n", url, "m").known_calling();
        assert_eq!(known("https://API.openai.com/v1"), Some(ToolCalling::Native));
        assert_eq!(known("http://127.0.0.1:1/v1"), None);
        assert_eq!(known("https://api.openai.com.example/v1"), None);
    }

    #[test]
    fn settings_win_over_what_is_known() {
        let mut config = OpenAiConfig::new("n", "https://api.mistral.ai/v1", "mistral-large");
        assert!(!config.dialect().rules.user_after_tool);
        config.user_after_tool = Some(true);
        config.take_turns = Some(true);
        config.several_systems = Some(true);
        config.reasoning = Some(ReasoningBack::Optional);
        let rules = config.dialect().rules;
        assert!(rules.user_after_tool && rules.take_turns && rules.several_systems);
        assert_eq!(rules.reasoning, ReasoningBack::Optional);
    }
}
