//! What a run that is an exchange of a session remembers: what was said before.

use std::sync::Arc;
use std::time::Duration;

use posse_core::job::JobState;
use posse_core::model::tokens;
use posse_core::model::{Message, Model, ModelProfile};
use posse_core::persona::PersonaTemplate;
use posse_core::run::Run;
use posse_core::run::compaction::Purpose;
use posse_core::run::prompt;
use posse_core::session::{self, Exchange, SessionId, Stretch};
use posse_core::worker::executor::{Halt, JobContext};

use super::GenericAgentExecutor;
use super::summary::Record;

/// The part of the window that earlier exchanges may take: a quarter. They stand in the head of the
/// conversation, which nothing makes smaller later.
const SHARE: u32 = 4;

/// The same in tokens where the window is not known.
const UNKNOWN_WINDOW: u32 = 32_768;

/// A token of text has at least so many bytes on average.
const BYTES_OF_TOKEN: usize = 3;

/// What the record of a conversation is about, for the model that sums it up.
const TASK: &str = "A conversation between a person and an agent.";

#[derive(Default)]
pub(super) struct Recalled {
    /// The system message about what is not shown.
    pub memory: Option<String>,
    /// What is shown, oldest first.
    pub history: Vec<Message>,
    /// Whether something of it nobody vouches for.
    pub untrusted: bool,
}

struct Source<'a> {
    cx: &'a JobContext,
    model: Arc<dyn Model>,
    summary_model: Option<&'a str>,
    window: Option<u32>,
}

/// What was said before, once what was at work then has ended: one that was superseded may take a moment for that.
async fn settled(cx: &JobContext, session: SessionId) -> Result<Vec<Exchange>, Halt> {
    for _ in 0..UNTIL_SETTLED {
        let exchanges = cx.exchanges_before(session).await?;
        if exchanges.iter().all(|exchange| exchange.state != JobState::Running) {
            return Ok(exchanges);
        }
        cx.check()?;
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    // Its worker hangs, or is gone.
    cx.exchanges_before(session).await
}

/// How often it is looked whether an earlier exchange has ended, and how many times. A tool may take five seconds to end.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const UNTIL_SETTLED: u32 = 200;

/// Tokens of the messages of each exchange: counted where the model's tokenizer answers, else estimated.
async fn sizes(model: &dyn Model, exchanges: &[Vec<Message>]) -> Vec<u64> {
    let texts: Vec<&str> = exchanges.iter().flatten().flat_map(tokens::texts).collect();
    let Some(counted) = super::count_tokens(Some(model), &texts).await else {
        return exchanges.iter().map(|messages| messages.iter().map(tokens::message).sum()).collect();
    };
    let mut counted = counted.into_iter();
    let mut of = |message: &Message| {
        let texts = counted.by_ref().take(tokens::texts(message).count());
        texts.sum::<u64>() + tokens::around(message)
    };
    exchanges.iter().map(|messages| messages.iter().map(&mut of).sum()).collect()
}

impl GenericAgentExecutor {
    /// What this job's run remembers; nothing where it is no exchange of a session.
    pub(super) async fn recall(
        &self,
        cx: &JobContext,
        run: &mut Run,
        persona: &PersonaTemplate,
        model: Arc<dyn Model>,
        profile: &ModelProfile,
    ) -> Result<Recalled, Halt> {
        let Some(id) = cx.job.payload.session else { return Ok(Recalled::default()) };
        let Some(session) = cx.session(id).await? else { return Ok(Recalled::default()) };
        let exchanges = settled(cx, id).await?;
        let budget = u64::from(profile.context_window.unwrap_or(UNKNOWN_WINDOW) / SHARE);
        // The newest exchange is always shown, so it is held to half of the budget.
        let most = usize::try_from(budget).unwrap_or(usize::MAX).saturating_mul(BYTES_OF_TOKEN) / 4;
        let shown: Vec<_> = exchanges
            .iter()
            .map(|exchange| prompt::said_before(persona.style, profile.tool_calling, exchange, most))
            .collect();
        let sizes = sizes(&*model, &shown).await;
        let first = session::first_shown(&sizes, budget);

        let summary_model = persona.context.summary_model.as_deref();
        let source = Source { cx, model, summary_model, window: profile.context_window };
        let mut untrusted = exchanges.iter().any(|exchange| exchange.untrusted);
        let previous = match session.previous {
            Some(stretch) => {
                let exchanges = cx.exchanges_of(stretch).await?;
                untrusted |= exchanges.iter().any(|exchange| exchange.untrusted);
                self.summary_of(&source, run, stretch, exchanges).await?
            }
            None => None,
        };
        let earlier = match exchanges[..first].last() {
            Some(last) => {
                let stretch = Stretch { session: id, through: last.job };
                self.summary_of(&source, run, stretch, exchanges[..first].to_vec()).await?
            }
            None => None,
        };
        let memory = session::memory(previous.as_deref(), earlier.as_deref());
        Ok(Recalled { memory, history: shown.into_iter().skip(first).flatten().collect(), untrusted })
    }

    /// The summary that is kept, or a new one. One that no model could write is not kept: the next
    /// exchange tries again.
    async fn summary_of(
        &self,
        source: &Source<'_>,
        run: &mut Run,
        of: Stretch,
        exchanges: Vec<Exchange>,
    ) -> Result<Option<String>, Halt> {
        let Source { cx, model, summary_model, window } = source;
        if let Some(kept) = cx.session_summary(of).await? {
            return Ok(Some(kept));
        }
        if exchanges.is_empty() {
            return Ok(None);
        }
        let messages = session::record(&exchanges);
        let (purpose, count) = (Purpose::Session, |message: &Message| tokens::message(message));
        let time_left = None;
        let record = Record { task: TASK, messages: &messages, purpose, window: *window, time_left, count: &count };
        let model = match summary_model {
            Some(name) => self.models.get(Some(name)),
            None => Ok(Arc::clone(model)),
        };
        let text = self.write_summary(cx, run, model, record).await?;
        match text.filter(|text| !text.trim().is_empty()) {
            Some(text) => Ok(Some(cx.keep_summary(of, text).await?)),
            None => Ok(Some(session::without_model(&exchanges))),
        }
    }
}
