//! The agent executor: performs the effects that the run machine asks for.

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use posse_core::job::Job;
use posse_core::model::tokens;
use posse_core::model::{
    CallRequest, Delta, DeltaSink, FailedTry, Model, ModelError, ModelErrorKind, ModelReply, ModelRequest, Models,
    Usage, asking_for,
};
use posse_core::persona::PersonaTemplate;
use posse_core::run::hook::{RunHook, compose};
use posse_core::run::journal::{Entry, OfferedTool, Opening, effect_key};
use posse_core::run::machine::{Again, Effect, Input, Step, ToCount, Verdict, step};
use posse_core::run::spoken::Spoken;
use posse_core::run::{OpenCall, Run, Seen, finish};
use posse_core::skill::{Skill, shelf};
use posse_core::stop::{Stop, StopReason};
use posse_core::text::plural;
use posse_core::tool::calls::EXECUTE_CODE;
use posse_core::tool::web::WebRules;
use posse_core::tool::{Reader, Stored, ToolContext, ToolError, ToolErrorCategory, ToolOutput, Tools, UnknownTool};
use posse_core::worker::Progress;
use posse_core::worker::executor::{AgentExecutor, Delegation, Halt, JobContext, StepOutcome};
use posse_core::workspace::folder::FolderId;

use posse_host::folder::{Unusable, identify, pinned};

mod ending;
mod opening;
mod program;
mod recall;
mod results;
mod summary;
mod tasks;

use opening::NotOpened;
use tasks::{Ran, Told, suspended};

/// How long a tool that was asked to end may take before its result is no longer waited for.
const TOOL_GRACE: Duration = Duration::from_secs(5);

/// How long a run waits for a look at the files that its answer is about.
const LOOK_TIME: Duration = Duration::from_secs(2);

pub struct GenericAgentExecutor {
    persona: PersonaTemplate,
    tools: Vec<OfferedTool>,
    skills: Vec<Skill>,
    registry: Arc<dyn Tools>,
    models: Arc<dyn Models>,
    /// Where jobs work that name no workspace, and which folder that was at the start.
    default_workspace: (PathBuf, Option<FolderId>),
    hooks: Arc<dyn RunHook>,
    delegation: Arc<Delegation>,
}

impl GenericAgentExecutor {
    /// An executor for `persona`. Jobs that name no workspace work in `default_workspace`.
    pub fn new(
        persona: PersonaTemplate,
        registry: Arc<dyn Tools>,
        models: Arc<dyn Models>,
        default_workspace: PathBuf,
    ) -> Result<Self, UnknownTool> {
        let tools = registry.resolve(&persona.tools)?;
        // The final answer is offered by the run machine to every persona.
        let offered = tools.iter().filter(|tool| tool.spec().name != finish::FINISH);
        let tools = offered.map(|tool| OfferedTool::of(&**tool)).collect();
        let hooks = compose(Vec::new());
        let default_workspace = default_workspace.canonicalize().unwrap_or(default_workspace);
        let id = identify(&default_workspace).ok();
        let default_workspace = (default_workspace, id);
        let delegation = Arc::default();
        Ok(Self { persona, tools, skills: Vec::new(), registry, models, default_workspace, hooks, delegation })
    }

    pub fn with_skills(mut self, skills: Vec<Skill>) -> Self {
        self.skills = skills;
        self
    }

    pub fn with_hooks(mut self, hooks: Arc<dyn RunHook>) -> Self {
        self.hooks = hooks;
        self
    }

