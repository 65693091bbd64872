//! The thread that owns the model: it takes one job at a time from a bounded queue and generates its answer.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::model::{LlamaChatMessage, LlamaChatTemplate, LlamaModel};
use llama_cpp_2::token::LlamaToken;
use tokio::sync::{mpsc, oneshot};

use crate::args::Args;
use crate::memory::{CHUNK, Memory};
use crate::prompt::{ControlTexts, Piece, Turn};
use crate::sampling::Picker;
use crate::text::{Pushed, TextOut};
use crate::wire::{ApiError, Finish, Settings, Usage};

/// Jobs that may wait; more are refused, so that a client learns early that it should come back later.
const QUEUE: usize = 64;

/// One answer to generate.
pub struct Job {
    pub turns: Vec<Turn>,
    pub settings: Settings,
    /// Where the answer goes. When the receiver is gone, so is the client, and the job ends.
    pub events: mpsc::UnboundedSender<Event>,
}

#[derive(Debug)]
pub enum Event {
    /// The request is in order and its prompt is about to be read.
    Started,
    Text(String),
    Done(Finish, Usage),
    /// May also come instead of `Started`.
    Failed(ApiError),
}

/// What the thread receives: a job, or nothing, which only wakes it to see that it shall stop.
type Message = Option<Box<Job>>;

pub struct Engine {
    jobs: mpsc::Sender<Message>,
    /// Works beside that thread, so that a count need not wait for an answer.
    pub tokenizer: Arc<Tokenizer>,
    /// Tokens that a prompt and its answer may have together.
    pub n_ctx: usize,
}

pub struct Stopper {
    stop: Arc<AtomicBool>,
    jobs: mpsc::Sender<Message>,
    thread: JoinHandle<()>,
}

impl Engine {
    /// Loads the model in a thread of its own and waits until it can answer.
    pub async fn start(args: &Args) -> Result<(Self, Stopper), String> {
        let plan = Plan(args.clone());
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (ready, loaded) = oneshot::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("engine".into())
            .spawn(move || plan.run(queue, ready, &stopped))
            .map_err(|e| format!("cannot start a thread: {e}"))?;
        let (tokenizer, n_ctx) = loaded.await.map_err(|_| "the model's thread ended while it was loading")??;
        Ok((Self { jobs: jobs.clone(), tokenizer, n_ctx }, Stopper { stop, jobs, thread }))
    }

    /// Queues a job, or says why not.
    pub fn submit(&self, job: Job) -> Result<(), ApiError> {
        self.jobs.try_send(Some(Box::new(job))).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ApiError::new(
                axum::http::StatusCode::SERVICE_UNAVAILABLE,
                "queue_full",
                format!("{QUEUE} requests are waiting already"),
            ),
            mpsc::error::TrySendError::Closed(_) => ApiError::stopping(),
        })
    }
}

impl Stopper {
    /// Completes when the thread has ended, which it should only do when asked to.
    pub async fn ended(&self) {
        self.jobs.closed().await;
    }

    /// Lets the running job end at the next token or chunk, and drops those that wait.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // A full queue needs no wake-up: the thread is busy and looks at the flag before the next job.
        let _ = self.jobs.try_send(None);
    }

    /// Waits for the thread; false if it had panicked.
    pub fn join(self) -> bool {
        self.thread.join().is_ok()
    }
}

struct Plan(Args);

/// What the thread tells once the model is loaded: its tokenizer, and the tokens that fit its context.
type Loaded = Result<(Arc<Tokenizer>, usize), String>;