    async fn one_step(&self, cx: &mut JobContext, run: &mut Run) -> Result<StepOutcome, Halt> {
        if let Some((why, again)) = self.why_not_there(&cx.job) {
            return Ok(failed(run, why, again));
        }
        let mut next = match run.opening() {
            Some(_) => step(run, Input::PickedUp),
            None => {
                // A model that must first be started, or asked what it can do, may take its time.
                let began = Instant::now();
                let opening = tokio::select! {
                    opening = self.opening(cx, run) => opening,
                    reason = cx.stop.stopped() => return Err(reason.into()),
                };
                match opening {
                    Ok(opening) => step(run, Input::Begun { goal: &cx.job.payload.goal.clone(), opening }),
                    Err(NotOpened::Halt(halt)) => return Err(halt),
                    Err(NotOpened::Refused(reason, again)) => return Ok(failed(run, reason, again)),
                    Err(NotOpened::Model(error)) => step(run, Input::ModelFailed { error, ms: ms_since(began) }),
                }
            }
        };
        let mut asked = false;
        loop {
            let Step { entries, effect } = next;
            match effect {
                Effect::End => {
                    self.end_tasks(cx, run).await?;
                    self.after_run(cx, run).await?;
                    return Ok(end(run, entries));
                }
                Effect::Suspend => {
                    let (children, waits_for) = Default::default();
                    return Ok(StepOutcome::Suspended { reason: waits_for_people(run), children, waits_for, entries });
                }
                _ => {}
            }
            if entries.iter().any(|entry| matches!(entry, Entry::Turn(_)))
                && let Some((turns, most)) = run.turns_of_limit()
            {
                cx.note_progress(f64::from(turns) / f64::from(most.max(1)), &format!("turn {turns} of at most {most}"));
            }
            // It has taken them in already.
            cx.append(run.next_seq() - entries.len() as u64, entries).await?;
            next = match effect {
                Effect::AskModel if asked => return Ok(StepOutcome::Continue),
                Effect::AskModel => {
                    asked = true;
                    self.ask_model(cx, run).await?
                }
                Effect::RunCalls(calls) => match self.run_calls(cx, run, calls).await? {
                    Ran::Step(step) => step,
                    Ran::Waits(jobs) => return Ok(suspended(jobs)),
                },
                Effect::Count(what) => self.count(cx, run, &what).await?,
                Effect::Summarise(_) if asked => return Ok(StepOutcome::Continue),
                Effect::Summarise(what) => {
                    asked = true;
                    self.summarise(cx, run, &what).await?
                }
                Effect::FailAttempt { reason, again } => return Ok(failed(run, reason, again)),
                Effect::Wait | Effect::End | Effect::Suspend | Effect::StopProgram(_) => {
                    return Err(Halt::Broken("the run waits for a call that nobody runs".into()));
                }
            };
        }
    }

    /// The folder that the job's tools are confined to.
    fn workspace(&self, job: &Job) -> (PathBuf, Option<FolderId>) {
        match job.payload.workspace.as_str() {
            "" => self.default_workspace.clone(),
            path => (PathBuf::from(path), job.payload.workspace_id),
        }
    }

    /// Why a job that was accepted for a folder cannot be worked there, and whether it may later.
    fn why_not_there(&self, job: &Job) -> Option<(String, Again)> {
        if job.payload.workspace.is_empty() {
            return None;
        }
        let (path, id) = self.workspace(job);
        let Unusable { why, is_lack } = pinned(&path, id.as_ref()).err()?;
        let again = match path.symlink_metadata() {
            _ if is_lack => Again::after_lack(0),
            Ok(_) => Again::Never,
            Err(_) => Again::Later,
        };
        Some((why, again))
    }

    async fn ask_model(&self, cx: &mut JobContext, run: &mut Run) -> Result<Step, Halt> {
        cx.still_ours().await?;
        let began = Instant::now();
        let calling = run.opening().filter(|_| run.depth() == 0).map(|opening| opening.calling);
        let said = calling.map(|calling| Mutex::new(Spoken::new(calling)));
        let answer = match self.model(run) {
            Ok(model) => self.complete(cx, run, &*model, said.as_ref()).await,
            Err(error) => Err(error),
        };
        let ms = ms_since(began);
        if let (Err(error), Some(reason)) = (&answer, cx.stop.reason()) {
            if reason != StopReason::LeaseLost && has_cost(error) {
                // What it read and wrote until then was used, and counts.
                let seq = run.next_seq();
                let failed = step(run, Input::ModelFailed { error: error.clone(), ms });
                cx.append(seq, failed.entries).await?;
            }
            let said = said.map(|said| said.into_inner().unwrap_or_else(PoisonError::into_inner).all());
            cx.cut_short = said.filter(|said| !said.trim().is_empty());
            return Err(reason.into());
        }
        Ok(match answer {
            Ok(reply) => {
                let opening = run.opening().cloned();
                let check = |call: &CallRequest| self.check(opening.as_deref(), call);
                let seen = self.look(cx, run, &reply).await?;
                step(run, Input::Replied { reply, ms, check: &check, seen: &seen })
            }
            Err(error) => step(run, Input::ModelFailed { error, ms }),
        })
    }

    /// Has the model's tokenizer count. Never a reason to fail: without an answer, estimates have to do.
    async fn count(&self, cx: &JobContext, run: &mut Run, what: &[ToCount]) -> Result<Step, Halt> {
        let texts: Vec<&str> = what.iter().flat_map(|one| &one.texts).map(String::as_str).collect();
        let model = self.model(run).ok();
        let counted = tokio::select! {
            counted = count_tokens(model.as_deref(), &texts) => counted,
            reason = cx.stop.stopped() => return Err(reason.into()),
        };
        let tokens = counted.map(|counted| {
            let mut counted = counted.into_iter();
            what.iter().map(|one| counted.by_ref().take(one.texts.len()).sum()).collect()
        });
        Ok(step(run, Input::Counted { tokens }))
    }

    fn model(&self, run: &Run) -> Result<Arc<dyn Model>, ModelError> {
        // The one it began with, while there is one of that name. Where that was somebody's choice, no other
        // will do: the job waits for a worker that has it.
        let opening = run.opening();
        let began_with = opening.map(|opening| opening.model.as_str());
        let is_chosen = opening.is_some_and(|opening| opening.persona.model.is_some());
        self.models.get(began_with).or_else(|error| if is_chosen { Err(error) } else { self.models.get(None) })
    }

    async fn complete(
        &self,
        cx: &JobContext,
        run: &Run,
        model: &dyn Model,
        said: Option<&Mutex<Spoken>>,
    ) -> Result<ModelReply, ModelError> {
        let request = run.request();
        cx.report(Progress::AskingModel { job: cx.job.id });
        let deltas = |delta: Delta| {
            if let Some(said) = said {
                said.lock().unwrap_or_else(PoisonError::into_inner).take(&delta);
            }
            cx.report(Progress::Delta { job: cx.job.id, delta });
        };
        ask(model, &request, &deltas, &cx.stop, time_left(run)).await
    }

    /// Whether a call of an offered tool may run, and if not, what would be right.
    fn check(&self, opening: Option<&Opening>, call: &CallRequest) -> Verdict {
        let offered = opening.map_or(&[][..], |o| &o.tools);
        let tool = offered.iter().find(|tool| tool.spec.name == call.name);
        let is_ours = results::reads(opening, &call.name).is_some()
            || opening.is_some_and(|opening| shelf::finds(&opening.tools, &call.name));
        let Some(tool) = tool.filter(|_| is_ours || self.registry.get(&call.name).is_some()) else {
            return Err(format!("The tool '{}' is no longer available. Go on without it.", call.name));
        };
        let checked = self.registry.validate_args(&tool.spec, &call.arguments);
        // One that was replaced for this run does what is said of it there.
        let own = self.registry.get(&call.name).filter(|own| own.effect() == tool.effect);
        let effect = |args| own.map_or(tool.effect, |own| own.effect_of(&args));
        checked.map(effect).map_err(|error| error.message)
    }

    /// Runs calls at once and commits each result as it comes, all but the last with what follows. Those that have none
    /// before other jobs have ended stay as they are: they run again when the run is taken up.
    async fn run_calls(&self, cx: &JobContext, run: &mut Run, calls: Vec<OpenCall>) -> Result<Ran, Halt> {
        if let [call] = &calls[..]
            && call.request.name == EXECUTE_CODE
        {
            return self.run_program(cx, run, call.clone()).await;
        }
        cx.still_ours().await?;
        let told = self.told(cx, run);
        let start = |call| self.run_call(cx, run.opening().cloned(), call, told.clone());
        let mut running: FuturesUnordered<_> = calls.iter().map(start).collect();
        let overdue = async {
            if cx.stop.stopped().await != StopReason::LeaseLost {
                tokio::time::sleep(TOOL_GRACE).await;
            }
        };
        tokio::pin!(overdue);
        let mut waits_for = Vec::new();
        loop {
            let ended = tokio::select! {
                biased;
                ended = running.next() => ended,
                () = &mut overdue => return Err(cx.check().err().unwrap_or(StopReason::Shutdown.into())),
            };
            let (call_id, result, ms) = match ended {
                Some((_, Ok(ToolOutput { waits_for: jobs, .. }), _)) if !jobs.is_empty() => {
                    waits_for.extend(jobs);
                    continue;
                }
                Some(ended) => ended,
                None if waits_for.is_empty() => return Err(Halt::Broken("no call was left to run".into())),
                None => return Ok(Ran::Waits(waits_for)),
            };
            let seq = run.next_seq();
            let opening = run.opening().cloned();
            let check = |call: &CallRequest| self.check(opening.as_deref(), call);
            let is_cut_off = matches!(&result, Err(error) if error.category == ToolErrorCategory::Interrupted);
            let next = step(run, Input::CallEnded { call_id, result, ms, check: &check });
            if is_cut_off {
                cx.append(seq, next.entries).await?;
                return Err(cx.check().err().unwrap_or(StopReason::Shutdown.into()));
            }
            if next.effect != Effect::Wait {
                return Ok(Ran::Step(next));
            }
            cx.append(seq, next.entries).await?;
        }
    }