impl Plan {
    fn run(self, mut queue: mpsc::Receiver<Message>, ready: oneshot::Sender<Loaded>, stop: &AtomicBool) {
        let (backend, model) = match self.load() {
            Ok(loaded) => loaded,
            Err(error) => return drop(ready.send(Err(error))),
        };
        let tokenizer = Arc::new(Tokenizer::new(model));
        let mut worker = match self.worker(&backend, &tokenizer) {
            Ok(worker) => worker,
            Err(error) => return drop(ready.send(Err(error))),
        };
        if ready.send(Ok((Arc::clone(&tokenizer), worker.memory.n_ctx()))).is_err() {
            return;
        }
        while let Some(Some(job)) = queue.blocking_recv() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let last = match worker.answer(&job, stop) {
                Ok(Some((finish, usage))) => Event::Done(finish, usage),
                Ok(None) if stop.load(Ordering::Relaxed) => Event::Failed(ApiError::stopping()),
                Ok(None) => continue,
                Err(error) => Event::Failed(error),
            };
            // A client that has gone needs no answer.
            let _ = job.events.send(last);
        }
    }

    fn load(&self) -> Result<(LlamaBackend, LlamaModel), String> {
        let file = self.0.model.display();
        // Opening it first gives the system's own words for what is wrong.
        std::fs::File::open(&self.0.model).map_err(|e| format!("cannot open {file}: {e}"))?;
        let mut backend = LlamaBackend::init().map_err(|e| format!("llama.cpp: {e}"))?;
        if !self.0.verbose {
            backend.void_logs();
        }
        let model = LlamaModel::load_from_file(&backend, &self.0.model, &LlamaModelParams::default())
            .map_err(|e| format!("cannot load {file} as a model: {e} (--verbose shows llama.cpp's own log)"))?;
        Ok((backend, model))
    }

    fn worker<'m>(&self, backend: &LlamaBackend, tokenizer: &'m Tokenizer) -> Result<Worker<'m>, String> {
        let model = &tokenizer.model;
        // Past what it was trained on, a model writes nonsense.
        let ctx = NonZeroU32::new(model.n_ctx_train()).map_or(self.0.ctx, |trained| trained.min(self.0.ctx));
        let params = LlamaContextParams::default()
            .with_n_ctx(Some(ctx))
            .with_n_batch(CHUNK as u32)
            .with_n_ubatch(CHUNK as u32)
            .with_n_seq_max(1)
            .with_n_threads(self.0.thread_count())
            .with_n_threads_batch(self.0.thread_count())
            // Without it, a sliding window drops what a shorter prefix would need again.
            .with_swa_full(true);
        let context =
            model.new_context(backend, params).map_err(|e| format!("cannot make a context of {ctx} tokens: {e}"))?;
        let chatml = || LlamaChatTemplate::new("chatml").map_err(|e| e.to_string());
        let template = match model.chat_template(None) {
            Ok(own) => own,
            Err(_) => chatml()?,
        };
        let worker = Worker { tokenizer, template, memory: Memory::new(context) };
        let probe = [Turn { role: "user", content: "?".into() }];
        if worker.render(&probe).is_ok() {
            return Ok(worker);
        }
        eprintln!("posse-local: llama.cpp does not know the model's chat template; using ChatML");
        Ok(Worker { template: chatml()?, ..worker })
    }
}

/// The model as far as texts become tokens. Many threads may use it at once.
pub struct Tokenizer {
    model: LlamaModel,
    control: ControlTexts,
}

impl Tokenizer {
    fn new(model: LlamaModel) -> Self {
        let vocab = model.vocab();
        let control = vocab.tokens().filter(|&t| vocab.is_control(t)).filter_map(|t| vocab.text(t));
        let control = ControlTexts::new(control.map(|t| t.to_string_lossy().into_owned()).collect());
        Self { model, control }
    }

    /// The tokens of a text as it would be read inside a message.
    pub fn text(&self, text: &str) -> Vec<i32> {
        self.pieces(&self.control.hide(text), false).into_iter().map(|token| token.0).collect()
    }

    fn prompt(&self, rendered: &str) -> Vec<LlamaToken> {
        self.pieces(rendered, true)
    }

    /// `begins`: whether the tokens that a prompt begins with, if the model wants any, are put in front.
    fn pieces(&self, rendered: &str, begins: bool) -> Vec<LlamaToken> {
        let vocab = self.model.vocab();
        let mut tokens = Vec::new();
        for (i, piece) in self.control.pieces(rendered).into_iter().enumerate() {
            tokens.extend(match piece {
                Piece::Template(text) => vocab.tokenize(text.as_bytes(), begins && i == 0, true),
                Piece::Plain(text) => vocab.tokenize(text.as_bytes(), false, false),
            });
        }
        tokens
    }
}

struct Worker<'m> {
    tokenizer: &'m Tokenizer,
    template: LlamaChatTemplate,
    memory: Memory<'m>,
}