    /// What calls are told of the run that makes them now.
    fn told(&self, cx: &JobContext, run: &Run) -> Told {
        Told {
            skill_folder: run.skill().and_then(|skill| skill.folder.clone()),
            reader: run.reader(),
            time_left: time_left(run),
            tasks: self.task_desk(cx, run),
            calls: None,
            step: run.next_seq(),
            heard: run.heard(),
        }
    }

    async fn run_call(
        &self,
        cx: &JobContext,
        opening: Option<Arc<Opening>>,
        call: &OpenCall,
        Told { skill_folder, reader, time_left, tasks, calls, step, heard }: Told,
    ) -> (String, Result<ToolOutput, ToolError>, u64) {
        let began = Instant::now();
        let id = call.request.id.clone();
        let web = opening.as_deref().map(|opening| opening.persona.web.clone()).unwrap_or_default();
        let told = self.context(cx, &id);
        let context = ToolContext { skill_folder, reader, time_left, tasks, calls, web, step, heard, ..told };
        let result = self.result(cx, opening.as_deref(), &call.request, &context).await;
        (id, result, ms_since(began))
    }

    /// What a call is told about its circumstances.
    fn context(&self, cx: &JobContext, call_id: &str) -> ToolContext {
        let (workspace, workspace_id) = self.workspace(&cx.job);
        ToolContext {
            job: cx.job.id,
            role: self.persona.role.clone(),
            effect_key: effect_key(cx.installation(), cx.job.id, call_id),
            workspace,
            workspace_id,
            protected: Arc::clone(self.registry.protected()),
            rules_file: self.hooks.rules_file(),
            skill_folder: None,
            reader: Reader::default(),
            web: WebRules::default(),
            remarks: Some(Stored(cx.remarks())),
            time_left: None,
            tasks: None,
            calls: None,
            step: 0,
            heard: Vec::new(),
            memory: Some(cx.memory(&self.persona.role)),
            stop: cx.stop.clone(),
        }
    }

    /// Which of the files are there that matter should this reply end the run, and which tasks have not ended.
    async fn look(&self, cx: &JobContext, run: &Run, reply: &ModelReply) -> Result<Seen, Halt> {
        let open_tasks = self.open_tasks(cx, run).await?;
        let files = run.files_of(reply);
        if files.is_empty() {
            return Ok(Seen { open_tasks, ..Seen::default() });
        }
        let (registry, context) = (Arc::clone(&self.registry), self.context(cx, ""));
        let looked = tokio::task::spawn_blocking(move || registry.are_there(&context, &files));
        // What takes too long, or breaks down, says nothing.
        let looked = tokio::time::timeout(LOOK_TIME, looked).await;
        Ok(Seen { files: looked.ok().and_then(Result::ok).unwrap_or_default(), open_tasks })
    }