impl Worker<'_> {
    /// Generates one answer. None if the client has gone or the server is stopping.
    fn answer(&mut self, job: &Job, stop: &AtomicBool) -> Result<Option<(Finish, Usage)>, ApiError> {
        let go_on = || !job.events.is_closed() && !stop.load(Ordering::Relaxed);
        if !go_on() {
            return Ok(None);
        }
        let begun = Instant::now();
        let prompt = self.tokenizer.prompt(&self.render(&job.turns)?);
        if prompt.is_empty() || prompt.len() >= self.memory.n_ctx() {
            return Err(ApiError::too_long(prompt.len(), self.memory.n_ctx()));
        }
        let picker = Picker::new(&self.tokenizer.model, &job.settings)?;
        let _ = job.events.send(Event::Started);
        let cached = self.memory.recall(&prompt);
        if !self.memory.read(&prompt, go_on)? {
            return Ok(None);
        }
        let read = begun.elapsed();
        let Some((finish, completion)) = self.generate(job, picker, prompt.len(), go_on)? else {
            return Ok(None);
        };
        let usage = Usage { prompt: prompt.len(), cached, completion };
        log(usage, finish, read, begun.elapsed() - read);
        Ok(Some((finish, usage)))
    }

    /// Generates after a prompt of `start` tokens; gives the reason for the end and the number of tokens.
    fn generate(
        &mut self,
        job: &Job,
        mut picker: Picker,
        start: usize,
        go_on: impl Fn() -> bool,
    ) -> Result<Option<(Finish, usize)>, ApiError> {
        let vocab = self.tokenizer.model.vocab();
        let room = self.memory.n_ctx() - start;
        let most = job.settings.max_tokens.map_or(room, |most| room.min(most as usize));
        let mut out = TextOut::new(job.settings.stop.clone());
        let mut finish = Finish::Length;
        let mut count = 0;
        let mut piece = Vec::new();
        let mut written = Vec::new();
        let send = |text: String| {
            if !text.is_empty() {
                let _ = job.events.send(Event::Text(text));
            }
        };
        while go_on() {
            let token = picker
                .pick(self.memory.logits())
                .ok_or_else(|| ApiError::internal("the model gave no token that is allowed here"))?;
            if vocab.is_eog(token) {
                finish = Finish::Stop;
            } else {
                count += 1;
                picker.accept(token)?;
                piece.clear();
                // The grammar took a control token for its text, so then it must be written as such.
                vocab.token_to_piece_into(token, &mut piece, picker.is_constrained(), None);
                match out.push(&piece) {
                    Pushed::Text(text) => {
                        send(text);
                        if is_whole_json(&mut picker, &piece, vocab.eos()) {
                            finish = Finish::Stop;
                        }
                    }
                    Pushed::Stopped(text) => {
                        send(text);
                        return Ok(Some((Finish::Stop, count)));
                    }
                }
            }
            written.push(token);
            if finish == Finish::Stop || count == most || repeats_itself(&written) {
                send(out.finish());
                return Ok(Some((finish, count)));
            }
            self.memory.step(token, start + count - 1)?;
        }
        Ok(None)
    }

    fn render(&self, turns: &[Turn]) -> Result<String, ApiError> {
        let failed = |e: &dyn std::fmt::Display| ApiError::internal(format!("chat template: {e}"));
        let mut chat = Vec::with_capacity(turns.len());
        for turn in turns {
            let content = self.tokenizer.control.hide(&turn.content);
            chat.push(LlamaChatMessage::new(turn.role.into(), content).map_err(|e| failed(&e))?);
        }
        self.tokenizer.model.apply_chat_template(&self.template, &chat, true).map_err(|e| failed(&e))
    }
}

/// Whether the last tokens are the same few, again and again. A small model that has fallen into that does not come out of
/// it, and would go on until nothing is left of its limit; rows of equal lines that somebody wants are shorter.
fn repeats_itself(written: &[LlamaToken]) -> bool {
    const REPEATED: usize = 240;
    const LONGEST: usize = 48;
    let Some(begin) = written.len().checked_sub(REPEATED + LONGEST) else { return false };
    let last = &written[begin + LONGEST..];
    (1..=LONGEST).any(|length| last == &written[begin + LONGEST - length..written.len() - length])
}

/// Whether a JSON answer is complete: nothing but blanks could follow, and small models like to write many.
fn is_whole_json(picker: &mut Picker, piece: &[u8], end: LlamaToken) -> bool {
    // A vocabulary without an end token has -1 here, which llama.cpp does not take.
    let may_end = picker.is_constrained() && end.0 >= 0 && matches!(piece.last(), Some(b'}' | b']' | b'"'));
    may_end && picker.allows(end)
}

fn log(usage: Usage, finish: Finish, read: Duration, generated: Duration) {
    let rate = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
    eprintln!(
        "posse-local: prompt {} ({} cached) in {read:.2?}, {:.0} tok/s; answer {} in {generated:.2?}, {:.1} tok/s; {finish:?}",
        usage.prompt,
        usage.cached,
        rate(usage.prompt - usage.cached, read),
        usage.completion,
        rate(usage.completion, generated),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_itself_is_seen_when_it_is_long() {
        let tokens = |ids: &mut dyn Iterator<Item = i32>| ids.map(LlamaToken).collect::<Vec<_>>();
        for length in [1, 2, 7, 48] {
            let said = |n: i32| tokens(&mut (0..60).map(|i| 1000 + i).chain((0..n).map(|i| i % length)));
            assert!(repeats_itself(&said(240 + length)), "{length}");
            assert!(!repeats_itself(&said(239)), "{length}: it may end yet");
        }
        assert!(!repeats_itself(&tokens(&mut (0..600).map(|i| i % 49))), "that may be a text");
        assert!(!repeats_itself(&tokens(&mut (0..600))));
    }
}