    /// What a call gives: of the run's own tools where it was offered those, else of a registered one.
    async fn result(
        &self,
        cx: &JobContext,
        opening: Option<&Opening>,
        CallRequest { name, arguments, .. }: &CallRequest,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolError> {
        if let Some(of) = results::reads(opening, name) {
            let args = self.registry.validate_args(&posse_core::run::results::spec(), arguments)?;
            return results::read(cx, of, args).await;
        }
        if let Some(opening) = opening.filter(|opening| shelf::finds(&opening.tools, name)) {
            let args = self.registry.validate_args(&shelf::finder().spec, arguments)?;
            return shelf::answer(&opening.skills, &args).map(ToolOutput::from);
        }
        let gone = || ToolError::new(ToolErrorCategory::NotFound, format!("The tool '{name}' is no longer available."));
        let tool = self.registry.get(name).ok_or_else(gone)?;
        tool.call(context, self.registry.validate_args(tool.spec(), arguments)?).await
    }
}

#[async_trait]
impl AgentExecutor for GenericAgentExecutor {
    async fn process_job(&self, cx: &mut JobContext) -> StepOutcome {
        let mut run = match cx.run.take() {
            Some(run) => run,
            None => match cx.journal().await {
                Ok(journal) => Run::replay(&journal),
                Err(halt) => return halt.into(),
            },
        };
        let id = cx.job.id;
        let outcome = asking_for(id, self.one_step(cx, &mut run)).await;
        cx.run = Some(run);
        outcome.unwrap_or_else(StepOutcome::from)
    }
}

/// Tokens of each text by the model's own tokenizer, if it has one that answers.
async fn count_tokens(model: Option<&dyn Model>, texts: &[&str]) -> Option<Vec<u64>> {
    let counted = model?.tokenizer()?.count(texts).await?;
    (counted.len() == texts.len()).then_some(counted)
}

fn waits_for_people(run: &Run) -> String {
    let what = match run.asked().map_or(0, |asked| asked.questions.len()) {
        1 => "a question".into(),
        n => plural(n as u64, "question"),
    };
    format!("waits for a person to answer {what} (posse question list)")
}

/// The end of the job that the end of its run means.
fn end(run: &Run, entries: Vec<Entry>) -> StepOutcome {
    use posse_core::run::journal::EndStatus;
    let output = run.output();
    match run.ended() {
        Some(ended) if !matches!(ended.status, EndStatus::Completed | EndStatus::Partial) => {
            let reason = ended.reason.clone().unwrap_or_else(|| ended.text.clone());
            StepOutcome::GaveUp { reason, output: Some(output), entries }
        }
        _ => StepOutcome::Completed { output, entries },
    }
}

fn failed(run: &Run, reason: String, again: Again) -> StepOutcome {
    match again {
        Again::Never => {
            let output = run.opening().is_some().then(|| run.output());
            StepOutcome::GaveUp { reason, output, entries: Vec::new() }
        }
        Again::Later => StepOutcome::Failed { reason },
        Again::After(wait) => StepOutcome::Snoozed { reason, wait },
    }
}

fn ms_since(began: Instant) -> u64 {
    began.elapsed().as_millis() as u64
}

fn time_left(run: &Run) -> Option<Duration> {
    run.time_left().map(|ms| Duration::from_millis(ms.max(0) as u64))
}

/// A model's reply, if it comes before the time is used up that there is. A request that is cut off has what it came to
/// until then among its failed tries, estimated where the model itself does not tell.
async fn ask(
    model: &dyn Model,
    request: &ModelRequest,
    deltas: &DeltaSink<'_>,
    stop: &Stop,
    time_left: Option<Duration>,
) -> Result<ModelReply, ModelError> {
    let heard = AtomicUsize::new(0);
    let listening = |delta: Delta| {
        match &delta {
            Delta::Text(text) | Delta::Reasoning(text) => heard.fetch_add(text.len(), Ordering::Relaxed),
            Delta::Call { arguments, .. } => heard.fetch_add(arguments.len(), Ordering::Relaxed),
            // What it came to is told with it.
            Delta::Restarted(_) => heard.swap(0, Ordering::Relaxed),
        };
        deltas(delta);
    };
    let reply = model.complete(request, &listening, stop);
    let answer = match time_left {
        None => reply.await,
        Some(limit) => match tokio::time::timeout(limit, reply).await {
            Ok(answer) => answer,
            Err(_) => return Err(out_of_time(limit, estimate(request, heard.into_inner()))),
        },
    };
    answer.map_err(|mut error| {
        let heard = heard.into_inner();
        if error.kind == ModelErrorKind::Stopped && heard > 0 && !has_cost(&error) {
            let (reason, usage) = (error.message.clone(), estimate(request, heard));
            error.failed_tries.push(FailedTry { model: String::new(), reason, usage });
        }
        error
    })
}

/// Roughly what a request came to that was cut off after so many bytes of its reply.
fn estimate(request: &ModelRequest, heard: usize) -> Usage {
    let offered = serde_json::to_string(&(&request.tools, &request.schema)).unwrap_or_default().len();
    let tail = request.tail.as_ref().map_or(0, String::len);
    let read: u64 = request.messages.iter().map(tokens::message).sum();
    let rest = Usage::estimate(offered + tail, heard);
    Usage { input: rest.input.saturating_add(read), ..rest }
}

fn has_cost(error: &ModelError) -> bool {
    error.failed_tries.iter().any(|failed| failed.usage.total() > 0)
}

fn out_of_time(limit: Duration, usage: Usage) -> ModelError {
    let message = format!("the model had not answered when the run's time was used up ({:.1} s)", limit.as_secs_f32());
    ModelError {
        kind: ModelErrorKind::Stopped,
        message: message.clone(),
        retry_after: None,
        context_window: None,
        failed_tries: vec![FailedTry { model: String::new(), reason: message, usage }],
    }
}
